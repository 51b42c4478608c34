//! The recorder of requests: what happened in each of the last requests, step by step. It holds
//! fixed words, numbers and names of the configuration, and one text of the client: the model that
//! it asked for. It never holds content or the value of a secret.
//!
//! A `Timeline` is where the code that does something notes a step. Where nothing is recorded it
//! is empty, and noting does nothing. Otherwise it becomes a part of the request's record, and the
//! [`RequestRecorder`] keeps the record when the request ends. Documents are made of it only when
//! an operator looks.

mod document;
mod finished;
mod follow;
mod journal;
mod record;
mod recorder;
mod step;

pub use document::{RecordedFact, RecordedRequest, RecordedStep, RecordedTimeline, StepFacts};
pub use follow::{StepReceiver, StepSender, follow_steps};
pub(crate) use record::RequestBeginning;
pub(crate) use recorder::RequestGuard;
pub use recorder::{EndedRequests, RECORDED_MAX, RequestFilter, RequestRecorder};
pub(crate) use step::Fact;
pub use step::{FactName, StepKind, StepType};

use crate::refusal::Refusal;
use cofferdam_runtime::CallError;
use cofferdam_runtime::wire::{ErrorKind, Failure};
use cofferdam_store::{UsageOutcome, UsageRow};
use journal::{Journal, StepEnd};
use record::TimelineRecord;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Gets the steps of a finished request.
type AtEnd = Box<dyn FnOnce(RecordedTimeline) + Send>;

/// One request that is recorded. The memory of one that is over is used for another one.
struct SharedTimeline {
    began: Instant,
    response_bytes: AtomicU64,
    /// Locked for a moment by the request's own thread, and by operators who look at a running
    /// request. So the lock is nearly always free.
    state: Mutex<TimelineState>,
}

#[derive(Default)]
struct TimelineState {
    /// `None` after the end of the request.
    record: Option<TimelineRecord>,
    /// Memory for the next one.
    spare: Journal,
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

    /// Notes several things at one moment: the clock is read once, and the steps of the request are locked
    /// while `note` runs, so it must use the moment only. `None` where nothing is recorded.
    pub(crate) fn at_once<T>(&self, note: impl FnOnce(&mut Moment<'_>) -> T) -> Option<T> {
        let shared = self.shared.as_ref()?;
        let now_us = shared.now_us();
        Some(note(&mut Moment { state: shared.lock(), parent: self.parent(), now_us }))
    }

    /// Begins a step. The name consists of `parts`, which must be fixed words and names of the
    /// configuration.
    pub(crate) fn begin(&self, step: StepType, parts: &[&str], facts: &[Option<Fact<'_>>]) -> StepMark {
        self.at_once(|moment| moment.begin(step, parts, facts)).unwrap_or_default()
    }

    /// Ends a step. `outcome` is `ok` or a fixed word for what went wrong.
    pub(crate) fn end(&self, step: StepMark, outcome: &'static str, facts: &[Option<Fact<'_>>]) {
        self.at_once(|moment| moment.end(step, outcome, facts));
    }

    /// Ends the call of a guest that used this processor time.
    pub(crate) fn end_call(
        &self,
        step: StepMark,
        outcome: &'static str,
        busy: Duration,
        facts: &[Option<Fact<'_>>],
    ) {
        self.at_once(|moment| moment.end_call(step, outcome, busy, facts));
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
        let Some(step) = self.opened() else { return };
        self.at_once(|moment| moment.first_content(step));
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
            // Only the run of the request adds to it, so this needs no atomic addition.
            let before = shared.response_bytes.load(Ordering::Relaxed);
            shared.response_bytes.store(before + bytes as u64, Ordering::Relaxed);
        }
    }

    /// Notes why the request fails.
    pub(crate) fn failed(&self, error: ErrorKind) {
        if let Some(shared) = &self.shared {
            shared.note(|record| record.head.error = Some(error.as_str()));
        }
    }

    /// Notes the usage row, when it is written.
    pub(crate) fn settled(&self, row: &UsageRow, outcome: UsageOutcome) {
        self.at_once(|moment| {
            if let Some(record) = &mut moment.state.record {
                record.settled(row, outcome);
            }
            let facts = [
                FactName::InputTokens.number(row.input_tokens),
                FactName::OutputTokens.number(row.output_tokens),
                FactName::Cost.number(row.cost_pico),
            ];
            moment.note(StepType::Usage, &["usage row"], &facts);
        });
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

/// A moment at which something is noted in a timeline.
pub(crate) struct Moment<'a> {
    state: MutexGuard<'a, TimelineState>,
    parent: u16,
    now_us: u64,
}

impl Moment<'_> {
    /// Begins a step, as [`Timeline::begin`] does.
    pub(crate) fn begin(&mut self, step: StepType, parts: &[&str], facts: &[Option<Fact<'_>>]) -> StepMark {
        let Some(record) = &mut self.state.record else { return StepMark(0) };
        let n = record.begin(self.parent, step, parts, self.now_us);
        if n != 0 {
            record.add(n, facts);
            self.state.tell(n);
        }
        StepMark(n)
    }

    /// Ends a step, as [`Timeline::end`] does.
    pub(crate) fn end(&mut self, step: StepMark, outcome: &'static str, facts: &[Option<Fact<'_>>]) {
        self.end_after(step, outcome, None, facts);
    }

    /// Ends the call of a guest, as [`Timeline::end_call`] does.
    pub(crate) fn end_call(
        &mut self,
        step: StepMark,
        outcome: &'static str,
        busy: Duration,
        facts: &[Option<Fact<'_>>],
    ) {
        self.end_after(step, outcome, Some(micros(busy)), facts);
    }

    /// Notes a step that has no duration.
    fn note(&mut self, step: StepType, parts: &[&str], facts: &[Option<Fact<'_>>]) {
        let mark = self.begin(step, parts, facts);
        self.end(mark, "ok", &[]);
    }

    fn end_after(
        &mut self,
        step: StepMark,
        outcome: &'static str,
        busy_us: Option<u64>,
        facts: &[Option<Fact<'_>>],
    ) {
        // A step that found no room is not recorded.
        if let Some(record) = self.state.record.as_mut().filter(|_| step.0 != 0) {
            record.add(step.0, facts);
            record.end(step.0, StepEnd { at_us: self.now_us, busy_us, outcome });
            self.state.tell(step.0);
        }
    }

    /// Adds the time since a step began.
    fn first_content(&mut self, n: u16) {
        if let Some(record) = &mut self.state.record {
            record.add(n, &[FactName::FirstContentUs.number(self.now_us)]);
        }
    }
}

impl Default for SharedTimeline {
    /// One of no request.
    fn default() -> Self {
        Self { began: Instant::now(), response_bytes: AtomicU64::new(0), state: Mutex::default() }
    }
}

impl SharedTimeline {
    fn begin(&mut self, beginning: &RequestBeginning<'_>, follower: Option<StepSender>) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let journal = state.spare.emptied();
        *state = TimelineState {
            record: Some(TimelineRecord::begun(beginning, journal)),
            follower,
            ..TimelineState::default()
        };
        *self.response_bytes.get_mut() = 0;
        self.began = Instant::now();
    }

    fn lock(&self) -> MutexGuard<'_, TimelineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }

    /// Notes something about the request, unless it is over.
    fn note(&self, note: impl FnOnce(&mut TimelineRecord)) {
        if let Some(record) = &mut self.lock().record {
            note(record);
        }
    }

    /// The request as it is now, unless it is over.
    fn document(&self) -> Option<RecordedTimeline> {
        let mut document = RecordedTimeline::running(self.lock().record.as_ref()?);
        document.request.us = self.now_us();
        document.request.response_bytes = self.response_bytes.load(Ordering::Relaxed);
        Some(document)
    }

    /// Ends the request. Returns what gets its steps, with them.
    fn finish(&self, keep: impl FnOnce(&TimelineRecord)) -> Option<(AtEnd, RecordedTimeline)> {
        let us = self.now_us();
        let mut state = self.lock();
        let mut record = state.record.take()?;
        record.head.us = us;
        record.head.response_bytes = self.response_bytes.load(Ordering::Relaxed);
        keep(&record);
        // Dropping the sender tells the follower that the request is over.
        state.follower = None;
        let at_end = state.at_end.take().map(|then| (then, RecordedTimeline::finished(&record, None)));
        if record.journal.is_small() {
            state.spare = record.journal;
        }
        at_end
    }
}

impl TimelineState {
    /// Tells the follower, if there is one, how a step is now.
    fn tell(&self, n: u16) {
        if let (Some(follower), Some(record)) = (&self.follower, &self.record)
            && let Some(step) = RecordedStep::of(record, n)
        {
            follower.send(step);
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
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}

#[cfg(test)]
mod tests;
