//! Runs one call of a server tool, in its sandbox and within its time limit. Whatever goes wrong
//! becomes a result that says so.

use super::capabilities::RequestCapabilities;
use super::server_tool::ServerTool;
use crate::assembler::question_progress::Reporter;
use crate::assembler::{ServerCall, ToolOutcome};
use crate::cost::Amount;
use crate::plugins::http_capability::ReleasedSearch;
use crate::refusal::Refusal;
use crate::timeline::{FactName, StepMark, StepType, Timeline};
use cofferdam_runtime::manifest::Import;
use cofferdam_runtime::services::Spent;
use cofferdam_runtime::wire::{Function, Output, ToolError};
use cofferdam_runtime::{CallContext, CallErrorKind, Plugin, Services, TrapKind};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long one call may take, including waits.
const CALL_TIME_MAX: Duration = Duration::from_secs(180);
/// Like [`CALL_TIME_MAX`], but for a tool that asks models, one after the other.
const ASKING_CALL_TIME_MAX: Duration = Duration::from_secs(300);
/// The most that is charged for one call of a tool for which no price is stated, in dollars. A sum of
/// such costs stays far below the largest amount.
const COST_DOLLARS_MAX: f64 = 100.0;
/// The longest result of one call for a model, in bytes.
const RESULT_BYTES_MAX: usize = 1 << 20;
/// The longest error message of a tool, in characters.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// The result of a call.
#[derive(Debug)]
pub(crate) struct FinishedCall {
    pub(crate) outcome: ToolOutcome,
    /// What the model gets.
    pub(crate) for_model: String,
    /// The item's members, a JSON object.
    pub(crate) members: Vec<u8>,
    pub(crate) annotations: Vec<Vec<u8>>,
    /// Whether the tool was run at all.
    pub(crate) executed: bool,
}

impl FinishedCall {
    /// A call that was not run, or failed.
    pub(crate) fn failed(message: &str, executed: bool) -> Self {
        let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
        let error = json!({ "error": message }).to_string();
        Self {
            outcome: ToolOutcome::Failed,
            members: error.clone().into_bytes(),
            for_model: error,
            annotations: Vec::new(),
            executed,
        }
    }

    /// A call with an output.
    pub(crate) fn completed(output: Output) -> Self {
        Self {
            outcome: outcome(&output.item),
            for_model: shortened(output.for_model),
            members: output.item,
            annotations: output.annotations,
            executed: true,
        }
    }
}

/// A tool may mark its call as failed itself.
fn outcome(members: &[u8]) -> ToolOutcome {
    #[derive(Deserialize)]
    struct Members<'a> {
        #[serde(borrow)]
        status: Option<&'a RawValue>,
    }
    match serde_json::from_slice::<Members<'_>>(members) {
        Ok(Members { status: Some(status) }) if status.get() == "\"failed\"" => ToolOutcome::Failed,
        _ => ToolOutcome::Completed,
    }
}

/// Why a call has no output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToolFailure {
    /// The arguments are wrong, with the tool's message. `None`: they are not a JSON object, and
    /// the tool was not called.
    Arguments(Option<String>),
    /// The tool failed, with its message.
    Failed(String),
    /// It took too long.
    Late,
    /// Its answer is longer than accepted.
    TooLarge,
    /// The output contained the value of a secret, and the grant blocks such outputs.
    Withheld,
    /// This host has no capacity for it now.
    NoRoom,
    /// What is left to spend does not cover its price, so it was not called.
    NoCredit,
    /// It needed more memory than it may have.
    OutOfMemory,
    /// It exceeded its stack.
    TooDeep,
    /// The guest failed in another way.
    Broken,
}

/// A call of a tool, by a model, a hook or the host.
pub(crate) struct Invocation<'a> {
    pub(crate) plugin: &'a Arc<Plugin>,
    pub(crate) function: &'a str,
    /// The caller's arguments, not checked yet.
    pub(crate) arguments: &'a [u8],
    pub(crate) settings: &'a [u8],
}

impl Invocation<'_> {
    /// Runs the call within its time limit, and charges its cost. Dropping this ends the call at
    /// once. The values of secrets that were sent for the plugin are removed from the output.
    pub(crate) async fn run(
        &self,
        context: &CallContext,
        services: Services,
        capabilities: &RequestCapabilities,
    ) -> Result<Output, ToolFailure> {
        let account = capabilities.questions().account();
        let price = self.plugin.grant().call_price().map(Amount::from_dollars);
        let pledge = account
            .pledge_call(price.unwrap_or_default())
            .await
            .map_err(|_: Refusal| ToolFailure::NoCredit)?;
        let started = Instant::now();
        let ended = self.run_unsearched(context, services).await;
        self.plugin.counters().tool_called(started.elapsed(), ended.is_err());
        if let Ok(output) = &ended {
            account.add_tool(self.charge(Amount(output.cost_pico), price), pledge);
        }
        let clean = capabilities.http().clean(self.plugin, ended, |search, ended| match ended {
            Ok(output) => Ok(search.output(output)),
            Err(ToolFailure::Arguments(message)) => {
                Err(ToolFailure::Arguments(message.map(|words| search.text(words))))
            }
            Err(ToolFailure::Failed(message)) => Err(ToolFailure::Failed(search.text(message))),
            Err(failure) => Err(failure),
        });
        clean.unwrap_or(Err(ToolFailure::Withheld))
    }

    /// What is charged for a call: what the guest says, and at most the price that was reserved.
    fn charge(&self, told: Amount, price: Option<Amount>) -> Amount {
        let most = price.unwrap_or_else(|| Amount::from_dollars(COST_DOLLARS_MAX));
        if told > most {
            let plugin = self.plugin.name();
            tracing::warn!(
                plugin,
                told_pico = told.0,
                charged_pico = most.0,
                "a tool says that a call cost more than it may"
            );
        }
        told.min(most)
    }

    /// Like [`Self::run`], but for an output that is dropped: it is not searched for secrets.
    pub(super) async fn run_unsearched(
        &self,
        context: &CallContext,
        services: Services,
    ) -> Result<Output, ToolFailure> {
        let arguments = match self.arguments.trim_ascii() {
            // Models send empty arguments for a function without parameters.
            b"" => b"{}",
            arguments => arguments,
        };
        if serde_json::from_slice::<Map<String, Value>>(arguments).is_err() {
            return Err(ToolFailure::Arguments(None));
        }
        let invoked = self.plugin.invoke(context, services, self.function, arguments, self.settings);
        let asks = self.plugin.grant().imports.contains(&Import::Model);
        let time = if asks { ASKING_CALL_TIME_MAX } else { CALL_TIME_MAX };
        match timeout(time, invoked).await {
            Ok(Ok(Ok(output))) => Ok(output),
            Ok(Ok(Err(ToolError::InvalidArguments(message)))) => Err(ToolFailure::Arguments(Some(message))),
            Ok(Ok(Err(ToolError::Failed(message) | ToolError::InvalidSettings(message)))) => {
                Err(ToolFailure::Failed(message))
            }
            Ok(Err(error)) => {
                tracing::warn!(plugin = %error.plugin, %error, "a call of a tool failed");
                Err(match error.kind {
                    CallErrorKind::OutOfTime => ToolFailure::Late,
                    CallErrorKind::OutputTooLarge => ToolFailure::TooLarge,
                    CallErrorKind::Saturated => ToolFailure::NoRoom,
                    CallErrorKind::OutOfMemory => ToolFailure::OutOfMemory,
                    CallErrorKind::Trap(TrapKind::StackOverflow) => ToolFailure::TooDeep,
                    _ => ToolFailure::Broken,
                })
            }
            Err(_elapsed) => {
                tracing::warn!(plugin = self.plugin.name(), "a call of a tool took too long");
                Err(ToolFailure::Late)
            }
        }
    }
}

/// Removes the values of secrets that were sent for the tool from its functions: some tools get
/// these from a server.
pub(crate) fn clean(
    functions: Vec<Function>,
    tool: &ServerTool,
    capabilities: &RequestCapabilities,
) -> Vec<Function> {
    let clean = capabilities.http().clean(&tool.plugin, functions, |search, functions| {
        functions.into_iter().filter_map(|function| search.function(function)).collect()
    });
    clean.unwrap_or_default()
}

/// Removes the values of secrets that were sent for the tool from what it says in place of its functions.
pub(crate) fn clean_message(
    message: String,
    tool: &ServerTool,
    capabilities: &RequestCapabilities,
) -> String {
    let clean = capabilities.http().clean(&tool.plugin, message, ReleasedSearch::text);
    clean.unwrap_or_else(|| "The message contained a secret and was withheld.".to_owned())
}

/// Runs a model's call of `tool`. With a `reporter` the progress of its
/// questions to models is reported.
pub(crate) async fn run(
    tool: &ServerTool,
    call: &ServerCall,
    context: &CallContext,
    capabilities: &RequestCapabilities,
    reporter: Option<Reporter>,
) -> FinishedCall {
    let invocation = Invocation {
        plugin: &tool.plugin,
        function: &call.function,
        arguments: call.arguments.as_bytes(),
        settings: &tool.settings,
    };
    let timeline = capabilities.timeline();
    let (step, spent) = begin_tool(timeline, &tool.plugin);
    let below = timeline.under(step);
    let services = match reporter {
        Some(reporter) => capabilities.reporting_services(&tool.plugin, reporter, &below),
        None => capabilities.services(&tool.plugin, &below),
    };
    let services = Services { spent: Some(spent.clone()), ..services };
    let ended = invocation.run(context, services, capabilities).await;
    timeline.end_call(step, outcome_of(&ended), spent.time(), &[]);
    match ended {
        Ok(output) => FinishedCall::completed(output),
        Err(ToolFailure::Arguments(None)) => {
            FinishedCall::failed("The arguments are not a JSON object.", false)
        }
        Err(ToolFailure::Arguments(Some(message)) | ToolFailure::Failed(message)) => {
            FinishedCall::failed(&message, true)
        }
        Err(ToolFailure::Late) => FinishedCall::failed("The tool took too long.", true),
        Err(ToolFailure::TooLarge) => FinishedCall::failed("The tool's result is too large.", true),
        Err(ToolFailure::Withheld) => {
            FinishedCall::failed("The tool's result held a secret and was withheld.", true)
        }
        Err(ToolFailure::NoRoom) => FinishedCall::failed("The tool has no room at the moment.", false),
        Err(ToolFailure::NoCredit) => {
            FinishedCall::failed("What is left of the credit does not cover this call.", false)
        }
        Err(ToolFailure::OutOfMemory) => FinishedCall::failed("The tool ran out of memory.", true),
        Err(ToolFailure::TooDeep) => FinishedCall::failed("The tool recursed too deeply.", true),
        Err(ToolFailure::Broken) => FinishedCall::failed("The tool failed.", true),
    }
}

/// Begins the step of a tool's call. It has the name of the tool, because the name of the function
/// may come from a server of the client.
pub(super) fn begin_tool(timeline: &Timeline, plugin: &Plugin) -> (StepMark, Spent) {
    let tool = plugin.manifest().tool.as_ref().map_or_else(|| plugin.name(), |table| &table.tool_type);
    (timeline.begin(StepType::Tool, &[tool], &[FactName::Plugin.name(plugin.name())]), Spent::default())
}

/// The outcome of a call in the recorder of requests.
pub(super) fn outcome_of(ended: &Result<Output, ToolFailure>) -> &'static str {
    match ended {
        Ok(_) => "ok",
        Err(ToolFailure::Arguments(_)) => "invalid_arguments",
        Err(ToolFailure::Failed(_)) => "failed",
        Err(ToolFailure::Late) => "timeout",
        Err(ToolFailure::TooLarge) => "output_too_large",
        Err(ToolFailure::Withheld) => "withheld",
        Err(ToolFailure::NoRoom) => "saturated",
        Err(ToolFailure::NoCredit) => "payment_required",
        Err(ToolFailure::OutOfMemory) => "out_of_memory",
        Err(ToolFailure::TooDeep) => "stack_overflow",
        Err(ToolFailure::Broken) => "broken",
    }
}

/// Cuts a result that is too long at the end of a character, and appends a note.
pub(crate) fn shortened(mut result: String) -> String {
    const CUT: &str = "\n[The rest of this result was cut off.]";
    if result.len() <= RESULT_BYTES_MAX {
        return result;
    }
    result.truncate(result.floor_char_boundary(RESULT_BYTES_MAX - CUT.len()));
    result.push_str(CUT);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_results_are_cut_between_characters() {
        assert_eq!(shortened("short".to_owned()), "short");
        let cut = shortened("é".repeat(RESULT_BYTES_MAX));
        assert!(cut.len() <= RESULT_BYTES_MAX && cut.len() > RESULT_BYTES_MAX - 4);
        assert!(cut.ends_with("was cut off.]"));
    }

    #[test]
    fn an_error_is_the_same_for_client_and_model_and_bounded() {
        let failed = FinishedCall::failed(&"x".repeat(10_000), true);
        let error: Value = serde_json::from_slice(&failed.members).unwrap();
        assert_eq!(error["error"].as_str().unwrap().len(), MESSAGE_CHARS_MAX);
        assert_eq!(failed.for_model.as_bytes(), failed.members);
    }

    #[test]
    fn a_tool_may_mark_its_call_as_failed() {
        assert_eq!(outcome(br#"{"error":"x","status":"failed"}"#), ToolOutcome::Failed);
        for members in ["{}", r#"{"status":"completed"}"#, r#"{"status":7}"#, r#"{"a":{"status":"failed"}}"#]
        {
            assert_eq!(outcome(members.as_bytes()), ToolOutcome::Completed, "{members}");
        }
    }
}
