//! Reading one provider's answer: bytes from the network become frames, frames
//! become events in the provider's guest.

use crate::lifecycle::deadline::{Late, Pace};
use crate::upstream::framing::Framer;
use cofferdam_egress::{Error as EgressError, ReplyBody};
use cofferdam_runtime::manifest::Framing;
use cofferdam_runtime::wire::{ErrorKind, Event, Failure, FinishReason, Frame, ResponseHead};
use cofferdam_runtime::{CallError, ProviderInstance};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The longest whole answer taken from a provider, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long the rest of an answer may take after its last event, so that the
/// connection can be used again.
const DRAIN: Duration = Duration::from_millis(20);

/// How much of a burst is taken at once, in bytes.
const GATHER_BYTES_MAX: usize = 64 << 10;

/// Why there is no next event.
#[derive(Debug)]
pub(crate) enum ReadError {
    Late(Late),
    Upstream(EgressError),
    /// The guest says that the answer is not what it should be.
    Guest(Failure),
    Call(CallError),
    TooLong,
}

/// An answer on its way.
pub(crate) struct Reading {
    instance: ProviderInstance,
    body: Option<ReplyBody>,
    form: Form,
}

/// How an answer comes.
enum Form {
    /// As one body, behind this head.
    Whole(ResponseHead),
    /// Event by event.
    Stream(Box<Stream>),
}

/// What is known of a stream between two pieces.
struct Stream {
    framer: Framer,
    frames: Vec<Frame>,
    has_begun: bool,
}

impl Reading {
    /// `framing` is none for an answer that comes as one body.
    ///
    /// # Errors
    /// The guest broke while it made its decoder for a stream.
    pub(crate) async fn open(
        mut instance: ProviderInstance,
        head: ResponseHead,
        body: ReplyBody,
        framing: Option<Framing>,
    ) -> Result<Box<Self>, CallError> {
        let form = match framing {
            None => Form::Whole(head),
            Some(framing) => {
                instance.open_decoder(&head).await?;
                let stream = Stream { framer: Framer::new(framing), frames: Vec::new(), has_begun: false };
                Form::Stream(Box::new(stream))
            }
        };
        Ok(Box::new(Self { instance, body: Some(body), form }))
    }

    /// Whether the first event of a stream is still to come. Comments are none.
    pub(crate) fn awaits_first_event(&self) -> bool {
        matches!(&self.form, Form::Stream(stream) if !stream.has_begun)
    }

    /// Whether the provider has said everything.
    pub(crate) fn is_over(&self) -> bool {
        self.body.is_none()
    }

    /// The events of the next read, which may be none. After the last of them
    /// [`Self::is_over`].
    pub(crate) async fn next(&mut self, pace: &mut Pace, limit: Duration) -> Result<Vec<Event>, ReadError> {
        let Self { instance, body, form } = self;
        match form {
            Form::Stream(stream) => stream.next(instance, body, pace, limit).await,
            Form::Whole(head) => {
                let Some(mut body) = body.take() else { return Ok(Vec::new()) };
                let data = whole(&mut body, pace, limit).await?;
                told(instance.decode(head, Frame { name: String::new(), data }).await)
            }
        }
    }

    /// Reads to the end of an answer whose last event was seen, if that is near.
    pub(crate) async fn drain(&mut self) {
        let Some(mut body) = self.body.take() else { return };
        let rest = async { while let Ok(Some(_)) = body.chunk().await {} };
        // Too slow: the connection is closed instead of reused, nothing else is lost.
        let drained = tokio::time::timeout(DRAIN, rest).await;
        tracing::trace!(reused = drained.is_ok(), "end of the provider's answer");
    }

    /// After an answer that went well: the instance may serve the next request of
    /// the same owner. Dropped instead, it ends.
    pub(crate) async fn close(self) {
        self.instance.close().await;
    }
}

/// All of a body.
async fn whole(body: &mut ReplyBody, pace: &mut Pace, limit: Duration) -> Result<Vec<u8>, ReadError> {
    let mut data = Vec::new();
    loop {
        let chunk = pace.during(body.chunk(), limit).await.map_err(ReadError::Late)?;
        let Some(bytes) = chunk.map_err(ReadError::Upstream)? else { return Ok(data) };
        if data.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(ReadError::TooLong);
        }
        data.extend_from_slice(&bytes);
    }
}

/// What a guest made of an answer.
fn told(answer: Result<Result<Vec<Event>, Failure>, CallError>) -> Result<Vec<Event>, ReadError> {
    answer.map_err(ReadError::Call)?.map_err(ReadError::Guest)
}

impl Stream {
    async fn next(
        &mut self,
        instance: &mut ProviderInstance,
        body: &mut Option<ReplyBody>,
        pace: &mut Pace,
        limit: Duration,
    ) -> Result<Vec<Event>, ReadError> {
        let Some(upstream) = body else { return Ok(Vec::new()) };
        let chunk = pace.during(upstream.chunk(), limit).await.map_err(ReadError::Late)?;
        let mut over = true;
        if let Some(bytes) = chunk.map_err(ReadError::Upstream)? {
            self.framer.push(&bytes, &mut self.frames).map_err(|_| ReadError::TooLong)?;
            over = gather(upstream, &mut self.framer, &mut self.frames).await?;
        }
        if !over {
            return self.feed(instance).await;
        }
        *body = None;
        self.framer.end(&mut self.frames).map_err(|_| ReadError::TooLong)?;
        let mut events = self.feed(instance).await?;
        events.extend(told(instance.finish().await)?);
        Ok(events)
    }

    async fn feed(&mut self, instance: &mut ProviderInstance) -> Result<Vec<Event>, ReadError> {
        if self.frames.is_empty() {
            return Ok(Vec::new());
        }
        self.has_begun = true;
        let events = told(instance.feed(&self.frames).await);
        self.frames.clear();
        events
    }
}

/// Takes what has arrived besides the first piece, so that a burst of events costs
/// one call into the guest and one write to the client. A piece per event is how
/// providers send, and the connection hands over one piece at a time; yielding lets
/// it put the next in place. True at the end of the body.
async fn gather(
    body: &mut ReplyBody,
    framer: &mut Framer,
    frames: &mut Vec<Frame>,
) -> Result<bool, ReadError> {
    let mut gathered = 0;
    while gathered < GATHER_BYTES_MAX {
        let mut ready = poll_once(body.chunk()).await;
        if ready.is_none() {
            // A connection that is shared runs as a task of its own: it gets a turn to
            // put the next piece in place.
            tokio::task::yield_now().await;
            ready = poll_once(body.chunk()).await;
        }
        match ready {
            None => return Ok(false),
            Some(Ok(None)) => return Ok(true),
            // What arrived before the break still counts; the next read meets it again.
            Some(Err(_)) => return Ok(false),
            Some(Ok(Some(bytes))) => {
                gathered += bytes.len();
                framer.push(&bytes, frames).map_err(|_| ReadError::TooLong)?;
            }
        }
    }
    Ok(false)
}

/// The output of `future` if it is there already; dropping it loses nothing of a body.
async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// What the first events of an answer mean for the attempt.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Nothing real yet.
    Wait,
    /// Content, or an end that needs none.
    Answered,
    /// An end without content.
    Empty,
    /// The provider reported an error before any content.
    Failed(Failure),
}

/// Looks for the first event that decides.
pub(crate) fn verdict(events: &[Event]) -> Verdict {
    for event in events {
        match event {
            Event::TextDelta(delta) if delta.text.is_empty() => {}
            Event::RefusalDelta(text) | Event::ReasoningTextDelta(text) if text.is_empty() => {}
            Event::MessageStart(_) | Event::Usage(_) => {}
            Event::Error(failure) => return Verdict::Failed(failure.clone()),
            Event::Finish(finish) => {
                return match finish.reason {
                    // The limit or the filter struck before the first word: an answer all the same.
                    FinishReason::Length | FinishReason::ContentFilter => Verdict::Answered,
                    _ => Verdict::Empty,
                };
            }
            _ => return Verdict::Answered,
        }
    }
    Verdict::Wait
}

impl ReadError {
    /// In the canonical vocabulary. The message is for the client.
    pub(crate) fn failure(&self) -> Failure {
        let (kind, message) = match self {
            Self::Guest(failure) => return failure.clone(),
            Self::Late(_) | Self::Upstream(EgressError::TimedOut) => {
                (ErrorKind::Timeout, "The operation was aborted due to timeout")
            }
            Self::Upstream(_) | Self::TooLong | Self::Call(_) => {
                (ErrorKind::ProviderUnavailable, "Provider returned error")
            }
        };
        Failure { kind, message: message.to_owned(), code: None, retry_after_ms: None }
    }
}
