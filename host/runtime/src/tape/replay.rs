//! Repeats one recorded call: gives the guest the recorded answers, and notes the first difference.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;

use super::TapedFailure;
use crate::recording::{Entry, RecordedEnd};

/// How much of a value is shown where it differs, in characters.
const SHOWN_CHARS_MAX: usize = 400;
/// Lines of the guest that are kept, for all calls of an attempt.
const LOG_LINES_MAX: usize = 1_024;

/// One call that is replayed.
pub(crate) struct CallReplay(Mutex<ReplayState>);

/// How far a replay has come.
#[derive(Default)]
pub(crate) struct ReplayState {
    /// What is still to happen, without the lines of the log.
    entries: VecDeque<Entry>,
    pub(crate) end: RecordedEnd,
    /// Imports that were answered.
    pub(crate) imports: usize,
    pub(crate) difference: Option<String>,
    /// How the replayed call failed.
    pub(crate) failed: Option<RecordedEnd>,
    /// The guest has come to where the recorded call was ended while it waited or ran.
    pub(crate) is_cut: bool,
    /// Lines of the guest, each with its level.
    pub(crate) log: Vec<(&'static str, String)>,
}

impl CallReplay {
    pub(crate) fn new(entries: Vec<Entry>, end: RecordedEnd) -> Self {
        let entries = entries.into_iter().filter(|entry| !matches!(entry, Entry::Log { .. })).collect();
        Self(Mutex::new(ReplayState { entries, end, ..ReplayState::default() }))
    }

    /// The next call that the recording has, if nothing differs so far.
    pub(crate) fn next_call(&self) -> Option<(String, Box<RawValue>)> {
        let state = self.lock();
        if state.difference.is_some() || state.failed.is_some() {
            return None;
        }
        state.entries.iter().find_map(|entry| match entry {
            Entry::Call { function, input } => Some((function.clone(), input.clone())),
            _ => None,
        })
    }

    /// What was found.
    pub(crate) fn take(&self) -> ReplayState {
        let mut state = std::mem::take(&mut *self.lock());
        if let Some(entry) = state.entries.front().filter(|_| state.end.kind != "out_of_time") {
            let missing = format!("the recording goes on: {}", shown(entry));
            state.difference.get_or_insert(missing);
        }
        state
    }

    pub(super) fn call(&self, function: &'static str) {
        let mut state = self.lock();
        match state.entries.pop_front() {
            Some(Entry::Call { function: recorded, .. }) if recorded == function => {}
            other => state.differ(other.as_ref(), &format!("the host calls {function}")),
        }
    }

    pub(super) fn answer(&self, answer: &RawValue) {
        let mut state = self.lock();
        match state.entries.pop_front() {
            Some(Entry::Answer(recorded)) if recorded.get() == answer.get() => {}
            Some(Entry::Answer(recorded)) => {
                let (recorded, now) = around_difference(recorded.get(), answer.get());
                state.note(format!("the output differs: recorded {recorded}, now {now}"));
            }
            other => state.differ(other.as_ref(), &format!("the guest answers {}", cut(answer.get()))),
        }
    }

    /// The recorded answer to a question of the guest.
    pub(super) fn ask(&self, name: &'static str, sent: &RawValue) -> wasmtime::Result<Box<RawValue>> {
        let mut state = self.lock();
        if state.difference.is_some() || state.is_cut {
            return Err(wasmtime::Error::msg("the replay has ended"));
        }
        match state.entries.pop_front() {
            Some(Entry::Import { name: recorded, sent: asked, waits, answer })
                if recorded == name && asked.get() == sent.get() =>
            {
                if waits {
                    state.is_cut = true;
                    return Err(wasmtime::Error::msg("the recorded call was ended while it waited here"));
                }
                state.imports += 1;
                return Ok(answer);
            }
            // Its time was up somewhere before this question.
            None if state.end.kind == "out_of_time" => state.is_cut = true,
            Some(Entry::Import { name: recorded, sent: asked, .. }) if recorded == name => {
                let (recorded, now) = around_difference(asked.get(), sent.get());
                let number = state.imports + 1;
                state.note(format!("import {number}, {name}, differs: recorded {recorded}, now {now}"));
            }
            other => {
                let number = state.imports + 1;
                let now = format!("import {number} is {name} with {}", cut(sent.get()));
                state.differ(other.as_ref(), &now);
            }
        }
        Err(wasmtime::Error::msg("the replay has ended"))
    }

    pub(super) fn log(&self, level: &'static str, line: String) {
        let mut state = self.lock();
        if state.log.len() < LOG_LINES_MAX {
            state.log.push((level, line));
        }
    }

    pub(super) fn fail(&self, failure: TapedFailure<'_>) {
        self.lock().failed.get_or_insert_with(|| RecordedEnd {
            kind: failure.kind.as_str().to_owned(),
            message: failure.kind.to_string(),
            function: failure.function.to_owned(),
            backtrace: failure.backtrace,
        });
    }

    fn lock(&self) -> MutexGuard<'_, ReplayState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplayState {
    /// Notes the first difference: what was recorded, if anything, and what happens now.
    fn differ(&mut self, recorded: Option<&Entry>, now: &str) {
        let recorded = recorded.map_or_else(|| format!("the call {}", self.end.message), shown);
        self.note(format!("recorded: {recorded}; now: {now}"));
    }

    fn note(&mut self, difference: String) {
        self.difference.get_or_insert(difference);
    }
}

fn shown(entry: &Entry) -> String {
    match entry {
        Entry::Call { function, .. } => format!("the host calls {function}"),
        Entry::Import { name, sent, .. } => format!("import {name} with {}", cut(sent.get())),
        Entry::Log { line, .. } => format!("a line of the log: {}", cut(line)),
        Entry::Answer(answer) => format!("the guest answers {}", cut(answer.get())),
        Entry::End(end) => format!("the call {}", end.message),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{} [cut]", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Both texts from shortly before their first difference.
fn around_difference(one: &str, other: &str) -> (String, String) {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let from = same.saturating_sub(40);
    let part = |text: &str| {
        let part: String = text.chars().skip(from).take(SHOWN_CHARS_MAX / 2).collect();
        if from > 0 { format!("at character {same}: …{part}") } else { part }
    };
    (part(one), part(other))
}
