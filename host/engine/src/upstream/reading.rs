//! Reads one provider's answer: the host cuts the bytes from the network into frames, and the
//! provider's guest turns frames into events.

use crate::lifecycle::deadline::{Deadline, Late};
use crate::timeline::{FactName, StepMark, StepType, Timeline, call_outcome};
use crate::upstream::framing::Framer;
use cofferdam_egress::{Error as EgressError, ReplyBody};
use cofferdam_runtime::manifest::Framing;
use cofferdam_runtime::memory::MemoryShare;
use cofferdam_runtime::wire::{Event, Failure, FinishReason, Frame, ResponseHead};
use cofferdam_runtime::{CallError, ProviderInstance};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The longest whole answer of a provider, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long to read on after the last event, so that the connection can be used again.
const DRAIN: Duration = Duration::from_millis(20);

/// The most bytes that are taken together from a burst.
const GATHER_BYTES_MAX: usize = 64 << 10;

/// Why there is no next event.
#[derive(Debug)]
pub(crate) enum ReadError {
    Late(Late),
    Upstream(EgressError),
    /// The guest reports that the answer is not valid.
    Guest(Failure),
    Call(CallError),
    TooLong,
    /// The answer is long, and there is no memory for it.
    OutOfMemory,
}

/// An answer that is being read.
pub(crate) struct UpstreamReading {
    instance: ProviderInstance,
    body: Option<ReplyBody>,
    form: Form,
    tally: ReadTally,
}

/// Counts what is read of an answer. Two steps are noted for it: the body, and the calls that decode
/// it. They end when this is dropped.
struct ReadTally {
    timeline: Timeline,
    answer: StepMark,
    decode: StepMark,
    pieces: u64,
    bytes: u64,
    calls: u64,
    busy: Duration,
    memory: MemoryShare,
    /// How the body and the calls end.
    outcomes: [&'static str; 2],
}

impl ReadTally {
    fn begin(timeline: &Timeline, plugin: &str) -> Self {
        let timeline = timeline.here();
        let facts = [FactName::Plugin.name(plugin)];
        let begun = timeline.at_once(|moment| {
            let answer = moment.begin(StepType::Answer, &["body"], &[]);
            (answer, moment.begin(StepType::GuestCall, &[plugin, "decode"], &facts))
        });
        let (answer, decode) = begun.unwrap_or_default();
        let (pieces, bytes, calls, busy) = (0, 0, 0, Duration::ZERO);
        let memory = MemoryShare::of_answer();
        Self { timeline, answer, decode, pieces, bytes, calls, busy, memory, outcomes: ["unfinished"; 2] }
    }

    /// Counts a piece of the body.
    ///
    /// # Errors
    /// [`ReadError::OutOfMemory`]
    fn arrived(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.pieces += 1;
        self.bytes += bytes as u64;
        let total = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        self.memory.cover(total).map_err(|_| ReadError::OutOfMemory)
    }

    /// Counts a call into the guest.
    fn called<T>(&mut self, instance: &ProviderInstance, answer: &Result<Result<T, Failure>, CallError>) {
        self.calls += 1;
        self.busy += instance.spent();
        self.outcomes[1] = call_outcome(answer);
    }
}

impl Drop for ReadTally {
    fn drop(&mut self) {
        let Self { timeline, answer, decode, pieces, bytes, calls, busy, outcomes: [body, guest], .. } = self;
        let facts = [FactName::Count.number(*pieces), FactName::Bytes.number(*bytes)];
        timeline.at_once(|moment| {
            moment.end(*answer, body, &facts);
            moment.end_call(*decode, guest, *busy, &[FactName::Count.number(*calls)]);
        });
    }
}

/// The form of an answer.
enum Form {
    /// One body with this head.
    Whole(ResponseHead),
    /// A stream of events.
    Stream(Box<StreamState>),
}

/// The state of a stream between two reads.
struct StreamState {
    framer: Framer,
    frames: Vec<Frame>,
    has_begun: bool,
}

impl UpstreamReading {
    /// Begins to read an answer. `framing` is `None` for an answer that comes as one body.
    ///
    /// # Errors
    /// The guest failed while it created the decoder of a stream.
    pub(crate) async fn open(
        mut instance: ProviderInstance,
        head: ResponseHead,
        body: ReplyBody,
        framing: Option<Framing>,
        timeline: &Timeline,
    ) -> Result<Box<Self>, CallError> {
        let tally = ReadTally::begin(timeline, instance.plugin().name());
        let form = match framing {
            None => Form::Whole(head),
            Some(framing) => {
                instance.open_decoder(&head).await?;
                let stream =
                    StreamState { framer: Framer::new(framing), frames: Vec::new(), has_begun: false };
                Form::Stream(Box::new(stream))
            }
        };
        Ok(Box::new(Self { instance, body: Some(body), form, tally }))
    }

    /// Whether the first event of a stream is still to come. Comments do not count as events.
    pub(crate) fn awaits_first_event(&self) -> bool {
        matches!(&self.form, Form::Stream(stream) if !stream.has_begun)
    }

    /// Whether the provider's answer has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.body.is_none()
    }

    /// The events of the next read, which may be none. After the last of them [`Self::is_over`] is
    /// true.
    pub(crate) async fn next(
        &mut self,
        deadline: &mut Deadline,
        limit: Duration,
    ) -> Result<Vec<Event>, ReadError> {
        let Self { instance, body, form, tally } = self;
        match form {
            Form::Stream(stream) => stream.next(instance, body, tally, deadline, limit).await,
            Form::Whole(head) => {
                let Some(mut body) = body.take() else { return Ok(Vec::new()) };
                let data = whole(&mut body, tally, deadline, limit).await?;
                let events = instance.decode(head, Frame { name: String::new(), data }).await;
                tally.called(instance, &events);
                events_of(events)
            }
        }
    }

    /// Reads to the end of an answer whose last event has arrived, if that end is near.
    pub(crate) async fn drain(&mut self) {
        let Some(mut body) = self.body.take() else { return };
        self.tally.outcomes[0] = "ok";
        let rest = async { while let Ok(Some(_)) = body.chunk().await {} };
        // If it is too slow, the connection is closed instead of reused. Nothing else is lost.
        let drained = tokio::time::timeout(DRAIN, rest).await;
        tracing::trace!(reused = drained.is_ok(), "end of the provider's answer");
    }

    /// Ends a successful answer: the instance may serve the next request of the same owner. If this
    /// is dropped instead, the instance ends.
    pub(crate) fn close(self) -> impl Future<Output = ()> {
        // Not an asynchronous function, which would keep the rest of `self` as long as it runs.
        self.instance.close()
    }
}

/// Reads a whole body.
async fn whole(
    body: &mut ReplyBody,
    tally: &mut ReadTally,
    deadline: &mut Deadline,
    limit: Duration,
) -> Result<Vec<u8>, ReadError> {
    let data = read_whole(body, deadline, limit, |bytes| tally.arrived(bytes)).await?;
    tally.outcomes[0] = "ok";
    Ok(data)
}

/// Reads a whole body, of which each piece comes within `limit`. `arrived` counts the bytes of a piece.
///
/// # Errors
/// The body is late, broken or too long, or `arrived` refuses it.
pub(crate) async fn read_whole(
    body: &mut ReplyBody,
    deadline: &mut Deadline,
    limit: Duration,
    mut arrived: impl FnMut(usize) -> Result<(), ReadError>,
) -> Result<Vec<u8>, ReadError> {
    let mut data = Vec::new();
    loop {
        let chunk = deadline.during(pin!(body.chunk()), limit).await.map_err(ReadError::Late)?;
        let Some(bytes) = chunk.map_err(ReadError::Upstream)? else { return Ok(data) };
        arrived(bytes.len())?;
        if data.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(ReadError::TooLong);
        }
        data.extend_from_slice(&bytes);
    }
}

/// The result of a call into the guest.
fn events_of(answer: Result<Result<Vec<Event>, Failure>, CallError>) -> Result<Vec<Event>, ReadError> {
    answer.map_err(ReadError::Call)?.map_err(ReadError::Guest)
}

impl StreamState {
    async fn next(
        &mut self,
        instance: &mut ProviderInstance,
        body: &mut Option<ReplyBody>,
        tally: &mut ReadTally,
        deadline: &mut Deadline,
        limit: Duration,
    ) -> Result<Vec<Event>, ReadError> {
        let Some(upstream) = body else { return Ok(Vec::new()) };
        if deadline.is_over() {
            // A body that always has more to read would go on after the end.
            return Err(ReadError::Late(Late::Total));
        }
        let chunk = deadline.during(pin!(upstream.chunk()), limit).await.map_err(ReadError::Late)?;
        let mut over = true;
        if let Some(bytes) = chunk.map_err(ReadError::Upstream)? {
            tally.arrived(bytes.len())?;
            self.framer.push(&bytes, &mut self.frames).map_err(|_| ReadError::TooLong)?;
            over = gather(upstream, tally, &mut self.framer, &mut self.frames).await?;
        }
        if !over {
            return self.feed(instance, tally).await;
        }
        *body = None;
        tally.outcomes[0] = "ok";
        self.framer.end(&mut self.frames).map_err(|_| ReadError::TooLong)?;
        let mut events = self.feed(instance, tally).await?;
        let last = instance.finish().await;
        tally.called(instance, &last);
        events.extend(events_of(last)?);
        Ok(events)
    }

    async fn feed(
        &mut self,
        instance: &mut ProviderInstance,
        tally: &mut ReadTally,
    ) -> Result<Vec<Event>, ReadError> {
        if self.frames.is_empty() {
            return Ok(Vec::new());
        }
        self.has_begun = true;
        let events = instance.feed(&self.frames).await;
        tally.called(instance, &events);
        self.frames.clear();
        events_of(events)
    }
}

/// Takes what has arrived besides the first piece, so that a burst of events costs one call into
/// the guest and one write to the client. Providers send one piece for each event, and the
/// connection hands over one piece at a time. Returns true at the end of the body.
async fn gather(
    body: &mut ReplyBody,
    tally: &mut ReadTally,
    framer: &mut Framer,
    frames: &mut Vec<Frame>,
) -> Result<bool, ReadError> {
    let mut gathered = 0;
    while gathered < GATHER_BYTES_MAX {
        let mut ready = poll_once(body.chunk()).await;
        if ready.is_none() {
            // An HTTP/2 connection runs as a task of its own; yielding lets it hand over the next
            // piece. HTTP/1 is polled here.
            tokio::task::yield_now().await;
            ready = poll_once(body.chunk()).await;
        }
        match ready {
            None => return Ok(false),
            Some(Ok(None)) => return Ok(true),
            // What arrived before the error is still used. The next read gets the error again.
            Some(Err(_)) => return Ok(false),
            Some(Ok(Some(bytes))) => {
                gathered += bytes.len();
                tally.arrived(bytes.len())?;
                framer.push(&bytes, frames).map_err(|_| ReadError::TooLong)?;
            }
        }
    }
    Ok(false)
}

/// The output of `future` if it is ready. Dropping the future loses nothing of a body.
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
pub(crate) enum Beginning {
    /// No content so far.
    Wait,
    /// Content, or an end that needs none.
    Answered,
    /// An end without content.
    Empty,
    /// The provider reported an error before any content.
    Failed(Failure),
}

/// Looks for the first event that decides.
pub(crate) fn verdict(events: &[Event]) -> Beginning {
    for event in events {
        match event {
            Event::TextDelta(delta) if delta.text.is_empty() => {}
            Event::RefusalDelta(text) | Event::ReasoningTextDelta(text) if text.is_empty() => {}
            Event::MessageStart(_) | Event::Usage(_) => {}
            Event::Error(failure) => return Beginning::Failed(failure.clone()),
            Event::Finish(finish) => {
                return match finish.reason {
                    // The output limit or the content filter applied before the first word. This is
                    // an answer too.
                    FinishReason::Length | FinishReason::ContentFilter => Beginning::Answered,
                    _ => Beginning::Empty,
                };
            }
            _ => return Beginning::Answered,
        }
    }
    Beginning::Wait
}
