//! A streamed answer. Polling it runs the request: there is no task behind it, so a client that
//! reads slowly slows the provider down, and dropping the stream drops guest and upstream request,
//! unless the answer is read on for its usage.

use crate::lifecycle::departure::{AttendedWork, ClientDeparture, ClientPresence};
use crate::refusal::Refusal;
use bytes::Bytes;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

/// Chunks of SSE text, each one or more whole events.
pub struct EventStream {
    first: Option<Bytes>,
    chunks: Receiver<Bytes>,
    work: Option<AttendedWork<Result<(), Refusal>>>,
    presence: Arc<ClientPresence>,
    /// When the last chunk was given out. Until the next poll the connection has no room for more.
    given_at: Option<Instant>,
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
        let presence = departure.presence();
        let work = Some(AttendedWork::new(departure, || work(sender)));
        let mut stream = Self { first: None, chunks, work, presence, given_at: None };
        stream.first = poll_fn(|context| stream.poll_work(context)).await?;
        Ok(stream)
    }

    /// The next chunk; `None` when the stream is complete.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            self.given_at = Some(Instant::now());
            return Poll::Ready(Some(first));
        }
        if let Some(given_at) = self.given_at.take() {
            self.presence.hold(given_at.elapsed());
        }
        // After the head is sent, an error can be reported only as an event, which the work has
        // written itself.
        let chunk = self.poll_work(context).map(|chunk| chunk.unwrap_or_default());
        if matches!(chunk, Poll::Ready(Some(_))) {
            self.given_at = Some(Instant::now());
        }
        chunk
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::allowance::Allowance;
    use std::time::Duration;

    async fn three_words(client: Sender<Bytes>) -> Result<(), Refusal> {
        for _ in 0..3 {
            client.send(Bytes::from_static(b"word")).await.unwrap_or_default();
            // The provider is silent. That is no time of the client.
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_client_asks_for_nothing_is_counted() {
        let departure =
            ClientDeparture::new(&Arc::default(), "abcdefghijkl".parse().unwrap(), &Allowance::default());
        let presence = departure.presence();
        let mut stream = EventStream::start(departure, three_words).await.unwrap();
        let mut chunks = 0;
        while poll_fn(|context| stream.poll_next(context)).await.is_some() {
            chunks += 1;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(chunks, 3);
        assert_eq!(presence.held(), Duration::from_secs(6));
    }
}
