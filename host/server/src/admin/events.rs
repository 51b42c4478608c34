//! `GET /admin/v1/events`: the state of the host each second and the requests that end, as
//! server-sent events for an open console.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_engine::timeline::EndedRequests;
use http::Response;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::fault::AdminFault;
use super::listener::Admin;
use crate::app::App;
use crate::reply::answer::ResponseBody;
use crate::reply::event_stream;
use crate::timestamp::timestamp;

/// The time between two events with the state.
const STATE_EVERY: Duration = Duration::from_secs(1);
/// The time between two looks for requests that ended. Looking costs the requests nothing, where
/// telling each end would wake a thread.
const REQUESTS_EVERY: Duration = Duration::from_millis(100);
/// Requests that are sent between two states; further ones are counted.
const REQUESTS_MAX: usize = 20;
/// Events that wait for a slow client. One that takes none for longer loses its stream.
const WAITING_MAX: usize = 64;

/// Opens a stream. It ends when the bearer ends or the host stops.
pub(super) fn open(admin: &Admin, bearer: &str) -> Result<Response<ResponseBody>, AdminFault> {
    let permit = Arc::clone(&admin.streams).try_acquire_owned().map_err(|_| AdminFault::Busy)?;
    let (events, body) = channel(WAITING_MAX);
    let live = LiveEvents {
        app: Arc::clone(&admin.app),
        stop: admin.stop.clone(),
        bearer: Zeroizing::new(bearer.to_owned()),
        last_request: admin.app.recorder.ended_since(0, 0).last,
        events,
        sent: 0,
        lost: 0,
        reloads: admin.app.metrics.reloads.load(Ordering::Relaxed),
    };
    tokio::spawn(async move {
        live.run().await;
        drop(permit);
    });
    Ok(event_stream(ResponseBody::channel(body)))
}

struct LiveEvents {
    app: Arc<App>,
    stop: CancellationToken,
    bearer: Zeroizing<String>,
    /// The number of the last request that was sent or counted.
    last_request: u64,
    events: Sender<Bytes>,
    /// Requests sent since the last state.
    sent: usize,
    /// Requests not sent since the last state.
    lost: u64,
    /// The number of reloads at the last state.
    reloads: u64,
}

impl LiveEvents {
    async fn run(mut self) {
        let (mut states, mut requests) = (interval(STATE_EVERY), interval(REQUESTS_EVERY));
        states.set_missed_tick_behavior(MissedTickBehavior::Delay);
        requests.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let goes_on = tokio::select! {
                () = self.stop.cancelled() => false,
                () = self.events.closed() => false,
                _ = states.tick() => self.tick(),
                _ = requests.tick() => self.requests(),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Sends the state, unless the bearer has ended.
    fn tick(&mut self) -> bool {
        if !self.app.operators.is_live(&self.bearer) {
            return false;
        }
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 && !self.send("lost", &json!({"requests": lost})) {
            return false;
        }
        let reloads = self.app.metrics.reloads.load(Ordering::Relaxed);
        if reloads != std::mem::replace(&mut self.reloads, reloads)
            && !self.send("reload", &json!({"reloads": reloads}))
        {
            return false;
        }
        self.sent = 0;
        self.send("state", &state(&self.app))
    }

    /// Sends the requests that ended since the last time.
    fn requests(&mut self) -> bool {
        let room = REQUESTS_MAX.saturating_sub(self.sent);
        let EndedRequests { last, requests, left_out } =
            self.app.recorder.ended_since(self.last_request, room);
        self.last_request = last;
        self.sent += requests.len();
        self.lost += left_out;
        requests.iter().all(|request| self.send("request", request))
    }

    /// Whether the client still takes events.
    fn send(&self, name: &str, document: &impl Serialize) -> bool {
        self.events.try_send(event(name, document)).is_ok()
    }
}

/// One server-sent event. JSON has no raw line breaks, so it is one line of data.
pub(super) fn event(name: &str, document: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(document).unwrap_or_else(|_| "null".to_owned());
    format!("event: {name}\ndata: {data}\n\n").into()
}

fn state(app: &App) -> Value {
    let (readiness, metrics) = (app.readiness(), &app.metrics);
    let (requests, failures) = metrics.answered();
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    json!({
        "at": timestamp(app.clock.now_ms()),
        "ready": readiness.is_ready(),
        "plugins_compiled": readiness.plugins_compiled,
        "store_writable": readiness.store_writable,
        "draining": readiness.draining,
        "connections": read(&metrics.connections),
        "requests_running": read(&metrics.requests_running),
        "streams_running": read(&metrics.streams_running),
        "requests": requests,
        "failures": failures,
        "reloads": read(&metrics.reloads),
        "reloads_refused": read(&metrics.reloads_refused),
    })
}
