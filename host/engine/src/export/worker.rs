//! Sends the records of one destination, independently of any request.

use super::queue::{ExportQueue, Message, QueuedRecord};
use super::record::ExportRecord;
use super::{Destination, DestinationKind, OtlpFormat, Spans, otlp, webhook};
use crate::authentication::OperatorKey;
use crate::memory::meters::{ExportTally, Meters, ReleaseCounts, ReleasedFor};
use bytes::{Bytes, BytesMut};
use cofferdam_egress::{Credential, Egress, ExchangeLimits, Outgoing, Placement};
use cofferdam_store::{Actor, Purpose, ReleaseRequest, ReleaseScope, Store};
use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// The most spans in one request to a collector.
const SPANS_MAX: usize = 256;
/// The most requests to a collector that gets their steps. Each has up to 257 spans.
const TRACES_MAX: usize = 16;
/// The most bytes of one request to a collector that has several records. Receivers take 4 MiB and more.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The most webhook requests at once.
const HOOKS_MAX: usize = 8;
/// How long the first span of a batch waits for further ones.
const LINGER: Duration = Duration::from_millis(500);
/// The waits before the second and the third try. After the last try the records are given up.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// For one try. Only the status of the answer and what a collector rejected are used, so the body may be short.
const LIMITS: ExchangeLimits =
    ExchangeLimits { head: Duration::from_secs(10), idle: Duration::from_secs(5), body_bytes_max: 64 << 10 };

/// How long the rest of an answer may take, all in all.
const REST_MAX: Duration = Duration::from_secs(2);

/// The worker of one destination.
pub(super) struct Worker {
    destination: Destination,
    egress: Egress,
    store: Store,
    tally: Arc<ExportTally>,
    releases: Arc<ReleaseCounts>,
    /// Whether the last try succeeded. Only changes are logged.
    is_well: bool,
    /// Whether the collector rejected no span of the last batch that it accepted.
    is_whole: bool,
    /// Whether no more records come, because the configuration was replaced.
    is_former: bool,
}

/// The result of one try.
enum Tried {
    /// With the beginning of the answer.
    Taken(Bytes),
    /// May succeed later.
    Unavailable,
    /// Is too large, so that parts of it may succeed.
    TooLarge,
    /// Will fail again.
    Refused,
}

impl Worker {
    pub(super) fn new(
        destination: Destination,
        egress: Egress,
        store: Store,
        queue: &ExportQueue,
        meters: &Meters,
    ) -> Self {
        let (tally, releases) = (Arc::clone(&queue.tally), Arc::clone(&meters.releases));
        Self { destination, egress, store, tally, releases, is_well: true, is_whole: true, is_former: false }
    }

    /// Sends records until the last sender is dropped.
    pub(super) async fn run(mut self, mut messages: Receiver<Message>) {
        while let Some(first) = messages.recv().await {
            let (batch, flushed) = self.gather(first, &mut messages).await;
            self.is_former = messages.is_closed();
            if !batch.is_empty() {
                self.send(&batch).await;
            }
            for done in flushed {
                // The receiver may have timed out.
                done.send(()).unwrap_or_default();
            }
        }
    }

    /// The records to send together, and the flush requests to answer after that.
    async fn gather(
        &self,
        first: Message,
        messages: &mut Receiver<Message>,
    ) -> (Vec<QueuedRecord>, Vec<oneshot::Sender<()>>) {
        let (most, linger) = match self.destination.kind {
            DestinationKind::Webhook => (HOOKS_MAX, Duration::ZERO),
            DestinationKind::Otlp(_) if self.destination.spans == Spans::Steps => (TRACES_MAX, LINGER),
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

    async fn send(&mut self, batch: &[QueuedRecord]) {
        let records: Vec<Arc<ExportRecord>> = batch.iter().map(|queued| Arc::clone(&queued.record)).collect();
        match self.destination.kind {
            DestinationKind::Otlp(format) => self.send_spans(&records, format).await,
            DestinationKind::Webhook => {
                let requests = records.iter().map(|record| self.insist(webhook::body(record)));
                for tried in join_all(requests).await {
                    let failed = u64::from(!matches!(tried, Tried::Taken(_)));
                    self.count(1 - failed, failed);
                    self.note(failed == 0);
                }
            }
        }
    }

    /// Sends the spans of records together, and in halves where they are too large for one request.
    async fn send_spans(&mut self, records: &[Arc<ExportRecord>], format: OtlpFormat) {
        let mut parts = vec![records];
        while let Some(part) = parts.pop() {
            let (body, spans) = otlp::body(part, format, self.destination.spans);
            let is_one = part.len() <= 1;
            let is_too_large = body.len() > BODY_BYTES_MAX && !is_one;
            let tried = if is_too_large { Tried::TooLarge } else { self.insist(body).await };
            let count = part.len() as u64;
            match tried {
                Tried::TooLarge if !is_one => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Tried::Taken(answer) => {
                    let rejected = otlp::rejected(&answer, format);
                    self.note_rejected(rejected.as_ref());
                    // The collector counts spans. Each record is assumed to have the same number of them.
                    let rejected = rejected.map_or(0, |it| it.spans).saturating_mul(count);
                    let failed = rejected.div_ceil(spans.max(1)).min(count);
                    self.count(count - failed, failed);
                    self.note(true);
                }
                _ => {
                    self.count(0, count);
                    self.note(false);
                }
            }
        }
    }

    fn count(&self, sent: u64, failed: u64) {
        self.tally.sent.fetch_add(sent, Ordering::Relaxed);
        self.tally.failed.fetch_add(failed, Ordering::Relaxed);
    }

    /// Logs that a collector takes only a part of the spans, and that it takes all again.
    fn note_rejected(&mut self, rejected: Option<&otlp::Rejected>) {
        let destination = self.destination.name.as_str();
        match (std::mem::replace(&mut self.is_whole, rejected.is_none()), rejected) {
            (true, Some(otlp::Rejected { spans, message })) => {
                tracing::warn!(
                    destination,
                    spans,
                    message,
                    "a broadcast destination takes a part of the spans"
                );
            }
            (false, None) => tracing::info!(destination, "a broadcast destination takes all spans again"),
            _ => {}
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

    /// Tries until the body is accepted or refused, or all tries are used up. Records of a configuration that was replaced
    /// are tried once, so that they do not wait for long beside those of the new one.
    async fn insist(&self, body: Vec<u8>) -> Tried {
        #[cfg(debug_assertions)]
        cofferdam_store::canaries::search("an exported record", &body);
        let body = Bytes::from(body);
        let mut pauses = PAUSES.iter();
        loop {
            match (self.try_once(body.clone()).await, pauses.next()) {
                (Tried::Unavailable, Some(pause)) if !self.is_former => sleep(*pause).await,
                (tried, _) => return tried,
            }
        }
    }

    async fn try_once(&self, body: Bytes) -> Tried {
        let Destination { name, kind, origin, path, key, headers, .. } = &self.destination;
        // Released for each try, so that a replaced secret is used at once.
        let credential: Option<Credential> = match key {
            None => None,
            Some(key) => match self.credential(&key.key, &key.placement).await {
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
        // Read the body to its end, so that the connection can be used again. One that is slow is closed.
        let mut answer = BytesMut::new();
        let rest = async {
            while let Ok(Some(chunk)) = reply.body.chunk().await {
                answer.extend_from_slice(&chunk);
            }
        };
        let (Ok(()) | Err(_)) = timeout(REST_MAX, rest).await;
        match status {
            200..=299 => Tried::Taken(answer.freeze()),
            413 => Tried::TooLarge,
            408 | 429 | 500..=599 => Tried::Unavailable,
            _ => {
                tracing::debug!(destination = name, status, "a broadcast destination refuses a record");
                Tried::Refused
            }
        }
    }

    /// The operator's credential for the destination.
    ///
    /// # Errors
    /// A text for the operator's log, without anything of the value.
    async fn credential(&self, key: &OperatorKey, placement: &Placement) -> Result<Credential, String> {
        let secret = match key {
            OperatorKey::Fixed(credential) => return Ok(credential.clone()),
            OperatorKey::Vault(secret) => secret.clone(),
        };
        let used_by = format!("broadcast {}", self.destination.name);
        let purpose = Purpose { used_by, request_id: String::new() };
        let request = ReleaseRequest { actor: Actor::System, scope: ReleaseScope::Operator, secret, purpose };
        let release = self.store.release(request).await;
        self.releases.decided(ReleasedFor::Broadcast, &release);
        let release = release.map_err(|error| error.to_string())?;
        Credential::new(placement, release.expose()).map_err(|error| error.to_string())
    }
}
