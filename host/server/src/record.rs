//! One request as the log and the metrics see it: route, status, time, bytes,
//! which key, from which address. Never content, tokens of keys, paths with names in them or query
//! strings. A record is written exactly once, when its answer is done or dropped.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use cofferdam_engine::Allowance;
use cofferdam_store::KeyId;
use http::{Method, Request, Version};
use uuid::Uuid;

use crate::admission::Shown;
use crate::connection::Peer;
use crate::metrics::Metrics;
use crate::route::Label;
use crate::stall::Handed;
use crate::telemetry::within;

/// What is known of a request so far.
pub(crate) struct Record {
    pub(crate) route: Label,
    pub(crate) status: u16,
    /// The public part of the key.
    pub(crate) key: Option<KeyId>,
    /// The id of the response or embedding, as sent in `X-Generation-Id`.
    pub(crate) generation: Option<String>,
    /// What the client is told of its limits.
    pub(crate) limit: Option<Shown>,
    /// What the request may use: its place is taken until the answer is out.
    pub(crate) allowance: Allowance,
    streamed: bool,
    client: IpAddr,
    id: Uuid,
    method: &'static str,
    started: Instant,
    bytes_sent: u64,
    whole: bool,
    metrics: Arc<Metrics>,
    running: Arc<AtomicUsize>,
    handed: Option<Handed>,
}

impl Record {
    /// Begins the record of a request that `client` sent and that came from `peer`.
    pub(crate) fn begin<B>(
        request: &Request<B>,
        metrics: Arc<Metrics>,
        peer: &Peer,
        client: IpAddr,
    ) -> Box<Self> {
        let running = Arc::clone(&peer.running);
        // Below HTTP/2 the socket knows it.
        let handed = (request.version() == Version::HTTP_2).then(|| peer.answers.begin());
        running.fetch_add(1, Ordering::Relaxed);
        metrics.requests_running.fetch_add(1, Ordering::Relaxed);
        Box::new(Self {
            route: Label::None,
            // What stays when the client goes away before there is an answer.
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
            running,
            handed,
        })
    }

    /// Our id of the request.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// The answer is a stream: it is live from now on.
    pub(crate) fn note_stream(&mut self) {
        self.streamed = true;
        self.metrics.streams_running.fetch_add(1, Ordering::Relaxed);
    }

    /// The connection asks for the next chunk.
    pub(crate) fn asked(&self) {
        if let Some(handed) = &self.handed {
            handed.taken();
        }
    }

    /// Notes the length of a chunk that was handed to the connection, or the end.
    pub(crate) fn sent(&mut self, chunk: Option<usize>) {
        match chunk {
            Some(bytes) => {
                if let Some(handed) = &self.handed {
                    handed.hand();
                }
                if self.streamed && self.bytes_sent == 0 {
                    self.metrics.first_bytes.observe(self.started.elapsed());
                }
                self.bytes_sent += bytes as u64;
                self.whole |= !self.streamed;
            }
            None => self.whole = true,
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let elapsed = self.started.elapsed();
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.metrics.requests_running.fetch_sub(1, Ordering::Relaxed);
        self.metrics.count_request(self.route, self.status, elapsed);
        if self.streamed {
            self.metrics.streams_running.fetch_sub(1, Ordering::Relaxed);
            self.metrics.streams_abandoned.fetch_add(u64::from(!self.whole), Ordering::Relaxed);
        }
        // The line carries the request id as all others do.
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
                "request"
            );
        });
    }
}

/// A method as a fixed word: clients may send any.
fn known(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    known.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}
