//! The JSON of a recorded request.

use super::head::{RequestBeginning, RequestHead};
use super::step::{FactName, FactValue, StepKind, StepType, StepView};
use crate::cost::Amount;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::UsageKind;
use serde::{Serialize, Serializer};

/// One request without its steps.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedRequest {
    /// Its place among the finished requests of this process, from 1. `None` while it runs.
    pub number: Option<u64>,
    /// The id that the client gets in a successful answer.
    pub request_id: String,
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
    pub error_type: Option<&'static str>,
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
    pub outcome: Option<&'static str>,
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

    /// Of facts that were noted twice, the later one counts.
    fn of(view: &StepView<'_>) -> Self {
        let mut facts: Vec<(FactName, RecordedFact)> = Vec::new();
        for (name, value) in view.facts() {
            let fact = match value {
                FactValue::Number(pico) if name == FactName::Cost => RecordedFact::Dollars(Amount(pico)),
                FactValue::Number(number) => RecordedFact::Number(number),
                FactValue::Word(text) | FactValue::Name(text) => RecordedFact::Text(text.to_owned()),
            };
            match facts.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = fact,
                None => facts.push((name, fact)),
            }
        }
        Self(facts)
    }
}

impl Serialize for StepFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, fact)| (name, fact)))
    }
}

impl RecordedStep {
    pub(super) fn of(view: &StepView<'_>) -> Self {
        Self {
            n: view.n,
            parent: (view.step.parent != 0).then_some(view.step.parent),
            kind: view.step.step_type.kind(),
            r#type: view.step.step_type,
            name: view.name().to_owned(),
            at_us: view.step.at_us,
            us: view.us(),
            busy_us: view.busy_us(),
            outcome: view.outcome(),
            facts: StepFacts::of(view),
        }
    }
}

impl RecordedRequest {
    /// Whether the request ended without an answer.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        matches!(self.outcome, "failed" | "refused") || self.status.is_some_and(|status| status >= 400)
    }

    /// The document of a request. `number` and `us` are known at its end only.
    pub(super) fn of(
        begun: &RequestBeginning,
        head: &RequestHead,
        number: Option<u64>,
        us: u64,
        response_bytes: u64,
    ) -> Self {
        let some = |name: &String| (!name.is_empty()).then(|| name.clone());
        let RequestHead { usage, .. } = head;
        Self {
            number,
            request_id: begun.request_id.to_string(),
            started_ms: begun.started_ms,
            started_at: timestamp(begun.started_ms),
            workspace_id: begun.workspace.to_string(),
            key_id: begun.key.to_string(),
            intern_id: begun.intern.map(|intern| intern.to_string()),
            endpoint: begun.endpoint,
            streamed: head.streamed,
            requested_model: head.requested.clone(),
            model: some(&usage.model),
            provider: some(&usage.provider),
            status: head.status,
            outcome: head.outcome(number.is_none()),
            error_type: head.error.map(ErrorKind::as_str),
            us,
            attempts: usage.attempts,
            input_tokens: usage.input_tokens,
            cached_tokens: usage.cached_tokens,
            output_tokens: usage.output_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            cost: Amount(usage.cost_pico),
            byok_cost: Amount(usage.byok_pico),
            estimated: usage.estimated,
            request_bytes: begun.request_bytes,
            response_bytes,
        }
    }
}

/// Unix milliseconds as RFC 3339 in UTC.
fn timestamp(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(String::new, |at| format!("{at:.3}"))
}
