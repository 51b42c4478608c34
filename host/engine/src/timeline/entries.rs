//! What a request is recorded as: a sequence of entries, one for each thing that became known. They
//! are held as bytes, so that recording one is a short copy into memory that was used just before,
//! and a kept request is small. [`super::document`] reads them.

use super::step::{FactName, StepType};
use cofferdam_store::{InternId, KeyId, UsageKind, UsageOutcome, UsageRow, WorkspaceId};
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::mem;
use uuid::Uuid;

/// The most steps of one request. Further ones are counted only.
pub(super) const STEPS_MAX: u16 = 256;
/// The most facts of one request.
const FACTS_MAX: u16 = 1024;
/// The most bytes of all names of one request.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// The most bytes of one name.
const NAME_BYTES_MAX: usize = 128;
/// The most bytes of one request; more than all steps, facts and names need.
const ENTRIES_BYTES_MAX: usize = 64 << 10;
/// Room for the entries of a usual request.
const USUAL_BYTES: usize = 768;

/// What is known when a request begins.
#[derive(Debug)]
pub(crate) struct RequestBeginning<'a> {
    /// The id that the client gets in a successful answer.
    pub(crate) request_id: &'a str,
    /// The id of the request in the log of the host.
    pub(crate) log_id: Option<Uuid>,
    pub(crate) started_ms: u64,
    pub(crate) workspace: WorkspaceId,
    pub(crate) key: &'a KeyId,
    pub(crate) intern: Option<InternId>,
    pub(crate) endpoint: UsageKind,
    pub(crate) request_bytes: u64,
}

impl<'a> RequestBeginning<'a> {
    pub(super) fn entry(self) -> Entry<'a> {
        let Self { request_id, log_id, started_ms, workspace, key, intern, endpoint, request_bytes } = self;
        let key = key.as_str();
        Entry::Began { request_id, log_id, started_ms, workspace, key, intern, endpoint, request_bytes }
    }
}

/// One thing that became known about a request. Steps are numbered from 1 in the order in which they
/// began; `at_us` is in microseconds since the request began.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Entry<'a> {
    Began {
        request_id: &'a str,
        log_id: Option<Uuid>,
        started_ms: u64,
        workspace: WorkspaceId,
        key: &'a str,
        intern: Option<InternId>,
        endpoint: UsageKind,
        request_bytes: u64,
    },
    /// What the body asks for.
    Asked {
        model: &'a str,
        streamed: bool,
    },
    /// The HTTP status.
    Answered {
        status: u16,
    },
    /// A canonical error type.
    Failed {
        error: &'a str,
    },
    /// The usage row, as far as it is shown.
    Settled {
        outcome: UsageOutcome,
        model: &'a str,
        provider: &'a str,
        attempts: u32,
        input_tokens: u64,
        cached_tokens: u64,
        output_tokens: u64,
        reasoning_tokens: u64,
        cost_pico: u64,
        byok_pico: u64,
        estimated: bool,
    },
    /// `parent` is the step that this one is a part of; 0 is the request itself.
    StepBegan {
        parent: u16,
        step_type: StepType,
        #[serde(borrow)]
        name: Cow<'a, [&'a str]>,
        at_us: u64,
    },
    /// Of two ends of a step the first one counts.
    StepEnded {
        step: u16,
        at_us: u64,
        busy_us: Option<u64>,
        outcome: &'a str,
    },
    FirstContent {
        step: u16,
        at_us: u64,
    },
    /// Of two facts of a step with the same name the later one counts. Here and in `Text`.
    Number {
        step: u16,
        name: FactName,
        number: u64,
    },
    Text {
        step: u16,
        name: FactName,
        text: &'a str,
    },
    /// The request is over.
    Ended {
        us: u64,
        response_bytes: u64,
        steps_lost: u32,
    },
}

impl<'a> Entry<'a> {
    pub(super) fn settled(row: &'a UsageRow, outcome: UsageOutcome) -> Self {
        Self::Settled {
            outcome,
            model: &row.model,
            provider: &row.provider,
            attempts: row.attempts,
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            output_tokens: row.output_tokens,
            reasoning_tokens: row.reasoning_tokens,
            cost_pico: row.cost_pico,
            byok_pico: row.byok_pico,
            estimated: row.estimated,
        }
    }
}

/// The entries of one request.
#[derive(Debug)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    steps: u16,
    facts: u16,
    text_bytes: usize,
    steps_lost: u32,
}

impl Entries {
    pub(super) fn new() -> Self {
        let bytes = Vec::with_capacity(USUAL_BYTES);
        Self { bytes, steps: 0, facts: 0, text_bytes: 0, steps_lost: 0 }
    }

    /// Adds an entry whose texts are short or have been [cut](Self::cut).
    pub(super) fn add(&mut self, entry: &Entry<'_>) {
        if self.bytes.len() < ENTRIES_BYTES_MAX {
            // Writing to memory does not fail.
            postcard::serialize_with_flavor(entry, Bytes(&mut self.bytes)).unwrap_or_default();
        }
    }

    /// Begins a step whose name consists of `parts`. Returns its number; 0 where there is no room
    /// for it.
    pub(super) fn begin(&mut self, parent: u16, step_type: StepType, parts: &[&str], at_us: u64) -> u16 {
        if self.steps >= STEPS_MAX {
            self.steps_lost = self.steps_lost.saturating_add(1);
            return 0;
        }
        self.steps += 1;
        let length = parts.iter().map(|part| part.len() + 1).sum::<usize>();
        if length <= NAME_BYTES_MAX && self.text_bytes + length <= TEXT_BYTES_MAX {
            self.text_bytes += length;
            self.add(&Entry::StepBegan { parent, step_type, name: Cow::Borrowed(parts), at_us });
        } else {
            let joined = parts.join(" ");
            let name = [self.cut(&joined)];
            self.add(&Entry::StepBegan { parent, step_type, name: Cow::Borrowed(&name), at_us });
        }
        self.steps
    }

    /// Adds a fact to a step.
    pub(super) fn number(&mut self, step: u16, name: FactName, number: u64) {
        if self.takes_fact() {
            self.add(&Entry::Number { step, name, number });
        }
    }

    /// Adds a fact to a step.
    pub(super) fn text(&mut self, step: u16, name: FactName, text: &str) {
        if self.takes_fact() {
            let text = self.cut(text);
            self.add(&Entry::Text { step, name, text });
        }
    }

    fn takes_fact(&mut self) -> bool {
        let takes = self.facts < FACTS_MAX;
        self.facts += u16::from(takes);
        takes
    }

    /// As much of a name as there is room for.
    fn cut<'a>(&mut self, name: &'a str) -> &'a str {
        let room = NAME_BYTES_MAX.min(TEXT_BYTES_MAX - self.text_bytes);
        let name = name.get(..name.floor_char_boundary(room)).unwrap_or_default();
        self.text_bytes += name.len();
        name
    }

    pub(super) fn steps_lost(&self) -> u32 {
        self.steps_lost
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All bytes; nothing is left.
    pub(super) fn take(&mut self) -> Vec<u8> {
        mem::take(&mut self.bytes)
    }
}

/// Reads entries one after the other.
pub(super) fn read(bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (entry, after) = postcard::take_from_bytes(rest).ok()?;
        rest = after;
        Some(entry)
    })
}

/// Where entries are written to.
struct Bytes<'a>(&'a mut Vec<u8>);

impl Flavor for Bytes<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
