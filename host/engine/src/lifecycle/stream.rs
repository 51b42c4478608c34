//! A streamed answer. Polling it runs the request: there is no task behind it, so a client that
//! reads slowly slows the provider down, and dropping the stream drops guest and upstream request,
//! unless the answer is read on for its usage.

use crate::lifecycle::departure::{AttendedWork, ClientDeparture};
use crate::refusal::Refusal;
use bytes::Bytes;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Chunks of SSE text, each one or more whole events.
pub struct EventStream {
    first: Option<Bytes>,
    chunks: Receiver<Bytes>,
    work: Option<AttendedWork<Result<(), Refusal>>>,
}

impl EventStream {
    /// Runs `work` until it has sent its first chunk, or has ended without one.
    ///
    /// # Errors
    /// The error of `work`, which must not fail after it has sent a chunk.
    pub(crate) async fn start<F>(
        departure: ClientDeparture,
        work: impl FnOnce(Sender<Bytes>) -> F,
    ) -> Result<Self, Refusal>
    where
        F: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        // One chunk may wait for the client while the next is made.
        let (sender, chunks) = channel(1);
        let mut stream = Self { first: None, chunks, work: Some(AttendedWork::new(departure, work(sender))) };
        stream.first = poll_fn(|context| stream.poll_work(context)).await?;
        Ok(stream)
    }

    /// The next chunk; `None` when the stream is complete.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        // After the head is sent, an error can be reported only as an event, which the work has
        // written itself.
        self.poll_work(context).map(|chunk| chunk.unwrap_or_default())
    }

    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Refusal>> {
        if let Some(work) = &mut self.work
            && let Poll::Ready(result) = Pin::new(work).poll(context)
        {
            self.work = None;
            result?;
        }
        self.chunks.poll_recv(context).map(Ok)
    }
}
