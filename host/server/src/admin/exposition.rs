//! The text of `/metrics`: the counters of all parts of the host.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cofferdam_engine::memory::meters::Meters;

use super::{endpoints, plugins, process};
use crate::app::App;
use crate::metrics::{Text, escape};
use crate::telemetry;

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
    let live = app.live_config();
    let loaded = "Unix time at which the configuration that serves was read";
    text.single("cofferdam_config_loaded_seconds", "gauge", loaded, live.loaded_s);
    app.metrics.write(app.rates.inference.answers(), &mut text);
    certificate(app, &mut text);
    sandbox(app, &mut text);
    let meters = live.engine.meters();
    providers(meters, &mut text);
    models(meters, &mut text);
    endpoints::write(app, &mut text);
    let catalog = plugins::PluginCatalog::of(live.engine.plugins());
    plugins::write(&app.runtime.counters(), &catalog, &mut text);
    releases(meters, &mut text);
    broadcast(meters, &mut text);
    store(app, &mut text);
    let lost = "Log lines that standard error did not take";
    text.single("cofferdam_log_lines_lost_total", "counter", lost, telemetry::lines_lost());
    process::write(&mut text);
    memory(app, &mut text);
    text.finish()
}

fn memory(app: &App, text: &mut Text) {
    let bodies = "Bytes of request bodies that count against their limit";
    text.single("cofferdam_request_bodies_bytes", "gauge", bodies, app.bodies.bytes());
    let Some(memory) = app.memory_limit.read_or_machine() else { return };
    let limit = "Memory limit of the control group of the process, else the memory of the machine";
    text.single("cofferdam_memory_limit_bytes", "gauge", limit, memory.limit);
    let free = "What is left of it, with what the kernel can take back from files";
    text.single("cofferdam_memory_free_bytes", "gauge", free, memory.free);
    let short = "1 while requests are refused because the limit is near";
    text.single("cofferdam_memory_short", "gauge", short, u8::from(cofferdam_runtime::memory::is_short()));
}

fn certificate(app: &App, text: &mut Text) {
    const NAME: &str = "cofferdam_certificate_expiry_seconds";
    let Some(tls) = app.tls() else { return };
    let now_s = i64::try_from(app.clock.now_ms() / 1000).unwrap_or(i64::MAX);
    let left = tls.current().facts().earliest_end_s.saturating_sub(now_s);
    text.family(
        NAME,
        "gauge",
        "Seconds until the first certificate in the chain of `[server.tls]` expires; negative afterwards",
    );
    for listener in ["api", "admin"] {
        text.sample(NAME, &format!("listener=\"{listener}\""), left);
    }
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

fn providers(meters: &Meters, text: &mut Text) {
    let providers = meters.providers();
    let providers: Vec<_> = providers.iter().map(|(name, meter)| (escape(name), meter)).collect();
    text.family("cofferdam_attempts_total", "counter", "Requests sent to providers, by how they ended");
    for (name, meter) in &providers {
        for (outcome, count) in meter.attempts() {
            let labels = format!("provider=\"{name}\",outcome=\"{outcome}\"");
            text.sample("cofferdam_attempts_total", &labels, count);
        }
    }
    let help = "From the beginning of an attempt to the first content of its stream";
    text.family("cofferdam_first_content_seconds", "histogram", help);
    for (name, meter) in &providers {
        let labels = format!("provider=\"{name}\"");
        text.histogram("cofferdam_first_content_seconds", &labels, &meter.first_content());
    }
    let help = "From the beginning of an attempt to the end of its answer, or to its failure";
    text.family("cofferdam_attempt_seconds", "histogram", help);
    for (name, meter) in &providers {
        let labels = format!("provider=\"{name}\"");
        text.histogram("cofferdam_attempt_seconds", &labels, &meter.attempt_times());
    }
}

fn models(meters: &Meters, text: &mut Text) {
    let models = meters.models();
    let models: Vec<_> = models.iter().map(|(name, meter)| (escape(name), meter)).collect();
    text.family(
        "cofferdam_tokens_total",
        "counter",
        "Tokens of models, by direction; none is in two of them",
    );
    for (name, meter) in &models {
        for (direction, count) in meter.tokens() {
            let labels = format!("model=\"{name}\",direction=\"{direction}\"");
            text.sample("cofferdam_tokens_total", &labels, count);
        }
    }
    text.family("cofferdam_cost_dollars_total", "counter", "Cost of models in dollars, by what paid it");
    for (name, meter) in &models {
        for (paid, dollars) in meter.cost() {
            let labels = format!("model=\"{name}\",paid=\"{paid}\"");
            text.sample("cofferdam_cost_dollars_total", &labels, dollars);
        }
    }
    text.family("cofferdam_turns", "histogram", "Turns of responses, questions of plugins included");
    text.histogram("cofferdam_turns", "", &meters.turns());
}

fn releases(meters: &Meters, text: &mut Text) {
    let help = "Releases of secrets out of the vault, and secrets that hosts sent back";
    text.family("cofferdam_releases_total", "counter", help);
    for (purpose, result, count) in meters.releases().all() {
        let labels = format!("purpose=\"{purpose}\",result=\"{result}\"");
        text.sample("cofferdam_releases_total", &labels, count);
    }
}

fn broadcast(meters: &Meters, text: &mut Text) {
    text.family(
        "cofferdam_broadcast_records_total",
        "counter",
        "Records of finished requests, by destination",
    );
    for (name, tally) in meters.destinations() {
        let counts = [("sent", &tally.sent), ("failed", &tally.failed), ("dropped", &tally.dropped)];
        for (outcome, counter) in counts {
            let labels = format!("destination=\"{}\",outcome=\"{outcome}\"", escape(&name));
            text.sample("cofferdam_broadcast_records_total", &labels, counter.load(Ordering::Relaxed));
        }
    }
}

fn store(app: &App, text: &mut Text) {
    let store = &app.store;
    text.family("cofferdam_store_commit_seconds", "histogram", "Time to write a commit and to sync the disk");
    text.histogram("cofferdam_store_commit_seconds", "", &store.commits());
    let parts = store.queue_parts();
    text.family(
        "cofferdam_store_queue",
        "gauge",
        "What waits for the next commit: changes of all queues, usage rows and audit records of the fullest one",
    );
    for part in &parts {
        text.sample("cofferdam_store_queue", &format!("queue=\"{}\"", part.name), part.length);
    }
    text.family("cofferdam_store_queue_max", "gauge", "Room for what waits for the next commit");
    for part in &parts {
        text.sample("cofferdam_store_queue_max", &format!("queue=\"{}\"", part.name), part.max);
    }
    text.single("cofferdam_store_bytes", "gauge", "Size of the store on the disk", store.disk_bytes());
    if let Some([contact, feed]) = store.contact_ages_ms() {
        let ages = [
            ("cofferdam_store_contact_age_seconds", "Time since the last contact with the database", contact),
            ("cofferdam_store_feed_age_seconds", "Time since all changes of other hosts were known", feed),
        ];
        for (name, help, age_ms) in ages {
            text.single(name, "gauge", help, Duration::from_millis(age_ms).as_secs_f64());
        }
    }
    if let Some(limits) = store.shared_limits() {
        let (hosts, away) = (limits.hosts(), u64::from(limits.is_away()));
        text.single("cofferdam_store_hosts", "gauge", "Hosts that serve the store, as this one knows", hosts);
        let help =
            "1 while the limits that hosts share are out of reach and this host admits only its part of each";
        text.single("cofferdam_store_limits_away", "gauge", help, away);
    }
}
