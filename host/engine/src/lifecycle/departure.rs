//! Requests whose clients have left.
//!
//! A request normally ends at once with its client, and the upstream request is cancelled. But
//! where an endpoint is priced and reasons, or gets input of unknown size, its usage would stay
//! unknown, because providers report it only at the end of an answer. There the answer is read on for
//! its usage, for a limited time and a limited number of requests at once.

use crate::in_place::boxed;
use crate::limits::allowance::{Allowance, Running};
use cofferdam_store::KeyId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tracing::Instrument as _;

/// How long an answer is read on.
pub(crate) const READING_TIME: Duration = Duration::from_secs(10);
/// Like [`READING_TIME`], where the input may be most of the cost and is not known here.
pub(crate) const LONG_READING_TIME: Duration = Duration::from_secs(60);
/// How many answers are read on at once.
const READS_MAX: u32 = 64;
/// How many of them may be of one key, so that one key does not take them all.
const READS_OF_KEY_MAX: u64 = 8;

/// The rest of a request, which continues without its client.
type DetachedWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The answers that are being read on.
pub(crate) struct DetachedReads {
    permits: Arc<Semaphore>,
    by_key: Running<KeyId>,
    is_over: watch::Sender<bool>,
}

impl Default for DetachedReads {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(READS_MAX as usize));
        Self { permits, by_key: Running::default(), is_over: watch::Sender::new(false) }
    }
}

impl DetachedReads {
    /// Continues `work` for a request of `key` until it ends or `time` is up. Where no permit is free, or
    /// the key has its share of them, it is dropped at once.
    fn read_on(&self, key: KeyId, mut work: DetachedWork, time: Duration) {
        let has_room = |own, _| if own < READS_OF_KEY_MAX { Ok(()) } else { Err(()) };
        let Ok(share) = self.by_key.enter(key, has_room) else { return };
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return };
        // While the process ends there may be no runtime any more.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut is_over = self.is_over.subscribe();
        let reading = async move {
            tokio::select! {
                biased;
                _ = is_over.wait_for(|is_over| *is_over) => {}
                () = &mut work => {}
                () = tokio::time::sleep(time) => {}
            }
            // Dropping the work writes the usage row, which must happen before the permit is
            // released.
            drop(work);
            drop((share, permit));
        };
        runtime.spawn(reading.in_current_span());
    }

    /// Ends all of them and waits for their usage rows. Later ones end at once. Each is charged
    /// what is known by then.
    pub(crate) async fn end(&self) {
        self.is_over.send_replace(true);
        // The semaphore is never closed.
        drop(self.permits.acquire_many(READS_MAX).await);
    }
}

/// The state of a request that decides what happens if its client leaves.
#[derive(Debug, Default)]
pub(crate) struct ClientPresence {
    /// For how many milliseconds the answer of the current endpoint is to be read on; 0: not.
    reading_ms: AtomicU64,
    /// Whether the current endpoint may have seen the request.
    is_sent: AtomicBool,
    has_left: AtomicBool,
    /// For how many microseconds the client of a stream did not ask for more.
    held_us: AtomicU64,
}

impl ClientPresence {
    /// Adds a time in which the client of a stream did not ask for more.
    pub(crate) fn hold(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.held_us.fetch_add(us, Ordering::Relaxed);
    }

    /// How long the client of a stream did not ask for more, in all.
    pub(crate) fn held(&self) -> Duration {
        Duration::from_micros(self.held_us.load(Ordering::Relaxed))
    }

    /// Called before an endpoint is asked, with how long its answer is to be read on. The request
    /// counts as unsent until [`Self::sent`] is set.
    pub(crate) fn asks(&self, reading: Option<Duration>) {
        self.is_sent.store(false, Ordering::Relaxed);
        let ms = reading.unwrap_or_default().as_millis();
        self.reading_ms.store(u64::try_from(ms).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Set when the endpoint may have seen the request.
    pub(crate) fn sent(&self) -> &AtomicBool {
        &self.is_sent
    }

    /// Whether the endpoint that was asked last may have seen the request.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Relaxed)
    }

    /// The endpoint's answer is complete or has failed, so there is nothing to read on for.
    pub(crate) fn has_answered(&self) {
        self.reading_ms.store(0, Ordering::Relaxed);
    }

    /// Whether the client has left and the answer is read on.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }
}

/// Decides what happens when the client of one request leaves.
#[derive(Clone)]
pub(crate) struct ClientDeparture {
    presence: Arc<ClientPresence>,
    detached_reads: Arc<DetachedReads>,
    key: KeyId,
    allowance: Allowance,
    span: tracing::Span,
}

impl ClientDeparture {
    /// For a request of `key` that uses this allowance.
    pub(crate) fn new(detached_reads: &Arc<DetachedReads>, key: KeyId, allowance: &Allowance) -> Self {
        let (detached_reads, allowance) = (Arc::clone(detached_reads), allowance.clone());
        Self { presence: Arc::default(), detached_reads, key, allowance, span: tracing::Span::current() }
    }

    pub(crate) fn presence(&self) -> Arc<ClientPresence> {
        Arc::clone(&self.presence)
    }

    /// Called when the client has left before `work` was done: reads the answer on, or drops the
    /// work.
    pub(crate) fn leave<T: 'static>(&self, work: Pin<Box<dyn Future<Output = T> + Send>>) {
        let ClientPresence { reading_ms, is_sent, has_left, .. } = &*self.presence;
        let reading = Duration::from_millis(reading_ms.load(Ordering::Relaxed));
        if reading.is_zero() || !is_sent.load(Ordering::Relaxed) {
            return;
        }
        has_left.store(true, Ordering::Relaxed);
        self.allowance.release_permit();
        let work = Box::pin(async move { drop(work.await) }.instrument(self.span.clone()));
        self.detached_reads.read_on(self.key, work, reading);
    }
}

/// Work whose result a client waits for. If this is dropped before the end, the client has left.
pub(crate) struct AttendedWork<T: 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    departure: ClientDeparture,
}

impl<T> AttendedWork<T> {
    pub(crate) fn new<F>(departure: ClientDeparture, work: impl FnOnce() -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        Self { work: Some(boxed(work)), departure }
    }
}

impl<T> Future for AttendedWork<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let output = work.as_mut().poll(context);
        if output.is_ready() {
            self.work = None;
        }
        output
    }
}

impl<T: 'static> Drop for AttendedWork<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.departure.leave(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Counts the values that are dropped.
    struct Row(Arc<AtomicUsize>);

    impl Drop for Row {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn departure(detached_reads: &Arc<DetachedReads>) -> ClientDeparture {
        departure_of("abcdefghijkl", detached_reads)
    }

    fn departure_of(key: &str, detached_reads: &Arc<DetachedReads>) -> ClientDeparture {
        let departure = ClientDeparture::new(detached_reads, key.parse().unwrap(), &Allowance::default());
        departure.presence.asks(Some(READING_TIME));
        departure.presence.sent().store(true, Ordering::Relaxed);
        departure
    }

    fn waiting(departure: ClientDeparture, rows: &Arc<AtomicUsize>) -> AttendedWork<()> {
        let row = Row(Arc::clone(rows));
        AttendedWork::new(departure, || async move {
            std::future::pending::<()>().await;
            drop(row);
        })
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_read_on_for_ten_seconds() {
        let (detached_reads, rows) = (Arc::new(DetachedReads::default()), Arc::new(AtomicUsize::new(0)));
        let departure = departure(&detached_reads);
        let presence = departure.presence();
        drop(waiting(departure, &rows));
        assert!(presence.has_left());
        tokio::time::sleep(Duration::from_millis(9_990)).await;
        assert_eq!(rows.load(Ordering::Relaxed), 0);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(rows.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn at_most_sixty_four_answers_are_read_on_and_all_end_with_the_host() {
        let (detached_reads, rows) = (Arc::new(DetachedReads::default()), Arc::new(AtomicUsize::new(0)));
        for number in 0..70 {
            let key = format!("abcdefghijk{}", number % 9);
            drop(waiting(departure_of(&key, &detached_reads), &rows));
        }
        assert_eq!(rows.load(Ordering::Relaxed), 6, "there is no permit for these");
        detached_reads.end().await;
        assert_eq!(rows.load(Ordering::Relaxed), 70);
        drop(waiting(departure(&detached_reads), &rows));
        detached_reads.end().await;
        assert_eq!(rows.load(Ordering::Relaxed), 71);
    }

    #[tokio::test(start_paused = true)]
    async fn one_key_leaves_answers_to_read_on_to_others() {
        let (detached_reads, rows) = (Arc::new(DetachedReads::default()), Arc::new(AtomicUsize::new(0)));
        for _ in 0..10 {
            drop(waiting(departure(&detached_reads), &rows));
        }
        assert_eq!(rows.load(Ordering::Relaxed), 2, "the key has its share");
        drop(waiting(departure_of("lkjihgfedcba", &detached_reads), &rows));
        assert_eq!(rows.load(Ordering::Relaxed), 2);
        tokio::time::sleep(READING_TIME + Duration::from_millis(10)).await;
        assert_eq!(rows.load(Ordering::Relaxed), 11);
        drop(waiting(departure(&detached_reads), &rows));
        assert_eq!(rows.load(Ordering::Relaxed), 11, "the share is free again");
    }

    #[tokio::test]
    async fn requests_that_are_unsent_or_not_worth_reading_end_at_once() {
        let (detached_reads, rows) = (Arc::new(DetachedReads::default()), Arc::new(AtomicUsize::new(0)));
        let unsent = departure(&detached_reads);
        unsent.presence.sent().store(false, Ordering::Relaxed);
        drop(waiting(unsent, &rows));
        let cheap = departure(&detached_reads);
        cheap.presence.has_answered();
        drop(waiting(cheap.clone(), &rows));
        assert_eq!(rows.load(Ordering::Relaxed), 2);
        assert!(!cheap.presence.has_left());
        assert_eq!(AttendedWork::new(departure(&detached_reads), || async { 5 }).await, 5);
    }
}
