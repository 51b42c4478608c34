//! The deadline of a request. Waits for providers, guests and tools go through it and are limited by
//! it, and a streaming client gets keep-alive comments during long waits. The wait for a client to take
//! bytes is not limited by it: the server ends the answer of a client that takes nothing for a minute.

use crate::lifecycle::departure::ClientPresence;
use crate::lifecycle::shutdown::Shutdown;
use crate::refusal::Refusal;
use crate::timeline::Timeline;
use bytes::Bytes;
use cofferdam_runtime::wire::ErrorKind;
use futures_util::future::poll_immediate;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep_until};

/// How long a stream may be silent before a keep-alive comment.
const SILENCE: Duration = Duration::from_secs(15);
/// A comment line without a blank line after it: some clients take a comment followed by a blank
/// line for an empty event.
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n");

/// The time limits of a request.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From sending a request upstream to the first event of a stream.
    pub first_event: Duration,
    /// Between two reads after that.
    pub idle: Duration,
    /// The whole request, all attempts included.
    pub total: Duration,
}

/// The error of a wait that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The limit of this step.
    Step,
    /// The deadline of the whole request.
    Total,
}

/// The deadline of one request and, for a stream, the channel to its client.
pub(crate) struct Deadline {
    client: Option<Sender<Bytes>>,
    is_held: bool,
    silence: Duration,
    spoke: Instant,
    end: Instant,
    /// The end of the host. `None` for requests that do not end with it.
    ending: Option<Shutdown>,
    is_cut_short: bool,
    has_spoken: bool,
    dispatched: Option<Instant>,
    presence: Arc<ClientPresence>,
    /// Where the bytes that the client is sent are counted.
    timeline: Timeline,
}

/// The message of a request that ends with the host.
pub(crate) const STOPPING: &str = "This host is stopping. Please try again.";

/// The client is gone, so the request need not produce anything more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientGone;

impl Deadline {
    /// For a request whose client waits for one body.
    pub(crate) fn new(total: Duration) -> Self {
        let now = Instant::now();
        Self {
            client: None,
            is_held: false,
            silence: SILENCE,
            spoke: now,
            end: now + total,
            ending: None,
            is_cut_short: false,
            has_spoken: false,
            dispatched: None,
            presence: Arc::default(),
            timeline: Timeline::default(),
        }
    }

    /// Sets where the bytes that the client is sent are counted.
    pub(crate) fn counting(self, timeline: Timeline) -> Self {
        Self { timeline, ..self }
    }

    /// Sets the state that records whether the client has left.
    pub(crate) fn attended(self, presence: Arc<ClientPresence>) -> Self {
        Self { presence, ..self }
    }

    /// The state that decides what happens if the client leaves.
    pub(crate) fn presence(&self) -> &Arc<ClientPresence> {
        &self.presence
    }

    /// Whether the client has left and the answer is read on for its usage only.
    pub(crate) fn has_left(&self) -> bool {
        self.presence.has_left()
    }

    /// Makes the request end with the host.
    pub(crate) fn ending(self, ending: &Shutdown) -> Self {
        Self { ending: Some(ending.clone()), ..self }
    }

    /// Whether the request ended because the host ends.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// The refusal that the client gets. If the host ends, that is the reason it gives.
    pub(crate) fn final_refusal(&self, refusal: Refusal) -> Refusal {
        if !self.is_cut_short {
            return refusal;
        }
        let Refusal { service_metadata, .. } = refusal;
        Refusal {
            service_metadata,
            retry_after_s: Some(1),
            ..Refusal::new(503, ErrorKind::ProviderOverloaded, STOPPING)
        }
    }

    /// Whether anything was sent to the client, so that the status can no longer change.
    pub(crate) fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// The time until the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Called when an endpoint is asked. The first call counts.
    pub(crate) fn note_dispatch(&mut self) {
        self.dispatched.get_or_insert_with(Instant::now);
    }

    /// The time since the first endpoint was asked.
    pub(crate) fn since_dispatch(&self) -> Option<Duration> {
        self.dispatched.map(|dispatched| dispatched.elapsed())
    }

    /// How long the request has waited for its client so far.
    pub(crate) fn held(&self) -> Duration {
        self.presence.held()
    }

    /// Makes the answer a stream to `client`. With `is_held` it is held back until it is complete.
    pub(crate) fn stream_to(&mut self, client: Sender<Bytes>, is_held: bool) {
        self.client = Some(client);
        self.is_held = is_held;
    }

    /// Whether the client gets the answer while it is made.
    pub(crate) fn is_streamed(&self) -> bool {
        self.client.is_some() && !self.is_held
    }

    /// Whether this is a stream whose answer is held back until it is complete.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Sends bytes to a streaming client and waits until it takes them.
    pub(crate) async fn send(&mut self, bytes: Vec<u8>) -> Result<(), ClientGone> {
        match &self.client {
            Some(client) if !bytes.is_empty() => {
                self.has_spoken = true;
                self.timeline.responded(bytes.len());
                client.send(Bytes::from(bytes)).await.map_err(|_| ClientGone)?;
                self.spoke = Instant::now();
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for `work`, at most until `limit` or the deadline of the request. A streaming client
    /// gets keep-alive comments meanwhile.
    ///
    /// The caller pins `work`: an asynchronous function that pins its argument keeps it in memory twice.
    pub(crate) async fn during<T>(
        &mut self,
        mut work: impl Future<Output = T> + Unpin,
        limit: Duration,
    ) -> Result<T, Late> {
        // Much of what is waited for is there, and needs neither clock nor timer.
        if let Some(output) = poll_immediate(&mut work).await {
            return Ok(output);
        }
        let step = Instant::now() + limit;
        loop {
            let alarm = if self.client.is_some() { self.spoke + self.silence } else { self.end };
            let until = alarm.min(step).min(self.end);
            // `biased`: work that is ready takes precedence over the deadline.
            tokio::select! {
                biased;
                output = &mut work => return Ok(output),
                () = told(&mut self.ending) => {
                    self.end = Instant::now();
                    self.is_cut_short = true;
                    return Err(Late::Total);
                }
                () = sleep_until(until) => {}
            }
            if until == self.end {
                return Err(Late::Total);
            }
            if until == step {
                return Err(Late::Step);
            }
            self.keep_alive();
        }
    }

    fn keep_alive(&mut self) {
        self.spoke = Instant::now();
        // If the channel is full, the client has bytes to read and needs no comment.
        if let Some(client) = &self.client
            && client.try_send(KEEP_ALIVE).is_ok()
        {
            self.has_spoken = true;
        }
    }
}

/// Waits for the end of the host.
async fn told(ending: &mut Option<Shutdown>) {
    match ending {
        Some(ending) => ending.begun().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::shutdown::ShutdownSender;
    use std::pin::pin;
    use tokio::sync::mpsc::channel;

    fn streamed(client: Sender<Bytes>, is_held: bool) -> Deadline {
        let mut deadline = Deadline::new(Duration::from_secs(600));
        deadline.stream_to(client, is_held);
        deadline
    }

    #[tokio::test]
    async fn a_silent_stream_gets_comments_until_the_step_is_over() {
        let (sender, mut client) = channel(8);
        let mut deadline = streamed(sender, false);
        deadline.silence = Duration::from_millis(1);
        let late = deadline.during(std::future::pending::<()>(), Duration::from_millis(50)).await;
        assert_eq!(late, Err(Late::Step));
        assert!(deadline.has_spoken());
        assert_eq!(client.recv().await.unwrap(), ": keep-alive\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_kept_alive_while_it_waits_to_try_again() {
        let (sender, mut client) = channel(8);
        let mut deadline = streamed(sender, false);
        let left = deadline.left();
        deadline.during(pin!(tokio::time::sleep(Duration::from_secs(40))), left).await.unwrap();
        assert_eq!(deadline.left(), Duration::from_secs(560));
        drop(deadline);
        for _ in 0..2 {
            assert_eq!(client.recv().await.unwrap(), ": keep-alive\n");
        }
        assert_eq!(client.recv().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_held_back_is_kept_alive() {
        let (sender, mut client) = channel(8);
        let mut deadline = streamed(sender, true);
        assert!(deadline.is_held() && !deadline.is_streamed());
        let left = deadline.left();
        deadline.during(pin!(tokio::time::sleep(Duration::from_secs(20))), left).await.unwrap();
        assert!(deadline.has_spoken());
        drop(deadline);
        assert_eq!(client.recv().await.unwrap(), ": keep-alive\n");
        assert_eq!(client.recv().await, None);
    }

    #[tokio::test]
    async fn the_end_of_the_host_ends_every_wait_and_is_named_as_the_reason() {
        let (end, ending) = ShutdownSender::new();
        let mut deadline = Deadline::new(Duration::from_secs(600)).ending(&ending);
        assert_eq!(deadline.final_refusal(Refusal::internal()).status, 500);
        let hour = Duration::from_secs(3600);
        assert_eq!(deadline.during(pin!(async { end.begin() }), hour).await, Ok(()));
        assert!(!deadline.is_over());
        assert_eq!(deadline.during(std::future::pending::<()>(), hour).await, Err(Late::Total));
        assert!(deadline.is_over() && deadline.is_cut_short());
        let told = deadline.final_refusal(Refusal::internal());
        assert_eq!((told.status, told.message.as_str(), told.retry_after_s), (503, STOPPING, Some(1)));
    }

    #[tokio::test]
    async fn the_deadline_of_the_request_ends_every_wait() {
        let mut deadline = Deadline::new(Duration::from_millis(5));
        assert_eq!(
            deadline.during(std::future::pending::<()>(), Duration::from_secs(40)).await,
            Err(Late::Total)
        );
        assert!(!deadline.has_spoken());
    }
}
