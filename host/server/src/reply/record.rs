//! The access log line and the metrics of one request: route, status, time, bytes, key id and
//! client address. Never content, tokens, query strings or paths, which contain names. A record is
//! written exactly once, when its response has been sent or dropped.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use cofferdam_engine::Allowance;
use cofferdam_store::KeyId;
use http::{Method, Request};
use uuid::Uuid;

use crate::limits::admission::RateLimitHeaders;
use crate::metrics::{Metrics, micros};
use crate::peer::{Peer, RunningRequest};
use crate::route::Label;
use crate::telemetry::within;

/// What is known of a request so far.
pub(crate) struct RequestRecord {
    pub(crate) route: Label,
    pub(crate) status: u16,
    /// The public part of the key.
    pub(crate) key: Option<KeyId>,
    /// The id of the response or embedding, as sent in `X-Generation-Id`.
    pub(crate) generation: Option<String>,
    /// The rate limit headers of the response.
    pub(crate) limit: Option<RateLimitHeaders>,
    /// What the request may use. It holds the request's permit until the response has been sent.
    pub(crate) allowance: Allowance,
    streamed: bool,
    client: IpAddr,
    id: Uuid,
    method: &'static str,
    started: Instant,
    bytes_sent: u64,
    whole: bool,
    metrics: Arc<Metrics>,
    running: RunningRequest,
}

impl RequestRecord {
    /// Starts the record of a request from `client`, whose connection comes from `peer`. The two
    /// differ behind a proxy.
    pub(crate) fn begin<B>(
        request: &Request<B>,
        metrics: Arc<Metrics>,
        peer: &Peer,
        client: IpAddr,
    ) -> Box<Self> {
        metrics.requests_running.fetch_add(1, Ordering::Relaxed);
        Box::new(Self {
            route: Label::None,
            // Logged when the client disconnects before there is a response.
            status: 499,
            key: None,
            generation: None,
            limit: None,
            allowance: Allowance::default(),
            streamed: false,
            client,
            id: Uuid::new_v4(),
            method: known(request.method()),
            started: Instant::now(),
            bytes_sent: 0,
            whole: false,
            metrics,
            running: peer.begin_request(),
        })
    }

    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Marks the response as a stream and counts it as running.
    pub(crate) fn note_stream(&mut self) {
        self.streamed = true;
        self.metrics.streams_running.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the connection asks for the next chunk.
    pub(crate) fn asked(&self) {
        self.running.asked();
    }

    /// Records the length of a chunk that was handed to the connection, or the end (`None`).
    pub(crate) fn sent(&mut self, chunk: Option<usize>) {
        match chunk {
            Some(bytes) => {
                self.running.sent();
                if self.streamed && self.bytes_sent == 0 {
                    self.metrics.first_bytes.observe(micros(self.started.elapsed()));
                }
                self.bytes_sent += bytes as u64;
                self.whole |= !self.streamed;
            }
            None => self.whole = true,
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let elapsed = self.started.elapsed();
        self.metrics.requests_running.fetch_sub(1, Ordering::Relaxed);
        self.metrics.count_request(self.route, self.status, elapsed);
        if self.streamed {
            self.metrics.streams_running.fetch_sub(1, Ordering::Relaxed);
            self.metrics.streams_abandoned.fetch_add(u64::from(!self.whole), Ordering::Relaxed);
        }
        let end = self.allowance.end();
        // Attaches the request id to the line, as on all other lines of the request.
        within(self.id, || {
            tracing::info!(
                target: "cofferdam::access",
                client = %self.client,
                route = self.route.as_str(),
                method = self.method,
                status = self.status,
                duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
                bytes_sent = self.bytes_sent,
                streamed = self.streamed,
                abandoned = self.streamed && !self.whole,
                key = self.key.map(tracing::field::display),
                generation = self.generation.as_deref(),
                model = end.map(|end| &*end.model),
                attempts = end.map(|end| end.attempts),
                outcome = end.map(|end| end.outcome.as_str()),
                "request"
            );
        });
    }
}

/// Maps a method to a fixed word, since clients may send arbitrary methods.
fn known(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    known.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}
