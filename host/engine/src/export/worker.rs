//! Sending the records of one destination, off the path of any request.

use super::{Destination, DestinationKind, Message, Tally, otlp, webhook};
use crate::authentication::operators;
use crate::export::record::Record;
use cofferdam_egress::{Credential, Egress, Limits, Outgoing};
use cofferdam_store::Store;
use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// Spans of one request to a collector.
const SPANS_MAX: usize = 256;
/// Webhook requests under way at once.
const HOOKS_MAX: usize = 8;
/// How long spans wait for company.
const LINGER: Duration = Duration::from_millis(500);
/// Before each further try; after the last, the records are given up.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// Of one try. What a destination answers beyond its status is of no interest.
const LIMITS: Limits =
    Limits { head: Duration::from_secs(10), idle: Duration::from_secs(5), body_bytes_max: 64 << 10 };

/// The worker of one destination.
pub(super) struct Worker {
    destination: Destination,
    egress: Egress,
    store: Store,
    tally: Arc<Tally>,
    /// Whether the last try went well: only changes are logged.
    is_well: bool,
}

/// What came of one try.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    Taken,
    /// May go better later.
    Unavailable,
    /// Will not.
    Refused,
}

impl Worker {
    pub(super) fn new(destination: Destination, egress: Egress, store: Store, tally: Arc<Tally>) -> Self {
        Self { destination, egress, store, tally, is_well: true }
    }

    /// Sends what comes until nobody is left to send anything.
    pub(super) async fn run(mut self, mut messages: Receiver<Message>) {
        while let Some(first) = messages.recv().await {
            let (batch, flushed) = self.gather(first, &mut messages).await;
            if !batch.is_empty() {
                self.send(&batch).await;
            }
            for done in flushed {
                // Whoever asked may have lost patience.
                done.send(()).unwrap_or_default();
            }
        }
    }

    /// The records to send together, and who waits for them.
    async fn gather(
        &self,
        first: Message,
        messages: &mut Receiver<Message>,
    ) -> (Vec<Arc<Record>>, Vec<oneshot::Sender<()>>) {
        let (most, linger) = match self.destination.kind {
            DestinationKind::Webhook => (HOOKS_MAX, Duration::ZERO),
            DestinationKind::Otlp(_) => (SPANS_MAX, LINGER),
        };
        let (mut batch, mut flushed) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        let mut time = std::pin::pin!(sleep(linger));
        while let Some(message) = next {
            match message {
                Message::Record(record) => batch.push(record),
                Message::Flush(done) => {
                    flushed.push(done);
                    break;
                }
            }
            if batch.len() >= most {
                break;
            }
            next = tokio::select! {
                biased;
                message = messages.recv() => message,
                () = &mut time => None,
            };
        }
        (batch, flushed)
    }

    async fn send(&mut self, batch: &[Arc<Record>]) {
        let tried: Vec<(usize, Tried)> = match self.destination.kind {
            DestinationKind::Otlp(format) => {
                vec![(batch.len(), self.insist(otlp::body(batch, format)).await)]
            }
            DestinationKind::Webhook => {
                let requests = batch.iter().map(|record| self.insist(webhook::body(record)));
                join_all(requests).await.into_iter().map(|tried| (1, tried)).collect()
            }
        };
        for (records, tried) in tried {
            let counter = if tried == Tried::Taken { &self.tally.sent } else { &self.tally.failed };
            counter.fetch_add(records as u64, Ordering::Relaxed);
            self.note(tried == Tried::Taken);
        }
    }

    fn note(&mut self, is_well: bool) {
        let destination = self.destination.name.as_str();
        match (std::mem::replace(&mut self.is_well, is_well), is_well) {
            (true, false) => tracing::warn!(destination, "a broadcast destination takes no records"),
            (false, true) => tracing::info!(destination, "a broadcast destination takes records again"),
            _ => {}
        }
    }

    /// Tries until the body is taken, refused, or tried often enough.
    async fn insist(&self, body: Vec<u8>) -> Tried {
        let body = bytes::Bytes::from(body);
        let mut pauses = PAUSES.iter();
        loop {
            let tried = self.try_once(body.clone()).await;
            match pauses.next().filter(|_| tried == Tried::Unavailable) {
                Some(pause) => sleep(*pause).await,
                None => return tried,
            }
        }
    }

    async fn try_once(&self, body: bytes::Bytes) -> Tried {
        let Destination { name, kind, origin, path, key, headers } = &self.destination;
        let credential: Option<Credential> = match key {
            None => None,
            Some(key) => match operators(&self.store, &key.key, &key.placement, name).await {
                Ok(credential) => Some(credential),
                Err(error) => {
                    tracing::error!(destination = name, error, "no credential for a broadcast destination");
                    return Tried::Unavailable;
                }
            },
        };
        let mut headers = headers.clone();
        if let DestinationKind::Otlp(format) = kind {
            headers.push((CONTENT_TYPE, format.content_type()));
        }
        let outgoing = Outgoing {
            origin,
            path,
            headers,
            body,
            streamed: false,
            credential: credential.as_ref(),
            limits: LIMITS,
        };
        let mut reply = match self.egress.send(outgoing).await {
            Ok(reply) => reply,
            Err(error) => {
                tracing::debug!(destination = name, %error, "a broadcast destination cannot be reached");
                return Tried::Unavailable;
            }
        };
        let status = reply.status.as_u16();
        // Read to its end, so that the connection can be used again.
        while let Ok(Some(_)) = reply.body.chunk().await {}
        match status {
            200..=299 => Tried::Taken,
            408 | 429 | 500..=599 => Tried::Unavailable,
            _ => {
                tracing::debug!(destination = name, status, "a broadcast destination refuses a record");
                Tried::Refused
            }
        }
    }
}
