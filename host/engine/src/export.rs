//! Request export: one record for each finished request, sent by webhook or as an OpenTelemetry
//! span.
//!
//! A record holds counts, names, ids, the cost and the client's `trace`, never content and never a
//! secret. It is made together with the usage row and put into a bounded queue for each
//! destination. Each destination has a worker of its own, so no request waits for one. A
//! destination that does not answer loses records, which is counted, and has no other effect.
//!
//! The workers of a configuration run on one thread of their own, because making the bodies of large batches would delay
//! the thread that accepts connections.

mod otlp;
mod queue;
mod record;
mod trace_parent;
mod webhook;
mod worker;

pub(crate) use record::About;
pub use record::PendingExport;
pub use trace_parent::TraceParent;

use crate::authentication::OperatorKey;
use crate::memory::meters::Meters;
use cofferdam_egress::{Egress, Origin};
use cofferdam_store::{Clock, Store};
use futures_util::future::join_all;
use http::header::{HeaderName, HeaderValue};
use queue::ExportQueue;
use record::ExportRecord;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use worker::Worker;

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

/// Takes records for all destinations. Clones share the queues. When the last clone is dropped, the
/// workers send what is queued and end.
#[derive(Clone)]
pub struct Broadcaster {
    queues: Arc<[ExportQueue]>,
    /// Closed when the workers have ended.
    ended: watch::Receiver<()>,
    wants_steps: bool,
}

/// A broadcaster whose configuration was replaced. Its workers may still have records to send.
pub struct FormerBroadcaster {
    queues: Weak<[ExportQueue]>,
    ended: watch::Receiver<()>,
}

impl Broadcaster {
    /// Starts a worker for each destination, on a thread of their own.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub fn start(
        destinations: Vec<Destination>,
        egress: &Egress,
        store: &Store,
        meters: &Meters,
    ) -> io::Result<Self> {
        let wants_steps = destinations.iter().any(|it| it.spans == Spans::Steps);
        let (ends, ended) = watch::channel(());
        let (mut queues, mut workers) = (Vec::new(), Vec::new());
        for destination in destinations {
            let (queue, messages) = ExportQueue::new(meters.destination(&destination.name));
            let worker = Worker::new(destination, egress.clone(), store.clone(), &queue, meters);
            workers.push(worker.run(messages));
            queues.push(queue);
        }
        if !workers.is_empty() {
            std::thread::Builder::new().name("broadcast".to_owned()).spawn(move || run(workers, ends))?;
        }
        Ok(Self { queues: queues.into(), ended, wants_steps })
    }

    /// Waits until all records taken so far are sent or given up, at most for `patience`.
    pub async fn flush(&self, patience: Duration) {
        tell_of_loss(tokio::time::timeout(patience, flush(&self.queues)).await.is_ok());
    }

    /// This broadcaster, when a new configuration has another one.
    #[must_use]
    pub fn former(&self) -> FormerBroadcaster {
        FormerBroadcaster { queues: Arc::downgrade(&self.queues), ended: self.ended.clone() }
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
        self.queues.iter().for_each(|queue| queue.push(&record));
    }
}

impl FormerBroadcaster {
    /// Whether its workers have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    /// As [`Broadcaster::flush`].
    pub async fn flush(mut self, patience: Duration) {
        let ended = async {
            match self.queues.upgrade() {
                Some(queues) => flush(&queues).await,
                // Its last request is over, and the workers end when all is sent or given up.
                None => while self.ended.changed().await.is_ok() {},
            }
        };
        tell_of_loss(tokio::time::timeout(patience, ended).await.is_ok());
    }
}

/// Runs workers to their end. One that panics ends alone.
fn run(workers: Vec<impl Future<Output = ()> + Send + 'static>, ends: watch::Sender<()>) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(async {
            let running: Vec<_> = workers.into_iter().map(tokio::spawn).collect();
            join_all(running).await;
        }),
        // The queues are closed then, and drop what they get.
        Err(error) => tracing::error!(%error, "records of finished requests cannot be sent"),
    }
    drop(ends);
}

async fn flush(queues: &[ExportQueue]) {
    join_all(queues.iter().map(ExportQueue::flush)).await;
}

fn tell_of_loss(is_sent: bool) {
    if !is_sent {
        tracing::warn!("records of finished requests could not be sent in time and are lost");
    }
}

#[cfg(test)]
mod tests;
