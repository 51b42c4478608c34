//! The admin listener: `/healthz`, `/readyz` and `/metrics`. It has no authentication, so it
//! reveals nothing about tenants, keys or content.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use super::endpoints;
use crate::app::App;
use crate::metrics::{Text, escape};
use crate::peer::Peer;
use crate::reply::answer::ResponseBody;

pub(crate) async fn handle(app: Arc<App>, peer: Peer, request: Request<Incoming>) -> Response<ResponseBody> {
    peer.running.fetch_add(1, Ordering::Relaxed);
    let response = answer(&app, request.method(), request.uri().path());
    peer.running.fetch_sub(1, Ordering::Relaxed);
    response
}

fn answer(app: &App, method: &Method, path: &str) -> Response<ResponseBody> {
    let page: fn(&App) -> AdminPage = match path {
        "/healthz" => {
            |_| AdminPage::new(StatusCode::OK, "application/json", "{\"status\":\"ok\"}".to_owned())
        }
        "/readyz" => ready,
        "/metrics" => metrics,
        _ => |_| AdminPage::new(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "Not found\n".to_owned()),
    };
    if method != Method::GET && method != Method::HEAD {
        let mut response = Response::new(ResponseBody::default());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let AdminPage { status, kind, text } = page(app);
    let mut response = Response::new(ResponseBody::whole(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

struct AdminPage {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

impl AdminPage {
    fn new(status: StatusCode, kind: &'static str, text: String) -> Self {
        Self { status, kind, text }
    }
}

/// `/readyz`: 200 when the host can serve requests. The body says which part is not ready.
fn ready(app: &App) -> AdminPage {
    let readiness = app.readiness();
    let status = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = json!({
        "ready": readiness.is_ready(),
        "plugins_compiled": readiness.plugins_compiled,
        "store_writable": readiness.store_writable,
        "draining": readiness.draining,
    });
    AdminPage::new(status, "application/json", text.to_string())
}

fn metrics(app: &App) -> AdminPage {
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
    certificate(app, &mut text);
    sandbox(app, &mut text);
    providers(app, &mut text);
    endpoints::write(app, &mut text);
    plugins(app, &mut text);
    broadcast(app, &mut text);
    AdminPage::new(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.finish())
}

fn certificate(app: &App, text: &mut Text) {
    const NAME: &str = "cofferdam_certificate_expiry_seconds";
    let Some(tls) = app.tls() else { return };
    let now_s = i64::try_from(app.clock.now_ms() / 1000).unwrap_or(i64::MAX);
    let left = tls.current().facts().not_after_s.saturating_sub(now_s);
    text.family(
        NAME,
        "gauge",
        "Seconds until the certificate of `[server.tls]` expires; negative afterwards",
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
