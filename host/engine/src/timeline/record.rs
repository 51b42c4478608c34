//! What is recorded of one request. It is kept in the form in which it becomes known: noting something is a short
//! copy into memory that was used just before, and an end is written into its step. [`super::document`] makes the
//! documents that operators read.

use super::step::{Fact, FactName, FactValue, StepType};
use cofferdam_store::{InternId, KeyId, UsageKind, UsageOutcome, UsageRow, WorkspaceId};
use uuid::Uuid;

/// The most steps of one request. Further ones are counted only.
pub(super) const STEPS_MAX: usize = 256;
/// The most facts of one request.
const FACTS_MAX: usize = 1024;
/// The most bytes of all names of the steps and facts of one request.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// The most bytes of one name of a step or fact.
const NAME_BYTES_MAX: usize = 128;
/// The most bytes of one text of the request itself: its id and its models.
const HEAD_TEXT_BYTES_MAX: usize = 512;
/// Room for the steps, facts and texts of a usual request.
const USUAL: [usize; 3] = [16, 32, 384];

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

impl RequestBeginning<'_> {
    /// The head of a record, without its texts.
    fn head(&self) -> RecordHead {
        let Self { log_id, started_ms, workspace, key, intern, endpoint, request_bytes, .. } = *self;
        RecordHead {
            request_id: Text::default(),
            log_id,
            started_ms,
            workspace,
            key: *key,
            intern,
            endpoint,
            request_bytes,
            requested_model: None,
            streamed: false,
            status: None,
            error: None,
            usage: None,
            us: 0,
            response_bytes: 0,
            steps_lost: 0,
        }
    }
}

/// A text in a record: its place in the bytes of all texts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Text {
    start: u16,
    length: u16,
}

/// What is known about the request as a whole.
#[derive(Clone, Debug)]
pub(super) struct RecordHead {
    pub(super) request_id: Text,
    pub(super) log_id: Option<Uuid>,
    pub(super) started_ms: u64,
    pub(super) workspace: WorkspaceId,
    pub(super) key: KeyId,
    pub(super) intern: Option<InternId>,
    pub(super) endpoint: UsageKind,
    pub(super) request_bytes: u64,
    pub(super) requested_model: Option<Text>,
    pub(super) streamed: bool,
    pub(super) status: Option<u16>,
    /// A canonical error type.
    pub(super) error: Option<&'static str>,
    pub(super) usage: Option<UsageRecord>,
    /// How long the request took.
    pub(super) us: u64,
    pub(super) response_bytes: u64,
    pub(super) steps_lost: u32,
}

/// The usage row, as far as it is shown.
#[derive(Clone, Debug)]
pub(super) struct UsageRecord {
    pub(super) outcome: UsageOutcome,
    pub(super) model: Text,
    pub(super) provider: Text,
    pub(super) attempts: u32,
    pub(super) input_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) reasoning_tokens: u64,
    pub(super) cost_pico: u64,
    pub(super) byok_pico: u64,
    pub(super) estimated: bool,
}

/// One step. Times are in microseconds since the request began.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepRecord {
    pub(super) at_us: u64,
    pub(super) end: Option<StepEnd>,
    pub(super) name: Text,
    /// The number of the step that this one is a part of; 0 is the request itself.
    pub(super) parent: u16,
    pub(super) step_type: StepType,
}

/// How a step ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepEnd {
    pub(super) at_us: u64,
    /// Processor time of the guest, where it is measured.
    pub(super) busy_us: Option<u64>,
    /// `ok`, or a fixed word for what went wrong.
    pub(super) outcome: &'static str,
}

/// One fact about a step. Of two facts with the same name the later one counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct FactRecord {
    pub(super) value: RecordedValue,
    /// The number of the step.
    pub(super) step: u16,
    pub(super) name: FactName,
}

/// The value of a fact.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordedValue {
    Number(u64),
    Text(Text),
}

/// One request. Steps are numbered from 1 in the order in which they began.
#[derive(Clone, Debug)]
pub(super) struct TimelineRecord {
    pub(super) head: RecordHead,
    pub(super) steps: Vec<StepRecord>,
    pub(super) facts: Vec<FactRecord>,
    pub(super) texts: String,
    /// The bytes of `texts` that steps and facts use.
    step_text_bytes: usize,
}

impl TimelineRecord {
    /// Memory for a usual request, which is [renewed](Self::renew) for each.
    pub(super) fn new(beginning: &RequestBeginning<'_>) -> Self {
        let [steps, facts, texts] = USUAL;
        let (steps, facts) = (Vec::with_capacity(steps), Vec::with_capacity(facts));
        Self::of(beginning.head(), steps, facts, String::with_capacity(texts))
    }

    pub(super) fn of(
        head: RecordHead,
        steps: Vec<StepRecord>,
        facts: Vec<FactRecord>,
        texts: String,
    ) -> Self {
        Self { head, steps, facts, texts, step_text_bytes: 0 }
    }

    /// Makes this the record of a request that begins.
    pub(super) fn renew(&mut self, beginning: &RequestBeginning<'_>) {
        self.head = beginning.head();
        self.steps.clear();
        self.facts.clear();
        self.texts.clear();
        self.step_text_bytes = 0;
        self.head.request_id = self.head_text(beginning.request_id);
    }

    /// Whether the record takes no more memory than that of a usual request.
    pub(super) fn is_small(&self) -> bool {
        let capacities = [self.steps.capacity(), self.facts.capacity(), self.texts.capacity()];
        capacities.iter().zip(USUAL).all(|(capacity, usual)| *capacity <= 2 * usual)
    }

    pub(super) fn is_of(&self, request_id: &str) -> bool {
        self.text(self.head.request_id) == request_id
    }

    /// The ids of the request in the log and of its answer.
    pub(super) fn ids(&self) -> Option<(Uuid, String)> {
        Some((self.head.log_id?, self.text(self.head.request_id).to_owned()))
    }

    /// Notes what the body asks for.
    pub(super) fn asked(&mut self, model: &str, streamed: bool) {
        (self.head.requested_model, self.head.streamed) = (Some(self.head_text(model)), streamed);
    }

    /// Notes the usage row.
    pub(super) fn settled(&mut self, row: &UsageRow, outcome: UsageOutcome) {
        self.head.usage = Some(UsageRecord {
            outcome,
            model: self.head_text(&row.model),
            provider: self.head_text(&row.provider),
            attempts: row.attempts,
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            output_tokens: row.output_tokens,
            reasoning_tokens: row.reasoning_tokens,
            cost_pico: row.cost_pico,
            byok_pico: row.byok_pico,
            estimated: row.estimated,
        });
    }

    /// Begins a step whose name consists of `parts`. Returns its number; 0 where there is no room for it.
    pub(super) fn begin(&mut self, parent: u16, step_type: StepType, parts: &[&str], at_us: u64) -> u16 {
        if self.steps.len() >= STEPS_MAX {
            self.head.steps_lost = self.head.steps_lost.saturating_add(1);
            return 0;
        }
        let name = self.step_text(parts);
        self.steps.push(StepRecord { at_us, end: None, name, parent, step_type });
        number_of(self.steps.len())
    }

    /// Ends a step. Of two ends of a step the first one counts.
    pub(super) fn end(&mut self, step: u16, end: StepEnd) {
        if let Some(step) = self.step_mut(step) {
            step.end.get_or_insert(end);
        }
    }

    /// Adds facts to a step.
    pub(super) fn add(&mut self, step: u16, facts: &[Option<Fact<'_>>]) {
        for Fact { name, value } in facts.iter().flatten() {
            if self.facts.len() >= FACTS_MAX {
                return;
            }
            let value = match value {
                FactValue::Number(number) => RecordedValue::Number(*number),
                FactValue::Text(text) => RecordedValue::Text(self.step_text(&[text])),
            };
            self.facts.push(FactRecord { value, step, name: *name });
        }
    }

    pub(super) fn step(&self, n: u16) -> Option<&StepRecord> {
        self.steps.get(usize::from(n).checked_sub(1)?)
    }

    fn step_mut(&mut self, n: u16) -> Option<&mut StepRecord> {
        self.steps.get_mut(usize::from(n).checked_sub(1)?)
    }

    /// A text that was put into this record.
    pub(super) fn text(&self, text: Text) -> &str {
        let start = usize::from(text.start);
        self.texts.get(start..start + usize::from(text.length)).unwrap_or_default()
    }

    /// Puts in a text of the request itself.
    fn head_text(&mut self, text: &str) -> Text {
        self.put(&[text], HEAD_TEXT_BYTES_MAX)
    }

    /// Puts in a name of a step or fact.
    fn step_text(&mut self, parts: &[&str]) -> Text {
        let text = self.put(parts, NAME_BYTES_MAX.min(TEXT_BYTES_MAX - self.step_text_bytes));
        self.step_text_bytes += usize::from(text.length);
        text
    }

    /// Puts in as much of a text as there is room for. Its parts are separated by spaces.
    fn put(&mut self, parts: &[&str], room: usize) -> Text {
        let start = self.texts.len();
        let end = start + room;
        for part in parts {
            if (start + 1..end).contains(&self.texts.len()) {
                self.texts.push(' ');
            }
            let left = end - self.texts.len();
            if part.len() > left {
                self.texts.push_str(part.get(..part.floor_char_boundary(left)).unwrap_or_default());
                break;
            }
            self.texts.push_str(part);
        }
        Text { start: number_of(start), length: number_of(self.texts.len() - start) }
    }
}

/// Counts and places in a record are far below the limit of the type.
fn number_of(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
