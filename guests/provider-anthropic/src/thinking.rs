//! Translates `reasoning` into Anthropic's `thinking`.
//!
//! Models with a thinking budget get a share of the output limit, depending on the effort. Models
//! that think adaptively get the effort itself.

use cofferdam_guest_kit::ReasoningSettings;
use serde::Serialize;

use crate::models::{Model, ThinkingStyle};

/// The smallest budget that the provider accepts, in tokens.
const BUDGET_MIN: u64 = 1024;
/// The output limit when neither the request nor the endpoint has one; every model supports it.
const OUTPUT_DEFAULT: u64 = 4096;
/// The same for adaptive thinking, which counts towards the limit.
const OUTPUT_DEFAULT_THINKING: u64 = 16_384;

/// The `thinking` object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Thinking {
    Enabled {
        budget_tokens: u64,
    },
    /// `display` asks for the thinking text, which newer models otherwise leave out.
    Adaptive {
        display: &'static str,
    },
    Disabled,
}

/// The translation of `reasoning`, with an output limit that fits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub thinking: Option<Thinking>,
    /// `output_config.effort`.
    pub effort: Option<&'static str>,
    pub max_tokens: u64,
}

/// What the client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Unstated,
    Off,
    Effort(Effort),
    Budget(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// The limits that a plan must keep.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// `max_output_tokens` of the request.
    pub asked: Option<u64>,
    /// The endpoint's limit; zero when unknown.
    pub endpoint: u64,
}

impl Plan {
    /// A plan without thinking, for requests that rule thinking out.
    pub fn without_thinking(limits: Limits) -> Self {
        Plan { thinking: None, effort: None, max_tokens: limits.output(OUTPUT_DEFAULT) }
    }

    /// The plan for this model.
    pub fn new(settings: Option<&ReasoningSettings<'_>>, model: Model, limits: Limits) -> Self {
        let off = Plan::without_thinking(limits);
        match (asked(settings), model.thinking) {
            (Asked::Unstated, _) => off,
            (Asked::Off, ThinkingStyle::Adaptive) if !model.always_thinks => {
                Plan { thinking: Some(Thinking::Disabled), ..off }
            }
            (Asked::Off, _) => off,
            (Asked::Effort(effort), ThinkingStyle::Either | ThinkingStyle::Adaptive) => {
                Plan::adaptive(Some(effort.name(model)), limits)
            }
            (Asked::Budget(_), ThinkingStyle::Adaptive) => Plan::adaptive(None, limits),
            (Asked::Effort(effort), ThinkingStyle::Budget) => {
                let output = limits.output(OUTPUT_DEFAULT);
                let plan = Plan::budget(effort.share_of(output), limits);
                // The client's limit holds for thinking too, and the client did not ask for more with an effort.
                plan.filter(|plan| plan.max_tokens <= output).unwrap_or(off)
            }
            (Asked::Budget(budget), _) => Plan::budget(budget, limits).unwrap_or(off),
        }
    }

    /// Whether the model is asked to think.
    pub fn thinks(&self) -> bool {
        matches!(self.thinking, Some(Thinking::Enabled { .. } | Thinking::Adaptive { .. }))
    }

    /// Whether thinking has a budget. The provider then requires that an interrupted turn starts
    /// with thinking.
    pub fn has_budget(&self) -> bool {
        matches!(self.thinking, Some(Thinking::Enabled { .. }))
    }

    fn adaptive(effort: Option<&'static str>, limits: Limits) -> Self {
        let thinking = Some(Thinking::Adaptive { display: "summarized" });
        Plan { thinking, effort, max_tokens: limits.output(OUTPUT_DEFAULT_THINKING) }
    }

    /// The budget counts towards the output limit and must be smaller than it. The limit is
    /// raised so that the answer keeps the room that the client gave it.
    fn budget(wanted: u64, limits: Limits) -> Option<Self> {
        let budget = wanted.max(BUDGET_MIN);
        let answer = limits.output(OUTPUT_DEFAULT);
        let max_tokens = if budget < answer { answer } else { budget.saturating_add(answer) };
        let max_tokens = limits.cap(max_tokens);
        let room = max_tokens.saturating_sub(answer.min(max_tokens / 4).max(1));
        let budget_tokens = if budget < max_tokens { budget } else { room };
        (budget_tokens >= BUDGET_MIN).then_some(Plan {
            thinking: Some(Thinking::Enabled { budget_tokens }),
            effort: None,
            max_tokens,
        })
    }
}

impl Limits {
    fn output(self, default: u64) -> u64 {
        match (self.asked, self.endpoint) {
            (Some(asked), _) => self.cap(asked.max(1)),
            (None, 0) => default,
            (None, endpoint) => endpoint,
        }
    }

    fn cap(self, tokens: u64) -> u64 {
        if self.endpoint == 0 { tokens } else { tokens.min(self.endpoint) }
    }
}

fn asked(settings: Option<&ReasoningSettings<'_>>) -> Asked {
    let Some(settings) = settings else { return Asked::Unstated };
    let effort = settings.effort.as_deref();
    if settings.enabled == Some(false) || effort == Some("none") || settings.max_tokens == Some(0) {
        return Asked::Off;
    }
    if let Some(budget) = settings.max_tokens {
        return Asked::Budget(budget);
    }
    match effort {
        Some("minimal") => Asked::Effort(Effort::Minimal),
        Some("low") => Asked::Effort(Effort::Low),
        Some("high") => Asked::Effort(Effort::High),
        Some("xhigh") => Asked::Effort(Effort::Xhigh),
        Some("max") => Asked::Effort(Effort::Max),
        Some(_) => Asked::Effort(Effort::Medium),
        None if settings.enabled == Some(true) => Asked::Effort(Effort::Medium),
        None => Asked::Unstated,
    }
}

impl Effort {
    /// The provider's name of the effort. A model without `xhigh` gets the next lower effort.
    fn name(self, model: Model) -> &'static str {
        match self {
            Effort::Minimal | Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::Xhigh if model.xhigh => "xhigh",
            Effort::High | Effort::Xhigh => "high",
            Effort::Max => "max",
        }
    }

    fn share_of(self, output: u64) -> u64 {
        let percent = match self {
            Effort::Minimal => 10,
            Effort::Low => 20,
            Effort::Medium => 50,
            Effort::High => 80,
            Effort::Xhigh | Effort::Max => 95,
        };
        output.saturating_mul(percent) / 100
    }
}

#[cfg(test)]
mod tests;
