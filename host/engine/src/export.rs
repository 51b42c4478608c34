//! Request export: one record for each finished request, sent by webhook or as an OpenTelemetry
//! span.
//!
//! A record holds counts, names, ids, the cost and the client's `trace`, never content and never a
//! secret. It is made together with the usage row and put into a bounded queue for each
//! destination. Each destination has a worker of its own, so no request waits for one. A
//! destination that does not answer loses records, which is counted, and has no other effect.

mod otlp;
mod record;
mod trace_parent;
mod webhook;
mod worker;

pub(crate) use record::About;
pub use record::PendingExport;
pub use trace_parent::TraceParent;

use crate::authentication::OperatorKey;
use crate::memory::meters::{ExportTally, Meters};
use cofferdam_egress::{Egress, Origin};
use cofferdam_store::{Clock, Store};
use http::header::{HeaderName, HeaderValue};
use record::ExportRecord;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;
use worker::Worker;

/// Records that wait for one destination. Further ones are dropped.
const QUEUE_MAX: usize = 1024;

/// The format in which a destination gets records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationKind {
    /// One POST with a JSON object for each request.
    Webhook,
    /// OTLP over HTTP: spans in batches.
    Otlp(OtlpFormat),
}

/// The encoding of an OTLP request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtlpFormat {
    /// `application/json`.
    #[default]
    Json,
    /// `application/x-protobuf`, which every OTLP receiver takes.
    Protobuf,
}

impl OtlpFormat {
    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/x-protobuf",
        })
    }
}

/// What a collector gets of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spans {
    /// One span.
    #[default]
    Request,
    /// One span for the request, and one for each step below it.
    Steps,
}

/// Where records are sent. The operator grants exactly one origin.
pub struct Destination {
    /// Its name in the configuration and in metrics.
    pub name: String,
    /// The format of its records.
    pub kind: DestinationKind,
    /// What a collector gets of a request.
    pub spans: Spans,
    /// Scheme, host, port and the beginning of the path.
    pub origin: Origin,
    /// What is appended to the path of `origin`.
    pub path: String,
    /// The credential for this destination, if it needs one.
    pub key: Option<DestinationKey>,
    /// Further headers of every request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// A destination's credential.
pub struct DestinationKey {
    /// The header in which it is sent.
    pub placement: cofferdam_egress::Placement,
    /// A fixed value, or a secret of the operator's vault.
    pub key: OperatorKey,
}

enum Message {
    Record(Arc<ExportRecord>),
    /// Asks for an answer once all messages before it are sent or given up.
    Flush(oneshot::Sender<()>),
}

struct ExportQueue {
    sender: Sender<Message>,
    tally: Arc<ExportTally>,
}

/// Takes records for all destinations. Clones share the queues. When the last clone is dropped, the
/// workers send what is queued and end.
#[derive(Clone, Default)]
pub struct Broadcaster {
    queues: Arc<[ExportQueue]>,
    wants_steps: bool,
}

impl Broadcaster {
    /// Starts a worker for each destination, on the current tokio runtime.
    #[must_use]
    pub fn start(destinations: Vec<Destination>, egress: &Egress, store: &Store, meters: &Meters) -> Self {
        let wants_steps = destinations.iter().any(|it| it.spans == Spans::Steps);
        let queues = destinations.into_iter().map(|destination| {
            let (sender, messages) = channel(QUEUE_MAX);
            let tally = meters.destination(&destination.name);
            let queue = ExportQueue { sender, tally: Arc::clone(&tally) };
            let worker = Worker::new(destination, egress.clone(), store.clone(), tally);
            tokio::spawn(worker.run(messages));
            queue
        });
        Self { queues: queues.collect(), wants_steps }
    }

    /// Waits until all records taken so far are sent or given up, at most for `patience`.
    pub async fn flush(&self, patience: Duration) {
        let flushed = self.queues.iter().map(|queue| async {
            let (done, is_done) = oneshot::channel();
            // A worker that has ended has nothing left to send.
            if queue.sender.send(Message::Flush(done)).await.is_ok() {
                is_done.await.unwrap_or_default();
            }
        });
        if tokio::time::timeout(patience, futures_util::future::join_all(flushed)).await.is_err() {
            tracing::warn!("records of finished requests could not be sent in time and are lost");
        }
    }

    /// Whether a destination gets the steps of requests.
    pub(crate) fn wants_steps(&self) -> bool {
        self.wants_steps
    }

    /// Begins the record of a request. `None` when there are no destinations.
    pub(crate) fn begin(&self, clock: &Clock, about: impl FnOnce() -> About) -> Option<Box<PendingExport>> {
        (!self.queues.is_empty()).then(|| Box::new(PendingExport::new(self.clone(), clock.clone(), about())))
    }

    fn send(&self, record: ExportRecord) {
        let record = Arc::new(record);
        for queue in self.queues.iter() {
            if queue.sender.try_send(Message::Record(Arc::clone(&record))).is_err() {
                queue.tally.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
