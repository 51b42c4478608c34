//! The steps of one timeline: fixed words and numbers, and names of the configuration.

use serde::Serialize;

/// The most steps of one request. Further ones are counted only.
pub(super) const STEPS_MAX: usize = 256;
/// The most facts of one request.
const FACTS_MAX: usize = 1024;
/// The most bytes of all names of one request.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// The most bytes of one name.
const NAME_BYTES_MAX: usize = 128;
/// Room for the steps, facts and names of a usual request, so that none of them is allocated.
const ROOM: (usize, usize, usize) = (12, 24, 256);
/// The time of a step that has not ended, and the processor time of a step without any.
const UNKNOWN: u64 = u64::MAX;

/// The side that works in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// This host.
    Host,
    /// A guest.
    Guest,
    /// A server that is asked over the network.
    Net,
    /// The vault.
    Secret,
}

/// What is done in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepType {
    /// The body is parsed.
    Parse,
    /// A hook sees the request or the answer.
    Hook,
    /// A model router chooses models.
    ModelChoice,
    /// The router orders the endpoints.
    Route,
    /// One endpoint is asked. The steps of the exchange are below it.
    Attempt,
    /// A provider's guest translates.
    GuestCall,
    /// A secret is released for one host.
    Release,
    /// A provider is sent the request, until the head of its answer is here.
    Exchange,
    /// The body of a provider's answer arrives.
    Answer,
    /// A server tool runs.
    Tool,
    /// A plugin's own HTTP request.
    Http,
    /// A plugin asks a model. The attempts for it are below it.
    Question,
    /// The usage row is written.
    Usage,
}

impl StepType {
    /// The word for it, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Hook => "hook",
            Self::ModelChoice => "model_choice",
            Self::Route => "route",
            Self::Attempt => "attempt",
            Self::GuestCall => "guest_call",
            Self::Release => "release",
            Self::Exchange => "exchange",
            Self::Answer => "answer",
            Self::Tool => "tool",
            Self::Http => "http",
            Self::Question => "question",
            Self::Usage => "usage",
        }
    }

    pub(super) fn kind(self) -> StepKind {
        match self {
            Self::Parse | Self::Question | Self::Usage => StepKind::Host,
            Self::Hook | Self::ModelChoice | Self::Route | Self::GuestCall | Self::Tool => StepKind::Guest,
            Self::Attempt | Self::Exchange | Self::Answer | Self::Http => StepKind::Net,
            Self::Release => StepKind::Secret,
        }
    }
}

/// What is known about a step besides its name and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FactName {
    /// What a hook decided: `pass`, `change` or `block`.
    Action,
    /// The number of an attempt, from 1.
    Attempt,
    /// Length of a body.
    Bytes,
    /// Input tokens that were in the provider's cache.
    CachedTokens,
    /// Why an attempt was given up.
    Cause,
    /// Dollars.
    Cost,
    /// How many calls or pieces a step stands for.
    Count,
    /// Microseconds from the beginning of an attempt to its first content.
    FirstContentUs,
    /// A host of the configuration or of a grant; `*` for another host that a grant of all covers.
    Host,
    /// Input tokens.
    InputTokens,
    /// A model of the catalog.
    Model,
    /// Output tokens.
    OutputTokens,
    /// A plugin.
    Plugin,
    /// A provider of the configuration.
    Provider,
    /// Whom a secret was released for.
    Purpose,
    /// Secrets that a host sent back.
    Reflections,
    /// The wait that a provider asked for.
    RetryAfterMs,
    /// An HTTP status.
    Status,
    /// The turn of an attempt, from 1.
    Turn,
}

/// The value of a fact: a number, a fixed word, or a name of the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) enum FactValue<T> {
    Number(u64),
    Word(&'static str),
    Name(T),
}

/// One fact as it is handed over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fact<'a> {
    name: FactName,
    value: FactValue<&'a str>,
}

impl FactName {
    /// The fact, unless there is no number.
    pub(crate) fn number<'a>(self, number: impl Into<Option<u64>>) -> Option<Fact<'a>> {
        number.into().map(|number| Fact { name: self, value: FactValue::Number(number) })
    }

    /// The fact with a fixed word.
    pub(crate) fn word<'a>(self, word: &'static str) -> Option<Fact<'a>> {
        Some(Fact { name: self, value: FactValue::Word(word) })
    }

    /// The fact, unless there is no name. It must be a name of the configuration, never a text of a
    /// client, model or provider.
    pub(crate) fn name<'a>(self, name: impl Into<Option<&'a str>>) -> Option<Fact<'a>> {
        name.into().map(|name| Fact { name: self, value: FactValue::Name(name) })
    }
}

/// A part of the text of all names.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameRange {
    start: u32,
    end: u32,
}

/// One step as it is held in memory.
#[derive(Debug)]
pub(super) struct Step {
    /// The number of the step that this one is a part of; 0 for the request itself.
    pub(super) parent: u16,
    pub(super) step_type: StepType,
    name: NameRange,
    /// Microseconds since the request began.
    pub(super) at_us: u64,
    us: u64,
    busy_us: u64,
    outcome: &'static str,
}

#[derive(Debug)]
struct StepFact {
    step: u16,
    name: FactName,
    value: FactValue<NameRange>,
}

/// The steps of one request.
#[derive(Debug)]
pub(super) struct Steps {
    list: Vec<Step>,
    facts: Vec<StepFact>,
    names: String,
    lost: u32,
}

/// The steps and what is known about them, for the document that is made of them.
pub(super) struct StepView<'a> {
    pub(super) n: u16,
    pub(super) step: &'a Step,
    pub(super) steps: &'a Steps,
}

impl Steps {
    pub(super) fn new() -> Self {
        let (steps, facts, bytes) = ROOM;
        let (list, facts) = (Vec::with_capacity(steps), Vec::with_capacity(facts));
        Self { list, facts, names: String::with_capacity(bytes), lost: 0 }
    }

    /// Begins a step, whose name consists of `parts`. Returns its number; 0 where there is no room
    /// for it.
    pub(super) fn begin(&mut self, parent: u16, step_type: StepType, parts: &[&str], at_us: u64) -> u16 {
        if self.list.len() >= STEPS_MAX {
            self.lost = self.lost.saturating_add(1);
            return 0;
        }
        let name = self.text(parts);
        let (us, busy_us) = (UNKNOWN, UNKNOWN);
        self.list.push(Step { parent, step_type, name, at_us, us, busy_us, outcome: "" });
        // At most `STEPS_MAX`.
        self.list.len() as u16
    }

    /// Ends a step. Does nothing for one that has ended.
    pub(super) fn end(&mut self, n: u16, now_us: u64, outcome: &'static str) {
        if let Some(step) = self.step(n).filter(|step| step.us == UNKNOWN) {
            step.us = now_us.saturating_sub(step.at_us);
            step.outcome = outcome;
        }
    }

    /// Sets the processor time of a step's guest.
    pub(super) fn busy(&mut self, n: u16, us: u64) {
        if let Some(step) = self.step(n) {
            step.busy_us = us;
        }
    }

    /// Adds facts to a step.
    pub(super) fn note(&mut self, n: u16, facts: &[Option<Fact<'_>>]) {
        if n == 0 {
            return;
        }
        for Fact { name, value } in facts.iter().flatten() {
            if self.facts.len() >= FACTS_MAX {
                return;
            }
            let value = match value {
                FactValue::Number(number) => FactValue::Number(*number),
                FactValue::Word(word) => FactValue::Word(word),
                FactValue::Name(text) => FactValue::Name(self.text(&[text])),
            };
            self.facts.push(StepFact { step: n, name: *name, value });
        }
    }

    /// Ends the steps that have not ended, because the request is over.
    pub(super) fn close(&mut self, now_us: u64) {
        for step in self.list.iter_mut().filter(|step| step.us == UNKNOWN) {
            step.us = now_us.saturating_sub(step.at_us);
            step.outcome = "unfinished";
        }
    }

    /// When a step began, in microseconds since the request began.
    pub(super) fn began_us(&self, n: u16) -> u64 {
        let index = usize::from(n).checked_sub(1);
        index.and_then(|index| self.list.get(index)).map_or(0, |step| step.at_us)
    }

    pub(super) fn lost(&self) -> u32 {
        self.lost
    }

    /// The bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<Step>()
            + self.facts.capacity() * size_of::<StepFact>()
            + self.names.capacity()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = StepView<'_>> {
        (1..).zip(&self.list).map(|(n, step)| StepView { n, step, steps: self })
    }

    pub(super) fn view(&self, n: u16) -> Option<StepView<'_>> {
        let step = self.list.get(usize::from(n).checked_sub(1)?)?;
        Some(StepView { n, step, steps: self })
    }

    fn step(&mut self, n: u16) -> Option<&mut Step> {
        self.list.get_mut(usize::from(n).checked_sub(1)?)
    }

    /// Adds the parts to the text of all names, with spaces between them.
    fn text(&mut self, parts: &[&str]) -> NameRange {
        let start = self.names.len();
        let end_max = (start + NAME_BYTES_MAX).min(TEXT_BYTES_MAX);
        for part in parts {
            let space = usize::from(self.names.len() > start);
            let room = end_max.saturating_sub(self.names.len() + space);
            let cut = part.get(..part.floor_char_boundary(room)).unwrap_or_default();
            if cut.is_empty() {
                continue;
            }
            if space == 1 {
                self.names.push(' ');
            }
            self.names.push_str(cut);
        }
        // At most `TEXT_BYTES_MAX`.
        NameRange { start: start as u32, end: self.names.len() as u32 }
    }

    fn named(&self, range: NameRange) -> &str {
        self.names.get(range.start as usize..range.end as usize).unwrap_or_default()
    }
}

impl<'a> StepView<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.steps.named(self.step.name)
    }

    /// How long the step took; `None` while it runs.
    pub(super) fn us(&self) -> Option<u64> {
        (self.step.us != UNKNOWN).then_some(self.step.us)
    }

    pub(super) fn busy_us(&self) -> Option<u64> {
        (self.step.busy_us != UNKNOWN).then_some(self.step.busy_us)
    }

    pub(super) fn outcome(&self) -> Option<&'static str> {
        self.us().map(|_| self.step.outcome)
    }

    /// The facts of the step. Where a fact was noted twice, the later one counts.
    pub(super) fn facts(&self) -> impl Iterator<Item = (FactName, FactValue<&'a str>)> {
        let (steps, n) = (self.steps, self.n);
        steps.facts.iter().filter(move |fact| fact.step == n).map(move |fact| {
            let value = match fact.value {
                FactValue::Number(number) => FactValue::Number(number),
                FactValue::Word(word) => FactValue::Word(word),
                FactValue::Name(range) => FactValue::Name(steps.named(range)),
            };
            (fact.name, value)
        })
    }
}
