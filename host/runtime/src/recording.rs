//! The file of a recorded call: lines of JSON. The first line is the head, each further line an
//! entry in the order in which it happened, and the last entry says how the call ended.

pub(crate) mod json;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version of the form, in the head of each recording.
pub(crate) const FORM: u32 = 1;
/// Length limit of one recording in bytes, in memory and as a file.
pub const RECORDING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What was called, and all that belongs to the call beside its input.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordingHead {
    /// The version of the form.
    pub cofferdam_recording: u32,
    /// The plugin's name.
    pub plugin: String,
    /// SHA-256 of the component, in hexadecimal.
    pub component_sha256: String,
    /// The contract of the host that recorded.
    pub contract: String,
    /// The version of the host that recorded.
    pub host_version: String,
    /// The id of the response or embedding that was being made.
    pub request_id: String,
    /// The workspace's id.
    pub workspace: String,
    /// The time of the call: Unix time in milliseconds.
    pub now_ms: u64,
    /// What the plugin may do, as far as a replay needs it.
    pub grant: RecordedGrant,
    /// The text of the manifest.
    pub manifest: String,
}

/// The part of a plugin's grant that its guest can notice.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedGrant {
    /// Imports that are granted by name.
    pub imports: Vec<String>,
    /// Hosts that are granted by name.
    pub hosts: Vec<String>,
    /// Whether every public host is granted.
    pub any_host: bool,
    /// The operator's memory limit.
    pub memory_mib: Option<u32>,
    /// Processor time of a call.
    pub deadline_ms: u64,
    /// The operator's settings for the plugin.
    pub settings: serde_json::Value,
}

/// One step of a call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// The host called a function of the guest.
    Call { function: String, input: Box<RawValue> },
    /// The guest asked the host. While it waits for the answer, `waits` is true.
    Import { name: String, sent: Box<RawValue>, answer: Box<RawValue>, waits: bool },
    /// The guest wrote to the log.
    Log { level: String, line: String },
    /// The guest's answer to the call.
    Answer(Box<RawValue>),
    /// The call failed.
    End(RecordedEnd),
}

/// How a call failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedEnd {
    /// The label of the error in metrics.
    pub kind: String,
    /// The error in words.
    pub message: String,
    /// The function in which it failed.
    pub function: String,
    /// The functions of the guest that were running.
    pub backtrace: Option<String>,
}

/// A recording that was read.
#[derive(Debug)]
pub struct Recording {
    /// What was called.
    pub head: RecordingHead,
    pub(crate) entries: Vec<Entry>,
    /// How the call failed.
    pub end: RecordedEnd,
}

/// Why a text is not a recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// It is longer than a recording can be.
    #[error("is longer than {} MiB, the limit of a recording", RECORDING_BYTES_MAX >> 20)]
    TooLong,
    /// Another version of the host has written it.
    #[error("has form {0}; this program reads form {FORM}")]
    OtherForm(u32),
    /// A line is not what it should be.
    #[error("line {line}: {message}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// The last line is missing.
    #[error("does not say how the call ended: its last lines are missing")]
    NoEnd,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    ///
    /// The text is not a whole recording of this form.
    pub fn parse(text: &str) -> Result<Self, RecordingError> {
        #[derive(Deserialize)]
        struct Form {
            cofferdam_recording: u32,
        }
        // The head is not counted in the limit of the entries.
        if text.len() > 2 * RECORDING_BYTES_MAX {
            return Err(RecordingError::TooLong);
        }
        let wrong = |line: usize| {
            move |error: serde_json::Error| RecordingError::Line {
                line: line + 1,
                message: format!("this is not a recording: {error}"),
            }
        };
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let form: Form = serde_json::from_str(first).map_err(wrong(0))?;
        if form.cofferdam_recording != FORM {
            return Err(RecordingError::OtherForm(form.cofferdam_recording));
        }
        let head = serde_json::from_str(first).map_err(wrong(0))?;
        let read = |(line, text)| serde_json::from_str(text).map_err(wrong(line + 1));
        let mut entries: Vec<Entry> = lines.enumerate().map(read).collect::<Result<_, _>>()?;
        match entries.pop() {
            Some(Entry::End(end)) => Ok(Self { head, entries, end }),
            _ => Err(RecordingError::NoEnd),
        }
    }

    /// The function of the first call and its input as JSON, in which bytes are written as
    /// `{"$text": ...}` or `{"$base64": ...}`. `None` if the guest failed while it started.
    #[must_use]
    pub fn first_call(&self) -> Option<(&str, &str)> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Call { function, input } => Some((function.as_str(), input.get())),
            _ => None,
        })
    }

    /// All calls of functions, in this order. Tools, hooks and routers have one.
    pub fn calls(&self) -> impl Iterator<Item = RecordedCall<'_>> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Call { function, input } => Some(RecordedCall { function, input }),
            _ => None,
        })
    }

    /// What the guest asked the host for, in this order.
    pub fn imports(&self) -> impl Iterator<Item = RecordedImport<'_>> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Import { name, sent, answer, waits } => {
                Some(RecordedImport { name, sent, answer: (!waits).then_some(answer) })
            }
            _ => None,
        })
    }

    /// The name of the tool's function in the input of the first call, if that runs one.
    #[must_use]
    pub fn first_function(&self) -> Option<String> {
        let (_, input) = self.first_call().filter(|(function, _)| *function == "invoke")?;
        let input: Vec<serde_json::Value> = serde_json::from_str(input).ok()?;
        input.first()?.as_str().map(str::to_owned)
    }

    /// The bytes that stand in the input of the first call at this index.
    #[must_use]
    pub fn first_input(&self, index: usize) -> Option<Vec<u8>> {
        let (_, input) = self.first_call()?;
        let input: Vec<serde_json::Value> = serde_json::from_str(input).ok()?;
        json::read(input.get(index)?.clone()).ok()
    }
}

/// A call of a function of a guest.
#[derive(Debug, Clone, Copy)]
pub struct RecordedCall<'r> {
    /// The function, such as `generation.prepare`.
    pub function: &'r str,
    input: &'r RawValue,
}

impl RecordedCall<'_> {
    /// The parameters, as a tuple of the types in [`crate::wire`]. `None` if they are others.
    #[must_use]
    pub fn input<T: DeserializeOwned>(&self) -> Option<T> {
        json::read_text(self.input.get()).ok()
    }
}

/// What a guest asked the host for, and the answer.
#[derive(Debug, Clone, Copy)]
pub struct RecordedImport<'r> {
    /// The function of the import, such as `http.send`, or what was read of the machine: `wall clock`,
    /// `monotonic clock` or `random bytes`.
    pub name: &'r str,
    sent: &'r RawValue,
    answer: Option<&'r RawValue>,
}

impl RecordedImport<'_> {
    /// What the guest gave; the type is that of the import's parameters. `None` if it is another one.
    #[must_use]
    pub fn sent<T: DeserializeOwned>(&self) -> Option<T> {
        json::read_text(self.sent.get()).ok()
    }

    /// What the host answered; the type is that of the import's result. `None` if it is another one,
    /// or if the call ended while the guest waited.
    #[must_use]
    pub fn answer<T: DeserializeOwned>(&self) -> Option<T> {
        json::read_text(self.answer?.get()).ok()
    }

    /// Whether the call ended before there was an answer.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.answer.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_recording_is_refused_with_its_line() {
        let message = |text: &str| Recording::parse(text).unwrap_err().to_string();
        assert!(message("").starts_with("line 1: this is not a recording"), "{}", message(""));
        assert!(message("{\"cofferdam_recording\":1}").starts_with("line 1: this is not a recording"));
        assert_eq!(message("{\"cofferdam_recording\":2}"), "has form 2; this program reads form 1");
    }
}
