//! What goes through the border of a guest in one call. While a call is recorded, the tape takes
//! down each step. While it is replayed, the tape gives the recorded answers and compares.
//!
//! Nothing that the host injects into requests is on a tape, because it never was in the guest.

mod record;
mod replay;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::CallErrorKind;
use crate::inputs::GuestInputs;
use crate::recording::json;
use crate::services::SentSearch;

pub(crate) use record::{CallRecorder, RecordingPlan};
pub(crate) use replay::{CallReplay, ReplayState};

/// The tape of one call, or of one attempt at a provider.
pub(crate) enum Tape {
    Record(CallRecorder),
    Replay(CallReplay),
}

/// How a call failed, for the tape.
pub(crate) struct TapedFailure<'a> {
    pub(crate) kind: &'a CallErrorKind,
    pub(crate) function: &'static str,
    pub(crate) backtrace: Option<String>,
}

/// A question of the guest to the host.
pub(crate) struct Asked {
    /// While it is recorded: where the answer is noted.
    open: Option<OpenQuestion>,
    /// In a replay: the recorded answer.
    recorded: Option<Box<RawValue>>,
}

struct OpenQuestion {
    tape: Arc<Tape>,
    name: &'static str,
    sent: Box<RawValue>,
}

impl Tape {
    /// The host calls a function of the guest.
    pub(crate) fn call(&self, function: &'static str, input: &impl Serialize) {
        match self {
            Self::Record(recorder) => {
                if let Some(input) = recorder.written(input) {
                    recorder.call(function, input);
                }
            }
            Self::Replay(replay) => replay.call(function),
        }
    }

    /// The guest has answered the call.
    pub(crate) fn answer(&self, answer: &impl Serialize) {
        match self {
            Self::Record(recorder) => {
                if let Some(answer) = recorder.written(answer) {
                    recorder.answer(answer);
                }
            }
            Self::Replay(replay) => replay.answer(&json::write(answer)),
        }
    }

    /// The guest asks the host through an import.
    ///
    /// # Errors
    ///
    /// In a replay: the guest asked for something else than in the recording. The error ends it.
    pub(crate) fn ask(
        self: &Arc<Self>,
        name: &'static str,
        sent: &impl Serialize,
    ) -> wasmtime::Result<Asked> {
        match &**self {
            Self::Record(recorder) => {
                let sent = recorder.written(sent);
                let open = sent.map(|sent| OpenQuestion { tape: Arc::clone(self), name, sent });
                Ok(Asked { open, recorded: None })
            }
            Self::Replay(replay) => {
                Ok(Asked { open: None, recorded: Some(replay.ask(name, &json::write(sent))?) })
            }
        }
    }

    /// The guest writes a line to the log.
    pub(crate) fn log(&self, level: &'static str, line: String) {
        match self {
            Self::Record(recorder) => recorder.log(level, line),
            Self::Replay(replay) => replay.log(level, line),
        }
    }

    /// The call has failed.
    pub(crate) fn fail(&self, failure: TapedFailure<'_>) {
        match self {
            Self::Record(recorder) => recorder.fail(failure),
            Self::Replay(replay) => replay.fail(failure),
        }
    }

    /// Before it is written, a recording of this call is searched with `search` too.
    pub(crate) fn search_with(&self, search: impl FnOnce() -> Box<dyn SentSearch>) {
        if let Self::Record(recorder) = self {
            recorder.search_with(search());
        }
    }

    /// A reading of the machine with this many bytes: recorded, or the recorded one. After a difference it is the default.
    fn reading<T>(
        self: &Arc<Self>,
        name: &'static str,
        bytes: usize,
        read: impl FnOnce(&dyn GuestInputs) -> T,
    ) -> T
    where
        T: Serialize + DeserializeOwned + Default,
    {
        // A difference is noted, and ends the replay at the next import.
        let Ok(asked) = self.ask(name, &bytes) else { return T::default() };
        match &**self {
            Self::Record(recorder) => {
                let value = read(recorder.machine());
                asked.note(&value);
                value
            }
            Self::Replay(_) => asked.recorded().ok().flatten().unwrap_or_default(),
        }
    }
}

/// Asks the tape, if there is one.
///
/// # Errors
///
/// As for [`Tape::ask`].
pub(crate) fn ask(
    tape: Option<&Arc<Tape>>,
    name: &'static str,
    sent: &impl Serialize,
) -> wasmtime::Result<Asked> {
    tape.map_or(Ok(Asked { open: None, recorded: None }), |tape| tape.ask(name, sent))
}

impl Asked {
    /// The recorded answer, in a replay.
    ///
    /// # Errors
    ///
    /// The recorded answer is not of the import's type.
    pub(crate) fn recorded<T: DeserializeOwned>(&self) -> wasmtime::Result<Option<T>> {
        let Some(recorded) = &self.recorded else { return Ok(None) };
        let answer = json::read_text(recorded.get());
        answer.map(Some).map_err(|error| wasmtime::Error::msg(format!("a recorded answer: {error}")))
    }

    /// Records the answer.
    pub(crate) fn note(mut self, answer: &impl Serialize) {
        #[cfg(debug_assertions)]
        crate::guest_memory::search_handed("the answer to an import", answer);
        if let Some(OpenQuestion { tape, name, sent }) = self.open.take()
            && let Tape::Record(recorder) = &*tape
            && let Some(answer) = recorder.written(answer)
        {
            recorder.import(name, sent, Some(answer));
        }
    }
}

impl Drop for Asked {
    /// A question that the host did not answer before the call ended.
    fn drop(&mut self) {
        if let Some(OpenQuestion { tape, name, sent }) = self.open.take()
            && let Tape::Record(recorder) = &*tape
        {
            recorder.import(name, sent, None);
        }
    }
}

/// The tape as the source of clock readings and random bytes.
pub(crate) struct TapedInputs(pub(crate) Arc<Tape>);

impl fmt::Debug for TapedInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TapedInputs")
    }
}

impl GuestInputs for TapedInputs {
    fn wall_ms(&self) -> u64 {
        self.0.reading("wall clock", 8, |machine| machine.wall_ms())
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.reading("monotonic clock", 8, |machine| machine.monotonic_ns())
    }

    fn random(&self, bytes: &mut [u8]) {
        let length = bytes.len();
        let read = |machine: &dyn GuestInputs| {
            let mut bytes = vec![0; length];
            machine.random(&mut bytes);
            bytes
        };
        let recorded: Vec<u8> = self.0.reading("random bytes", length, read);
        for (byte, recorded) in bytes.iter_mut().zip(recorded) {
            *byte = recorded;
        }
    }
}
