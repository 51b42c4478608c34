//! Waiting, with a limit on every wait, and the signs of life a streaming
//! client gets while nothing else can be said.

use crate::lifecycle::departure::Attendance;
use crate::lifecycle::shutdown::Ending;
use crate::refusal::Refusal;
use bytes::Bytes;
use cofferdam_runtime::wire::ErrorKind;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep_until};

/// How long a stream stays silent before a sign of life.
const SILENCE: Duration = Duration::from_secs(15);
/// A comment line without a blank line after it: some clients take a comment
/// followed by a blank line for an empty event.
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n");

/// How long the parts of a request may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From sending a request upstream to the first event of a stream.
    pub first_event: Duration,
    /// Between two reads after that.
    pub idle: Duration,
    /// The whole request, all attempts included.
    pub total: Duration,
}

/// A wait that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// This step's own limit.
    Step,
    /// The limit of the whole request.
    Total,
}

/// The clock of one request and, for a stream, the way to its client.
pub(crate) struct Pace {
    client: Option<Sender<Bytes>>,
    is_held: bool,
    silence: Duration,
    spoke: Instant,
    end: Instant,
    /// The end of the host, for a request of a client.
    ending: Option<Ending>,
    is_cut_short: bool,
    has_spoken: bool,
    dispatched: Option<Instant>,
    held: Duration,
    attendance: Arc<Attendance>,
}

/// What a client is told whose request ends with the host.
pub(crate) const STOPPING: &str = "This host is stopping. Please try again.";

/// The client is gone; nobody reads what the request still produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientGone;

impl Pace {
    pub(crate) fn new(client: Option<Sender<Bytes>>, total: Duration) -> Self {
        let now = Instant::now();
        Self {
            client,
            is_held: false,
            silence: SILENCE,
            spoke: now,
            end: now + total,
            ending: None,
            is_cut_short: false,
            has_spoken: false,
            dispatched: None,
            held: Duration::ZERO,
            attendance: Arc::default(),
        }
    }

    /// Has this tell whether the client has left.
    pub(crate) fn attended(self, attendance: Arc<Attendance>) -> Self {
        Self { attendance, ..self }
    }

    /// What is known for the case that the client leaves.
    pub(crate) fn attendance(&self) -> &Arc<Attendance> {
        &self.attendance
    }

    /// Whether the client has left and the answer is read on for its usage alone.
    pub(crate) fn has_left(&self) -> bool {
        self.attendance.has_left()
    }

    /// Has the request end with the host.
    pub(crate) fn ending(self, ending: &Ending) -> Self {
        Self { ending: Some(ending.clone()), ..self }
    }

    /// Whether the request's time is up because the host ends.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// A refusal as the client is told it: when the host ends, that is the reason.
    pub(crate) fn told(&self, refusal: Refusal) -> Refusal {
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

    /// Whether anything went to the client, so that its status is decided.
    pub(crate) fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    /// Whether the request's time is up.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// How much time the request has left.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The first endpoint is being asked.
    pub(crate) fn note_dispatch(&mut self) {
        self.dispatched.get_or_insert_with(Instant::now);
    }

    /// How long ago that was.
    pub(crate) fn since_dispatch(&self) -> Option<Duration> {
        self.dispatched.map(|dispatched| dispatched.elapsed())
    }

    /// How long the client has kept this request waiting so far.
    pub(crate) fn held(&self) -> Duration {
        self.held
    }

    /// The same for a stream whose answer is held back until it is complete, if `is_held`.
    pub(crate) fn held_back(self, is_held: bool) -> Self {
        Self { is_held, ..self }
    }

    /// Whether the client of this request gets the answer while it is made.
    pub(crate) fn is_streamed(&self) -> bool {
        self.client.is_some() && !self.is_held
    }

    /// Whether this is a stream whose answer is held back until it is complete.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Sends bytes to a streaming client, waiting until it takes them.
    pub(crate) async fn say(&mut self, bytes: Vec<u8>) -> Result<(), ClientGone> {
        match &self.client {
            Some(client) if !bytes.is_empty() => {
                self.has_spoken = true;
                let began = Instant::now();
                client.send(Bytes::from(bytes)).await.map_err(|_| ClientGone)?;
                self.spoke = Instant::now();
                self.held += self.spoke - began;
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for `work`, at most until `limit` or the end of the request,
    /// keeping a streaming client alive meanwhile.
    pub(crate) async fn during<F: Future>(&mut self, work: F, limit: Duration) -> Result<F::Output, Late> {
        let step = Instant::now() + limit;
        let mut work = pin!(work);
        loop {
            let alarm = if self.client.is_some() { self.spoke + self.silence } else { self.end };
            let until = alarm.min(step).min(self.end);
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
        // A client that has not taken the last chunk yet has something to read.
        if let Some(client) = &self.client
            && client.try_send(KEEP_ALIVE).is_ok()
        {
            self.has_spoken = true;
        }
    }
}

/// Waits for the end of the host.
async fn told(ending: &mut Option<Ending>) {
    match ending {
        Some(ending) => ending.told().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::shutdown::End;
    use tokio::sync::mpsc::channel;

    #[tokio::test]
    async fn a_silent_stream_gets_comments_until_the_step_is_over() {
        let (sender, mut client) = channel(8);
        let mut pace = Pace::new(Some(sender), Duration::from_secs(600));
        pace.silence = Duration::from_millis(1);
        let late = pace.during(std::future::pending::<()>(), Duration::from_millis(50)).await;
        assert_eq!(late, Err(Late::Step));
        assert!(pace.has_spoken());
        assert_eq!(client.recv().await.unwrap(), ": keep-alive\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_kept_alive_while_it_waits_to_try_again() {
        let (sender, mut client) = channel(8);
        let mut pace = Pace::new(Some(sender), Duration::from_secs(600));
        let left = pace.left();
        pace.during(tokio::time::sleep(Duration::from_secs(40)), left).await.unwrap();
        assert_eq!(pace.left(), Duration::from_secs(560));
        drop(pace);
        for _ in 0..2 {
            assert_eq!(client.recv().await.unwrap(), ": keep-alive\n");
        }
        assert_eq!(client.recv().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_held_back_is_kept_alive() {
        let (sender, mut client) = channel(8);
        let mut pace = Pace::new(Some(sender), Duration::from_secs(600)).held_back(true);
        assert!(pace.is_held() && !pace.is_streamed());
        let left = pace.left();
        pace.during(tokio::time::sleep(Duration::from_secs(20)), left).await.unwrap();
        assert!(pace.has_spoken());
        drop(pace);
        assert_eq!(client.recv().await.unwrap(), ": keep-alive\n");
        assert_eq!(client.recv().await, None);
    }

    #[tokio::test]
    async fn the_end_of_the_host_ends_every_wait_and_is_the_reason() {
        let (end, ending) = End::new();
        let mut pace = Pace::new(None, Duration::from_secs(600)).ending(&ending);
        assert_eq!(pace.told(Refusal::internal()).status, 500);
        let hour = Duration::from_secs(3600);
        assert_eq!(pace.during(async { end.tell() }, hour).await, Ok(()));
        assert!(!pace.is_over());
        assert_eq!(pace.during(std::future::pending::<()>(), hour).await, Err(Late::Total));
        assert!(pace.is_over() && pace.is_cut_short());
        let told = pace.told(Refusal::internal());
        assert_eq!((told.status, told.message.as_str(), told.retry_after_s), (503, STOPPING, Some(1)));
    }

    #[tokio::test]
    async fn the_end_of_the_request_ends_every_wait() {
        let mut pace = Pace::new(None, Duration::from_millis(5));
        assert_eq!(
            pace.during(std::future::pending::<()>(), Duration::from_secs(40)).await,
            Err(Late::Total)
        );
        assert!(!pace.has_spoken());
    }
}
