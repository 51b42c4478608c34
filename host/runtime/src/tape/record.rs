//! Takes down one call, in memory and within limits. A call that fails is handed over to be
//! written when its guest has ended; any other is forgotten.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::value::RawValue;

use super::TapedFailure;
use crate::clock::{CLOCK_GRAIN_MS, coarse, milliseconds};
use crate::context::CallContext;
use crate::inputs::GuestInputs;
use crate::recorder::{FailedCall, Recorder, RecordingMemory};
use crate::recording::{Entry, RECORDING_BYTES_MAX, RecordedEnd, RecordingHead, json};
use crate::services::{HttpAccess, SentSearch, Services};

/// Why a recording is given up.
const TOO_LARGE: &str = "its recording is larger than 8 MiB";
const NO_MEMORY: &str = "the calls that are being recorded take 64 MiB together";

/// How the failing calls of one plugin are recorded.
pub(crate) struct RecordingPlan {
    pub(crate) recorder: Arc<Recorder>,
    /// What is the same for all calls.
    pub(crate) head: RecordingHead,
    /// How many recordings are kept.
    pub(crate) kept: u32,
}

/// One call that is recorded.
pub(crate) struct CallRecorder {
    plan: Arc<RecordingPlan>,
    context: CallContext,
    machine: Arc<dyn GuestInputs>,
    http: Option<Arc<dyn HttpAccess>>,
    recorded: Mutex<RecordedLines>,
}

struct RecordedLines {
    lines: Vec<u8>,
    memory: RecordingMemory,
    /// Why the rest is not recorded.
    given_up: Option<&'static str>,
    has_failed: bool,
    searches: Vec<Box<dyn SentSearch>>,
}

impl CallRecorder {
    pub(crate) fn new(plan: &Arc<RecordingPlan>, context: &CallContext, services: &Services) -> Self {
        let machine = || Arc::new(MachineInputs { now_ms: context.now_ms, at: Instant::now() }) as Arc<_>;
        let recorded = RecordedLines {
            lines: Vec::new(),
            memory: plan.recorder.memory(),
            given_up: None,
            has_failed: false,
            searches: Vec::new(),
        };
        Self {
            plan: Arc::clone(plan),
            machine: context.inputs.clone().unwrap_or_else(machine),
            context: context.clone(),
            http: services.http.clone(),
            recorded: Mutex::new(recorded),
        }
    }

    /// What the guest would read without a tape.
    pub(super) fn machine(&self) -> &dyn GuestInputs {
        &*self.machine
    }

    /// A value of the next step as JSON. `None` if the step is not noted: the call has failed, or the
    /// recording is given up, as it is for a value that has no room in it.
    pub(super) fn written(&self, value: &impl Serialize) -> Option<Box<RawValue>> {
        let (left, memory_left) = {
            let recorded = self.lock();
            if recorded.given_up.is_some() || recorded.has_failed {
                return None;
            }
            (RECORDING_BYTES_MAX.saturating_sub(recorded.lines.len()), recorded.memory.left())
        };
        let written = json::write_within(value, left.min(memory_left));
        if written.is_none() {
            self.lock().give_up(if left <= memory_left { TOO_LARGE } else { NO_MEMORY });
        }
        written
    }

    pub(super) fn call(&self, function: &'static str, input: Box<RawValue>) {
        self.add(&Entry::Call { function: function.to_owned(), input });
    }

    pub(super) fn answer(&self, answer: Box<RawValue>) {
        self.add(&Entry::Answer(answer));
    }

    pub(super) fn import(&self, name: &'static str, sent: Box<RawValue>, answer: Option<Box<RawValue>>) {
        let waits = answer.is_none();
        let answer = answer.unwrap_or_else(|| RawValue::NULL.to_owned());
        self.add(&Entry::Import { name: name.to_owned(), sent, answer, waits });
    }

    pub(super) fn log(&self, level: &'static str, line: String) {
        self.add(&Entry::Log { level: level.to_owned(), line });
    }

    pub(super) fn search_with(&self, search: Box<dyn SentSearch>) {
        self.lock().searches.push(search);
    }

    pub(super) fn fail(&self, failure: TapedFailure<'_>) {
        let end = RecordedEnd {
            kind: failure.kind.as_str().to_owned(),
            message: failure.kind.to_string(),
            function: failure.function.to_owned(),
            backtrace: failure.backtrace,
        };
        self.add(&Entry::End(end));
        self.lock().has_failed = true;
    }

    fn add(&self, entry: &Entry) {
        let mut recorded = self.lock();
        if recorded.given_up.is_some() || recorded.has_failed {
            return;
        }
        // Cannot fail: all parts are text.
        let line = serde_json::to_vec(entry).unwrap_or_default();
        let bytes = line.len() + 1;
        if recorded.lines.len() + bytes > RECORDING_BYTES_MAX {
            recorded.give_up(TOO_LARGE);
        } else if !recorded.memory.grow(bytes) {
            recorded.give_up(NO_MEMORY);
        } else {
            recorded.lines.extend_from_slice(&line);
            recorded.lines.push(b'\n');
        }
    }

    fn lock(&self) -> MutexGuard<'_, RecordedLines> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordedLines {
    fn give_up(&mut self, reason: &'static str) {
        self.given_up = Some(reason);
        self.lines = Vec::new();
        self.memory.clear();
    }
}

impl Drop for CallRecorder {
    fn drop(&mut self) {
        let recorded = self.recorded.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !recorded.has_failed {
            return;
        }
        let plugin = &self.plan.head.plugin;
        if let Some(reason) = recorded.given_up {
            tracing::warn!(plugin, "a failing call was not recorded: {reason}");
            return;
        }
        let mut searches = std::mem::take(&mut recorded.searches);
        searches.extend(self.http.as_ref().and_then(|http| http.sent_for(plugin)));
        let head = RecordingHead {
            request_id: self.context.request_id.to_string(),
            workspace: self.context.workspace.clone(),
            now_ms: self.context.now_ms,
            ..self.plan.head.clone()
        };
        let memory = std::mem::replace(&mut recorded.memory, self.plan.recorder.memory());
        let lines = std::mem::take(&mut recorded.lines);
        self.plan.recorder.submit(FailedCall {
            head,
            lines,
            searches,
            kept: self.plan.kept,
            _memory: memory,
        });
    }
}

/// The machine's clocks, as coarse as for any guest, and its random bytes.
struct MachineInputs {
    now_ms: u64,
    at: Instant,
}

impl fmt::Debug for MachineInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MachineInputs")
    }
}

impl GuestInputs for MachineInputs {
    fn wall_ms(&self) -> u64 {
        coarse(self.now_ms.saturating_add(milliseconds(self.at.elapsed())))
    }

    fn monotonic_ns(&self) -> u64 {
        milliseconds(self.at.elapsed()) / CLOCK_GRAIN_MS * CLOCK_GRAIN_MS * 1_000_000
    }

    #[expect(
        clippy::expect_used,
        reason = "guests must not get predictable bytes, as in WASI without a tape"
    )]
    fn random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the system has random bytes");
    }
}
