//! The JSON of a recorded request.

use super::entries::{Entry, read};
use super::step::{FactName, StepKind, StepType};
use crate::cost::Amount;
use cofferdam_store::{UsageKind, UsageOutcome};
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
    pub(super) fn finished(entries: &[u8], number: Option<u64>) -> Self {
        let mut document = Self::empty();
        document.request.number = number;
        let usage_outcome = read(entries).fold(None, |known, entry| document.take(entry).or(known));
        let head = &mut document.request;
        head.outcome = match (usage_outcome, head.status) {
            (Some(outcome), _) => outcome_word(outcome),
            // A request without a usage row was refused, or its client has left.
            (None, _) if head.error_type.is_some() => "refused",
            (None, Some(_)) => "completed",
            (None, None) => "cancelled",
        };
        for step in document.steps.iter_mut().filter(|step| step.us.is_none()) {
            step.end(head.us, None, "unfinished");
        }
        document
    }

    /// The document of a request that runs, without what is counted outside of its entries.
    pub(super) fn running(entries: &[u8]) -> Self {
        let mut document = Self::empty();
        for entry in read(entries) {
            document.take(entry);
        }
        document
    }

    fn empty() -> Self {
        let request = RecordedRequest {
            number: None,
            request_id: String::new(),
            log_id: None,
            started_ms: 0,
            started_at: String::new(),
            workspace_id: String::new(),
            key_id: String::new(),
            intern_id: None,
            endpoint: UsageKind::Responses,
            streamed: false,
            requested_model: None,
            model: None,
            provider: None,
            status: None,
            outcome: "running",
            error_type: None,
            us: 0,
            attempts: 0,
            input_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            reasoning_tokens: 0,
            cost: Amount(0),
            byok_cost: Amount(0),
            estimated: false,
            request_bytes: 0,
            response_bytes: 0,
        };
        Self { request, steps: Vec::new(), steps_lost: 0 }
    }

    /// Adds what an entry tells. Returns the outcome of the usage row, if the entry has it.
    fn take(&mut self, entry: Entry<'_>) -> Option<UsageOutcome> {
        let head = &mut self.request;
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        match entry {
            Entry::Began {
                request_id,
                log_id,
                started_ms,
                workspace,
                key,
                intern,
                endpoint,
                request_bytes,
            } => {
                (head.request_id, head.log_id) = (request_id.to_owned(), log_id);
                (head.started_ms, head.started_at) = (started_ms, timestamp(started_ms));
                (head.workspace_id, head.key_id) = (workspace.to_string(), key.to_owned());
                head.intern_id = intern.map(|intern| intern.to_string());
                (head.endpoint, head.request_bytes) = (endpoint, request_bytes);
            }
            Entry::Asked { model, streamed } => {
                (head.requested_model, head.streamed) = (Some(model.to_owned()), streamed);
            }
            Entry::Answered { status } => head.status = Some(status),
            Entry::Failed { error } => head.error_type = Some(error.to_owned()),
            Entry::Settled { outcome, model, provider, attempts, estimated, .. } => {
                (head.model, head.provider) = (named(model), named(provider));
                (head.attempts, head.estimated) = (attempts, estimated);
                head.count(&entry);
                return Some(outcome);
            }
            Entry::Ended { us, response_bytes, steps_lost } => {
                (head.us, head.response_bytes, self.steps_lost) = (us, response_bytes, steps_lost);
            }
            step => self.take_step(step),
        }
        None
    }

    fn take_step(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::StepBegan { parent, step_type, name, at_us } => {
                let n = u16::try_from(self.steps.len() + 1).unwrap_or(u16::MAX);
                self.steps.push(RecordedStep {
                    n,
                    parent: (parent != 0).then_some(parent),
                    kind: step_type.kind(),
                    r#type: step_type,
                    name: name.join(" "),
                    at_us,
                    us: None,
                    busy_us: None,
                    outcome: None,
                    facts: StepFacts::default(),
                });
            }
            Entry::StepEnded { step, at_us, busy_us, outcome } => {
                if let Some(step) = self.step(step).filter(|step| step.us.is_none()) {
                    step.end(at_us, busy_us, outcome);
                }
            }
            Entry::FirstContent { step, at_us } => {
                if let Some(step) = self.step(step) {
                    let since = at_us.saturating_sub(step.at_us);
                    step.facts.set(FactName::FirstContentUs, RecordedFact::Number(since));
                }
            }
            Entry::Number { step, name, number } => {
                let is_cost = name == FactName::Cost;
                let fact = if is_cost {
                    RecordedFact::Dollars(Amount(number))
                } else {
                    RecordedFact::Number(number)
                };
                self.set(step, name, fact);
            }
            Entry::Text { step, name, text } => self.set(step, name, RecordedFact::Text(text.to_owned())),
            _ => {}
        }
    }

    fn set(&mut self, step: u16, name: FactName, fact: RecordedFact) {
        if let Some(step) = self.step(step) {
            step.facts.set(name, fact);
        }
    }

    fn step(&mut self, n: u16) -> Option<&mut RecordedStep> {
        self.steps.get_mut(usize::from(n).checked_sub(1)?)
    }
}

impl RecordedRequest {
    fn count(&mut self, row: &Entry<'_>) {
        if let Entry::Settled {
            input_tokens,
            cached_tokens,
            output_tokens,
            reasoning_tokens,
            cost_pico,
            byok_pico,
            ..
        } = row
        {
            (self.input_tokens, self.cached_tokens) = (*input_tokens, *cached_tokens);
            (self.output_tokens, self.reasoning_tokens) = (*output_tokens, *reasoning_tokens);
            (self.cost, self.byok_cost) = (Amount(*cost_pico), Amount(*byok_pico));
        }
    }
}

impl RecordedStep {
    fn end(&mut self, at_us: u64, busy_us: Option<u64>, outcome: &str) {
        self.us = Some(at_us.saturating_sub(self.at_us));
        self.busy_us = busy_us;
        self.outcome = Some(outcome.to_owned());
    }
}

fn outcome_word(outcome: UsageOutcome) -> &'static str {
    match outcome {
        UsageOutcome::Completed => "completed",
        UsageOutcome::Incomplete => "incomplete",
        UsageOutcome::Failed => "failed",
        UsageOutcome::Cancelled => "cancelled",
        UsageOutcome::Interrupted => "interrupted",
    }
}

/// Unix milliseconds as RFC 3339 in UTC.
fn timestamp(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(String::new, |at| format!("{at:.3}"))
}
