//! The recorder of requests: what happened in each of the last requests, step by step. It holds
//! fixed words, numbers and names of the configuration, and one text of the client: the model that
//! it asked for. It never holds content or the value of a secret.
//!
//! A `Timeline` is where the code that does something notes a step. Where nothing is recorded it
//! is empty, and noting does nothing. Otherwise the steps are in a list of the request, which the
//! [`RequestRecorder`] takes over when the request ends.

mod document;
mod follow;
mod head;
mod recorder;
mod step;

pub use document::{RecordedFact, RecordedRequest, RecordedStep, RecordedTimeline, StepFacts};
pub use follow::{StepReceiver, StepSender, follow_steps};
pub(crate) use head::RequestBeginning;
pub(crate) use recorder::RequestGuard;
pub use recorder::{RECORDED_MAX, RequestEvent, RequestFilter, RequestRecorder, RequestSubscription};
pub(crate) use step::Fact;
pub use step::{FactName, StepKind, StepType};

use crate::refusal::Refusal;
use cofferdam_runtime::CallError;
use cofferdam_runtime::wire::{ErrorKind, Failure};
use cofferdam_store::{UsageOutcome, UsageRow};
use head::RequestHead;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use step::Steps;

/// Gets the steps of a finished request.
type AtEnd = Box<dyn FnOnce(RecordedTimeline) + Send>;

/// One request that is recorded.
struct SharedTimeline {
    begun: RequestBeginning,
    began: Instant,
    response_bytes: AtomicU64,
    /// Locked for a moment by the request's own thread, and by operators who look at a running
    /// request. So the lock is nearly always free.
    state: Mutex<TimelineState>,
}

struct TimelineState {
    head: RequestHead,
    steps: Steps,
    follower: Option<StepSender>,
    at_end: Option<AtEnd>,
}

/// Where the steps of a request are noted. Each step is a part of the step that was opened last, or
/// of the one that this was made for.
#[derive(Default)]
pub(crate) struct Timeline {
    shared: Option<Arc<SharedTimeline>>,
    /// The step that all steps noted here are below.
    base: u16,
    /// The step that is open.
    open: AtomicU16,
}

/// A step that has begun.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub(crate) struct StepMark(u16);

impl Timeline {
    /// A timeline whose steps are parts of `step`.
    pub(crate) fn under(&self, step: StepMark) -> Self {
        let base = if step.0 == 0 { self.parent() } else { step.0 };
        Self { shared: self.shared.clone(), base, open: AtomicU16::new(base) }
    }

    /// A timeline whose steps are parts of the step that is open here now.
    pub(crate) fn here(&self) -> Self {
        self.under(StepMark(0))
    }

    /// Begins a step. The name consists of `parts`, which must be fixed words and names of the
    /// configuration.
    pub(crate) fn begin(&self, step: StepType, parts: &[&str], facts: &[Option<Fact<'_>>]) -> StepMark {
        let Some(shared) = &self.shared else { return StepMark(0) };
        let now_us = shared.now_us();
        let mut state = shared.lock();
        let n = state.steps.begin(self.parent(), step, parts, now_us);
        state.steps.note(n, facts);
        state.tell(n);
        StepMark(n)
    }

    /// Ends a step. `outcome` is `ok` or a fixed word for what went wrong.
    pub(crate) fn end(&self, step: StepMark, outcome: &'static str, facts: &[Option<Fact<'_>>]) {
        let Some(shared) = self.shared.as_ref().filter(|_| step.0 != 0) else { return };
        let now_us = shared.now_us();
        let mut state = shared.lock();
        state.steps.note(step.0, facts);
        state.steps.end(step.0, now_us, outcome);
        state.tell(step.0);
    }

    /// Ends the call of a guest that used this processor time.
    pub(crate) fn end_call(
        &self,
        step: StepMark,
        outcome: &'static str,
        busy: Duration,
        facts: &[Option<Fact<'_>>],
    ) {
        let Some(shared) = self.shared.as_ref().filter(|_| step.0 != 0) else { return };
        shared.lock().steps.busy(step.0, micros(busy));
        self.end(step, outcome, facts);
    }

    /// Notes a step that has no duration.
    pub(crate) fn note(&self, step: StepType, parts: &[&str], facts: &[Option<Fact<'_>>]) {
        let mark = self.begin(step, parts, facts);
        self.end(mark, "ok", &[]);
    }

    /// Begins a step of which the following steps are parts, until it is closed.
    pub(crate) fn open(&self, step: StepType, parts: &[&str], facts: &[Option<Fact<'_>>]) {
        let mark = self.begin(step, parts, facts);
        if mark.0 != 0 {
            self.open.store(mark.0, Ordering::Relaxed);
        }
    }

    /// Adds the time since the open step began.
    pub(crate) fn first_content(&self) {
        let Some((shared, n)) = self.shared.as_ref().zip(self.opened()) else { return };
        let now_us = shared.now_us();
        let mut state = shared.lock();
        let since = now_us.saturating_sub(state.steps.began_us(n));
        state.steps.note(n, &[FactName::FirstContentUs.number(since)]);
    }

    /// Ends the step that is open, if there is one.
    pub(crate) fn close(&self, outcome: &'static str, facts: &[Option<Fact<'_>>]) {
        if let Some(n) = self.opened() {
            self.open.store(self.base, Ordering::Relaxed);
            self.end(StepMark(n), outcome, facts);
        }
    }

    /// Counts bytes that the client was sent.
    pub(crate) fn responded(&self, bytes: usize) {
        if let Some(shared) = &self.shared {
            shared.response_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Notes why the request fails.
    pub(crate) fn failed(&self, error: ErrorKind) {
        if let Some(shared) = &self.shared {
            shared.lock().head.error = Some(error);
        }
    }

    /// Notes the usage row, when it is written.
    pub(crate) fn settled(&self, row: &UsageRow, outcome: UsageOutcome) {
        let Some(shared) = &self.shared else { return };
        shared.lock().head.settled(row, outcome);
        let facts = [
            FactName::InputTokens.number(row.input_tokens),
            FactName::OutputTokens.number(row.output_tokens),
            FactName::Cost.number(row.cost_pico),
        ];
        self.note(StepType::Usage, &["usage row"], &facts);
    }

    /// Calls `then` with all steps when the request ends, if it is recorded.
    pub(crate) fn at_end(&self, then: AtEnd) {
        if let Some(shared) = &self.shared {
            shared.lock().at_end = Some(then);
        }
    }

    fn parent(&self) -> u16 {
        self.open.load(Ordering::Relaxed)
    }

    fn opened(&self) -> Option<u16> {
        Some(self.parent()).filter(|open| *open != self.base)
    }
}

impl SharedTimeline {
    fn lock(&self) -> MutexGuard<'_, TimelineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }

    /// The request as it is now, without its steps.
    fn head(&self, number: Option<u64>) -> RecordedRequest {
        self.request(&self.lock(), number)
    }

    fn request(&self, state: &TimelineState, number: Option<u64>) -> RecordedRequest {
        let bytes = self.response_bytes.load(Ordering::Relaxed);
        RecordedRequest::of(&self.begun, &state.head, number, self.now_us(), bytes)
    }

    /// The request as it is now.
    fn document(&self, number: Option<u64>) -> RecordedTimeline {
        let state = self.lock();
        RecordedTimeline {
            request: self.request(&state, number),
            steps: state.steps.iter().map(|step| RecordedStep::of(&step)).collect(),
            steps_lost: state.steps.lost(),
        }
    }
}

impl TimelineState {
    /// Tells the follower, if there is one, how a step is now.
    fn tell(&self, n: u16) {
        if let (Some(follower), Some(view)) = (&self.follower, self.steps.view(n)) {
            follower.send(RecordedStep::of(&view));
        }
    }
}

/// The outcome of a step that may be refused.
pub(crate) fn outcome_of<T>(result: &Result<T, Refusal>) -> &'static str {
    result.as_ref().map_or_else(|refusal| refusal.kind.as_str(), |_| "ok")
}

/// The outcome of a call into a guest.
pub(crate) fn call_outcome<T>(result: &Result<Result<T, Failure>, CallError>) -> &'static str {
    match result {
        Ok(Ok(_)) => "ok",
        Ok(Err(failure)) => failure.kind.as_str(),
        Err(error) => error.kind.as_str(),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
