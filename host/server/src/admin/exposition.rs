//! The text of `/metrics`: the counters of all parts of the host.

use std::sync::atomic::Ordering;

use super::endpoints;
use crate::app::App;
use crate::metrics::{Text, escape};

/// The whole text of `/metrics`.
pub(super) fn page(app: &App) -> String {
    let mut text = Text::default();
    text.family("cofferdam_build_info", "gauge", "The version that runs");
    text.sample("cofferdam_build_info", &format!("version=\"{}\"", env!("CARGO_PKG_VERSION")), 1);
    text.single(
        "cofferdam_ready",
        "gauge",
        "1 when requests are answered",
        u8::from(app.readiness().is_ready()),
    );
    app.metrics.write(&mut text);
    sandbox(app, &mut text);
    providers(app, &mut text);
    endpoints::write(app, &mut text);
    plugins(app, &mut text);
    broadcast(app, &mut text);
    text.finish()
}

fn sandbox(app: &App, text: &mut Text) {
    let gauges = app.runtime.gauges();
    text.single("cofferdam_instances", "gauge", "Instances of plugins that serve a call", gauges.instances);
    text.single(
        "cofferdam_instances_idle",
        "gauge",
        "Instances of plugins kept for the next call of a key",
        gauges.idle,
    );
    text.single("cofferdam_instances_max", "gauge", "Room for instances of plugins", gauges.instances_max);
    text.single(
        "cofferdam_plugin_code_bytes",
        "gauge",
        "Compiled code of plugins in memory, with versions that running requests still use",
        gauges.code_bytes,
    );
    text.single(
        "cofferdam_saturated_total",
        "counter",
        "Calls refused because there was no room",
        gauges.saturated,
    );
}

fn providers(app: &App, text: &mut Text) {
    text.family("cofferdam_attempts_total", "counter", "Requests sent to providers, by how they ended");
    for provider in &app.live().providers {
        let name = escape(&provider.name);
        let counts = [("answered", &provider.attempts.answered), ("failed", &provider.attempts.failed)];
        for (outcome, counter) in counts {
            let labels = format!("provider=\"{name}\",outcome=\"{outcome}\"");
            text.sample("cofferdam_attempts_total", &labels, counter.load(Ordering::Relaxed));
        }
    }
}

fn broadcast(app: &App, text: &mut Text) {
    text.family(
        "cofferdam_broadcast_records_total",
        "counter",
        "Records of finished requests, by destination",
    );
    for (name, tally) in app.live().broadcast.tallies() {
        let counts = [("sent", &tally.sent), ("failed", &tally.failed), ("dropped", &tally.dropped)];
        for (outcome, counter) in counts {
            let labels = format!("destination=\"{}\",outcome=\"{outcome}\"", escape(name));
            text.sample("cofferdam_broadcast_records_total", &labels, counter.load(Ordering::Relaxed));
        }
    }
}

fn plugins(app: &App, text: &mut Text) {
    let live = app.live();
    let plugins = live.engine.plugins();
    let plugins: Vec<_> =
        plugins.iter().map(|plugin| (escape(plugin.name()), plugin.counters().values())).collect();
    text.family("cofferdam_plugin_calls_total", "counter", "Calls into plugins");
    for (name, values) in &plugins {
        text.sample("cofferdam_plugin_calls_total", &format!("plugin=\"{name}\""), values.calls);
    }
    text.family("cofferdam_plugin_busy_seconds_total", "counter", "Time that plugins' code ran");
    for (name, values) in &plugins {
        let seconds = format!("{}.{:09}", values.busy_ns / 1_000_000_000, values.busy_ns % 1_000_000_000);
        text.sample("cofferdam_plugin_busy_seconds_total", &format!("plugin=\"{name}\""), seconds);
    }
    text.family("cofferdam_plugin_errors_total", "counter", "Calls into plugins that failed, traps included");
    for (name, values) in &plugins {
        for (kind, count) in &values.errors {
            let labels = format!("plugin=\"{name}\",kind=\"{kind}\"");
            text.sample("cofferdam_plugin_errors_total", &labels, count);
        }
    }
    text.family("cofferdam_plugin_log_lines_dropped_total", "counter", "Lines of plugins beyond their quota");
    for (name, values) in &plugins {
        let labels = format!("plugin=\"{name}\"");
        text.sample("cofferdam_plugin_log_lines_dropped_total", &labels, values.log_lines_dropped);
    }
}
