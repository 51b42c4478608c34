//! The JSON of a recorded request.

use super::journal::{Entry, HeadText, StepEnd};
use super::record::{RecordHead, TimelineRecord, UsageRecord};
use super::step::{Fact, FactName, FactValue, StepKind, StepType};
use crate::cost::Amount;
use cofferdam_store::UsageKind;
use serde::{Serialize, Serializer};
use uuid::Uuid;

/// One request without its steps.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedRequest {
    /// Its place among the finished requests of this process, from 1. `None` while it runs.
    pub number: Option<u64>,
    /// The id that the client gets in a successful answer.
    pub request_id: String,
    /// The id that its lines in the log of the host have, and the client got as `X-Request-Id`.
    pub log_id: Option<Uuid>,
    /// When it began, in Unix milliseconds.
    #[serde(skip)]
    pub started_ms: u64,
    /// When it began, as RFC 3339 in UTC with milliseconds.
    pub started_at: String,
    /// The workspace that pays.
    pub workspace_id: String,
    /// The API key of the request.
    pub key_id: String,
    /// The intern, if the key is one of an intern.
    pub intern_id: Option<String>,
    /// The endpoint that was called.
    pub endpoint: UsageKind,
    /// Whether a stream was asked for.
    pub streamed: bool,
    /// The model that was asked for, as the client wrote it, at most 128 characters. The only text
    /// of a client. `None` where the body could not be read.
    pub requested_model: Option<String>,
    /// The model that answered, or was asked last.
    pub model: Option<String>,
    /// The provider that answered, or was asked last.
    pub provider: Option<String>,
    /// The HTTP status of the answer. `None` while it runs, and where the client left.
    pub status: Option<u16>,
    /// `completed`, `incomplete`, `failed`, `cancelled` or `interrupted` as in the usage row;
    /// `refused` for a request that was refused before it was routed and has no usage row; `running`.
    pub outcome: &'static str,
    /// The canonical error type, where it failed.
    pub error_type: Option<String>,
    /// Microseconds from the body to the end; until now while it runs.
    pub us: u64,
    /// The number of endpoints that were asked.
    pub attempts: u32,
    /// Input tokens, as in the usage row.
    pub input_tokens: u64,
    /// Those of them that were in the provider's cache.
    pub cached_tokens: u64,
    /// Output tokens, including reasoning.
    pub output_tokens: u64,
    /// Output tokens spent on reasoning.
    pub reasoning_tokens: u64,
    /// What the workspace was charged, in dollars.
    pub cost: Amount,
    /// What was paid to providers with the caller's own credentials, in dollars.
    pub byok_cost: Amount,
    /// Whether some of the counts and costs are estimates of this host.
    pub estimated: bool,
    /// The length of the request's body.
    pub request_bytes: u64,
    /// The bytes of the answer's body so far.
    pub response_bytes: u64,
}

/// One request with its steps.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedTimeline {
    /// The request.
    #[serde(flatten)]
    pub request: RecordedRequest,
    /// Its steps in the order in which they began.
    pub steps: Vec<RecordedStep>,
    /// How many further steps were not kept, because there is room for 256.
    pub steps_lost: u32,
}

impl RecordedTimeline {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let step = |step: &RecordedStep| {
            let fact = |(_, value): &(FactName, RecordedFact)| match value {
                RecordedFact::Text(text) => size_of::<(FactName, RecordedFact)>() + text.len(),
                _ => size_of::<(FactName, RecordedFact)>(),
            };
            size_of::<RecordedStep>() + step.name.len() + step.facts.0.iter().map(fact).sum::<usize>()
        };
        size_of::<Self>() + self.steps.iter().map(step).sum::<usize>()
    }
}

/// One step of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordedStep {
    /// Its number in the request, from 1.
    pub n: u16,
    /// The step that this one is a part of.
    pub parent: Option<u16>,
    /// The side that works.
    pub kind: StepKind,
    /// What is done.
    pub r#type: StepType,
    /// Names of the configuration and fixed words.
    pub name: String,
    /// Microseconds from the beginning of the request to that of the step.
    pub at_us: u64,
    /// How long it took. `None` while it runs.
    pub us: Option<u64>,
    /// Processor time of the guest, where it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_us: Option<u64>,
    /// `ok`, or a fixed word for what went wrong. `None` while it runs.
    pub outcome: Option<String>,
    /// What else is known.
    #[serde(flatten)]
    pub facts: StepFacts,
}

/// What else is known about a step, each fact at most once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFacts(Vec<(FactName, RecordedFact)>);

/// The value of a fact.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RecordedFact {
    /// A count, a status or a time.
    Number(u64),
    /// An amount of money.
    Dollars(Amount),
    /// A fixed word, or a name of the configuration.
    Text(String),
}

impl StepFacts {
    /// The number of this name.
    #[must_use]
    pub fn number(&self, name: FactName) -> Option<u64> {
        match self.get(name)? {
            RecordedFact::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The text of this name.
    #[must_use]
    pub fn text(&self, name: FactName) -> Option<&str> {
        match self.get(name)? {
            RecordedFact::Text(text) => Some(text),
            _ => None,
        }
    }

    fn get(&self, name: FactName) -> Option<&RecordedFact> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, fact)| fact)
    }

    /// Adds a fact. Of facts that were noted twice, the later one counts.
    fn set(&mut self, name: FactName, fact: RecordedFact) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = fact,
            None => self.0.push((name, fact)),
        }
    }
}

impl Serialize for StepFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, fact)| (name, fact)))
    }
}

impl RecordedRequest {
    /// Whether the request ended without an answer.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        matches!(self.outcome, "failed" | "refused") || self.status.is_some_and(|status| status >= 400)
    }
}

impl RecordedTimeline {
    /// The document of a request that has ended. `number` is `None` where it is not kept.
    pub(super) fn finished(record: &TimelineRecord, number: Option<u64>) -> Self {
        let mut steps = Self::steps(record);
        for step in steps.iter_mut().filter(|step| step.us.is_none()) {
            step.us = Some(record.head.us.saturating_sub(step.at_us));
            step.outcome = Some("unfinished".to_owned());
        }
        let request = RecordedRequest::finished(record, number);
        Self { request, steps, steps_lost: record.head.steps_lost }
    }

    /// The document of a request that runs.
    pub(super) fn running(record: &TimelineRecord) -> Self {
        let (request, steps) = (RecordedRequest::running(record), Self::steps(record));
        Self { request, steps, steps_lost: record.head.steps_lost }
    }

    fn steps(record: &TimelineRecord) -> Vec<RecordedStep> {
        let mut steps: Vec<RecordedStep> = Vec::new();
        for entry in record.journal.entries() {
            match entry.step() {
                None => steps.extend(RecordedStep::begun(number_after(&steps), entry)),
                Some(n) => {
                    let step = usize::from(n).checked_sub(1).and_then(|at| steps.get_mut(at));
                    step.into_iter().for_each(|step| step.take(entry));
                }
            }
        }
        steps
    }
}

impl RecordedRequest {
    /// The head of a request that has ended. `number` is `None` where it is not kept.
    pub(super) fn finished(record: &TimelineRecord, number: Option<u64>) -> Self {
        let outcome = match &record.head.usage {
            Some(usage) => usage.outcome.as_str(),
            // A request without a usage row was refused, or its client has left.
            None if record.head.error.is_some() => "refused",
            None if record.head.status.is_some() => "completed",
            None => "cancelled",
        };
        Self { number, outcome, ..Self::running(record) }
    }

    fn running(record: &TimelineRecord) -> Self {
        let RecordHead { usage, .. } = &record.head;
        let count = |count: fn(&UsageRecord) -> u64| usage.as_ref().map_or(0, count);
        let named = |name: fn(&UsageRecord) -> HeadText| {
            let name = record.text(name(usage.as_ref()?));
            (!name.is_empty()).then(|| name.to_owned())
        };
        Self {
            number: None,
            request_id: record.text(record.head.request_id).to_owned(),
            log_id: record.head.log_id,
            started_ms: record.head.started_ms,
            started_at: timestamp(record.head.started_ms),
            workspace_id: record.head.workspace.to_string(),
            key_id: record.head.key.as_str().to_owned(),
            intern_id: record.head.intern.map(|intern| intern.to_string()),
            endpoint: record.head.endpoint,
            streamed: record.head.streamed,
            requested_model: record.head.requested_model.map(|model| record.text(model).to_owned()),
            model: named(|usage| usage.model),
            provider: named(|usage| usage.provider),
            status: record.head.status,
            outcome: "running",
            error_type: record.head.error.map(str::to_owned),
            us: record.head.us,
            attempts: usage.as_ref().map_or(0, |usage| usage.attempts),
            input_tokens: count(|usage| usage.input_tokens),
            cached_tokens: count(|usage| usage.cached_tokens),
            output_tokens: count(|usage| usage.output_tokens),
            reasoning_tokens: count(|usage| usage.reasoning_tokens),
            cost: Amount(count(|usage| usage.cost_pico)),
            byok_cost: Amount(count(|usage| usage.byok_pico)),
            estimated: usage.as_ref().is_some_and(|usage| usage.estimated),
            request_bytes: record.head.request_bytes,
            response_bytes: record.head.response_bytes,
        }
    }
}

impl RecordedStep {
    /// A step of a request as it is now.
    pub(super) fn of(record: &TimelineRecord, n: u16) -> Option<Self> {
        let mut entries = record.journal.entries();
        let nth = usize::from(n).checked_sub(1)?;
        let begin = entries.by_ref().filter(|entry| entry.step().is_none()).nth(nth)?;
        let mut step = Self::begun(n, begin)?;
        entries.filter(|entry| entry.step() == Some(n)).for_each(|entry| step.take(entry));
        Some(step)
    }

    /// The step that begins with this entry.
    fn begun(n: u16, entry: Entry<'_>) -> Option<Self> {
        let Entry::Begin { step_type, parent, at_us, name } = entry else { return None };
        Some(Self {
            n,
            parent: (parent != 0).then_some(parent),
            kind: step_type.kind(),
            r#type: step_type,
            name: name.to_owned(),
            at_us,
            us: None,
            busy_us: None,
            outcome: None,
            facts: StepFacts::default(),
        })
    }

    /// Takes over what an entry says about the step.
    fn take(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Begin { .. } => {}
            Entry::End { end: StepEnd { at_us, busy_us, outcome }, .. } => {
                if self.us.is_none() {
                    self.us = Some(at_us.saturating_sub(self.at_us));
                    (self.busy_us, self.outcome) = (busy_us, Some(outcome.to_owned()));
                }
            }
            Entry::Fact { fact, .. } => self.facts.set(fact.name, self.fact(fact)),
        }
    }

    fn fact(&self, Fact { name, value }: Fact<'_>) -> RecordedFact {
        match value {
            FactValue::Number(pico) if name == FactName::Cost => RecordedFact::Dollars(Amount(pico)),
            // It is noted as a time since the request began.
            FactValue::Number(at_us) if name == FactName::FirstContentUs => {
                RecordedFact::Number(at_us.saturating_sub(self.at_us))
            }
            FactValue::Number(number) => RecordedFact::Number(number),
            FactValue::Text(text) => RecordedFact::Text(text.to_owned()),
        }
    }
}

/// The number of the step after these.
fn number_after(steps: &[RecordedStep]) -> u16 {
    steps.last().map_or(1, |last| last.n + 1)
}

/// Unix milliseconds as RFC 3339 in UTC.
fn timestamp(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(String::new, |at| format!("{at:.3}"))
}
