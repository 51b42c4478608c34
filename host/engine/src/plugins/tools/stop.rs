//! The rules that end the loop of server tools although the model would call more.

use crate::cost::Amount;
use crate::request::{ResponsesRequest, StopCondition};
use cofferdam_protocol::server_tool_name;
use cofferdam_runtime::wire::FinishReason;

/// The most steps of the loop when the client sets no limit, and the highest limit it may set.
const STEPS_MAX: u32 = 30;
/// The most steps when the client sets conditions, which override the limit above. No loop is
/// unlimited.
const STEPS_MAX_BY_CONDITION: u32 = 128;

/// What ends the loop of one request.
#[derive(Clone, Debug)]
pub(crate) struct StopRules {
    conditions: Vec<StopCondition>,
    steps_max: u32,
}

/// The state of the loop after a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopProgress<'a> {
    /// Turns whose calls were run.
    pub(crate) steps: u32,
    /// Tokens of all turns, input and output.
    pub(crate) tokens: u64,
    /// Cost of all turns and tools.
    pub(crate) cost: Amount,
    /// What the model called in this turn.
    pub(crate) called: &'a [Called<'a>],
    /// How the model ended the turn.
    pub(crate) finish: &'a FinishReason,
}

/// The names of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called<'a> {
    pub(crate) function: &'a str,
    /// The tool it belongs to, without prefix.
    pub(crate) tool: &'a str,
}

impl StopRules {
    /// The rules that a request states, or the default.
    pub(crate) fn of(request: &ResponsesRequest) -> Self {
        let conditions = request.stop_server_tools_when.clone();
        let steps_max = if conditions.is_empty() {
            request.max_tool_calls.unwrap_or(STEPS_MAX)
        } else {
            STEPS_MAX_BY_CONDITION
        };
        Self { conditions, steps_max }
    }

    /// Whether the model's next turn is its last, without tools.
    pub(crate) fn fire(&self, progress: &LoopProgress<'_>) -> bool {
        progress.steps >= self.steps_max || self.conditions.iter().any(|condition| progress.meets(condition))
    }
}

impl LoopProgress<'_> {
    fn meets(&self, condition: &StopCondition) -> bool {
        match condition {
            StopCondition::StepCountIs { step_count } => self.steps >= *step_count,
            StopCondition::HasToolCall { tool_name } => {
                let bare = server_tool_name(tool_name).unwrap_or(tool_name);
                self.called.iter().any(|called| called.tool == bare || called.function == tool_name)
            }
            StopCondition::MaxTokensUsed { max_tokens } => self.tokens > *max_tokens,
            StopCondition::MaxCost { max_cost_in_dollars } => {
                self.cost > Amount::from_dollars(*max_cost_in_dollars)
            }
            StopCondition::FinishReasonIs { reason } => {
                // Both spellings are in use; libraries write `tool-calls`.
                reason.replace('_', "-") == finish_word(self.finish).replace('_', "-")
            }
        }
    }
}

fn finish_word(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool-calls",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content-filter",
        FinishReason::Other(word) => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOTHING: LoopProgress<'_> = LoopProgress {
        steps: 1,
        tokens: 100,
        cost: Amount(1_000_000_000_000),
        called: &[Called { function: "now", tool: "datetime" }],
        finish: &FinishReason::ToolCalls,
    };

    fn rules(conditions: Vec<StopCondition>) -> StopRules {
        StopRules { conditions, steps_max: STEPS_MAX_BY_CONDITION }
    }

    fn name(tool_name: &str) -> StopCondition {
        StopCondition::HasToolCall { tool_name: tool_name.to_owned() }
    }

    fn reason(reason: &str) -> StopCondition {
        StopCondition::FinishReasonIs { reason: reason.to_owned() }
    }

    #[test]
    fn each_condition_fires_exactly_at_its_limit() {
        let table = [
            (StopCondition::StepCountIs { step_count: 1 }, true),
            (StopCondition::StepCountIs { step_count: 2 }, false),
            (StopCondition::MaxTokensUsed { max_tokens: 99 }, true),
            (StopCondition::MaxTokensUsed { max_tokens: 100 }, false),
            (StopCondition::MaxCost { max_cost_in_dollars: 0.999 }, true),
            (StopCondition::MaxCost { max_cost_in_dollars: 1.0 }, false),
            (name("datetime"), true),
            (name("service:datetime"), true),
            (name("openrouter:datetime"), true),
            (name("now"), true),
            (name("service:now"), false),
            (name("web_search"), false),
            (reason("tool-calls"), true),
            (reason("tool_call"), false),
            (reason("length"), false),
        ];
        for (condition, fires) in table {
            assert_eq!(rules(vec![condition.clone()]).fire(&NOTHING), fires, "{condition:?}");
        }
    }

    #[test]
    fn any_condition_is_enough() {
        assert!(rules(vec![name("x"), reason("tool-calls")]).fire(&NOTHING));
        assert!(!rules(vec![name("x"), reason("stop")]).fire(&NOTHING));
    }

    fn request(members: &str) -> ResponsesRequest {
        let body = format!(r#"{{"model":"a/b","input":"x"{members}}}"#);
        ResponsesRequest::parse(body.as_bytes(), &[]).unwrap()
    }

    #[test]
    fn conditions_override_the_number_of_steps() {
        let at = |steps| LoopProgress { steps, ..NOTHING };
        let default = StopRules::of(&request(""));
        assert!(!default.fire(&at(29)) && default.fire(&at(30)));
        let three = StopRules::of(&request(r#","max_tool_calls":3"#));
        assert!(!three.fire(&at(2)) && three.fire(&at(3)));
        let conditions =
            r#","max_tool_calls":3,"stop_server_tools_when":[{"type":"step_count_is","step_count":40}]"#;
        let forty = StopRules::of(&request(conditions));
        assert!(!forty.fire(&at(39)) && forty.fire(&at(40)));
    }

    fn any_condition() -> impl Strategy<Value = StopCondition> {
        prop_oneof![
            any::<u32>().prop_map(|step_count| StopCondition::StepCountIs { step_count }),
            "[a-z:]{1,10}".prop_map(|tool_name| StopCondition::HasToolCall { tool_name }),
            any::<u64>().prop_map(|max_tokens| StopCondition::MaxTokensUsed { max_tokens }),
            any::<f64>().prop_map(|max_cost_in_dollars| StopCondition::MaxCost { max_cost_in_dollars }),
            "[a-z_-]{1,10}".prop_map(|reason| StopCondition::FinishReasonIs { reason }),
        ]
    }

    proptest! {
        /// Every loop ends whatever the conditions, and once a rule fires, more progress does not
        /// undo it.
        #[test]
        fn every_loop_ends(
            conditions in proptest::collection::vec(any_condition(), 0..5),
            steps in 0u32..200, tokens in any::<u32>(), cost in any::<u32>(),
        ) {
            let rules = rules(conditions);
            let at = |steps: u32, more: u64| LoopProgress {
                steps,
                tokens: u64::from(tokens) + more,
                cost: Amount(u64::from(cost) + more),
                ..NOTHING
            };
            prop_assert!(rules.fire(&at(STEPS_MAX_BY_CONDITION, 0)));
            prop_assert!(!rules.fire(&at(steps, 0)) || rules.fire(&at(steps + 1, 1)));
        }
    }
}
