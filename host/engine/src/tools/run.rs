//! Running one call of a server tool: in its sandbox, within its time, and whatever it does wrong becomes a
//! result that says so.

use super::doors::Doors;
use super::offer::ServerTool;
use crate::assembler::{ServerCall, ToolOutcome};
use crate::cost::Amount;
use cofferdam_runtime::wire::{Output, ToolError};
use cofferdam_runtime::{CallContext, CallError, CallErrorKind};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// How long one call may take, waiting included.
const CALL_TIME_MAX: Duration = Duration::from_secs(180);
/// The longest result of one call that a model is told, in bytes.
const RESULT_BYTES_MAX: usize = 1 << 20;
/// The longest message of a tool about an error, in characters.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) outcome: ToolOutcome,
    /// What the model is told.
    pub(crate) for_model: String,
    /// The item's members, a JSON object.
    pub(crate) members: Vec<u8>,
    pub(crate) annotations: Vec<Vec<u8>>,
    pub(crate) cost: Amount,
    /// Whether the tool was run at all.
    pub(crate) executed: bool,
}

impl Finished {
    /// A call that was not run, or came to nothing.
    pub(crate) fn failed(message: &str, executed: bool) -> Self {
        let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
        let error = json!({ "error": message }).to_string();
        Self {
            outcome: ToolOutcome::Failed,
            members: error.clone().into_bytes(),
            for_model: error,
            annotations: Vec::new(),
            cost: Amount::default(),
            executed,
        }
    }

    fn completed(output: Output) -> Self {
        Self {
            outcome: ToolOutcome::Completed,
            for_model: shortened(output.for_model),
            members: output.item,
            annotations: output.annotations,
            cost: Amount(output.cost_pico),
            executed: true,
        }
    }
}

/// Runs a call of `tool`. Dropping this ends the call at once.
pub(crate) async fn run(
    tool: &ServerTool,
    call: &ServerCall,
    context: &CallContext,
    doors: &Doors,
) -> Finished {
    let arguments = match call.arguments.trim() {
        // Models that have nothing to say send no arguments at all.
        "" => "{}",
        arguments => arguments,
    };
    if serde_json::from_str::<Map<String, Value>>(arguments).is_err() {
        return Finished::failed("The arguments are not a JSON object.", false);
    }
    let services = doors.services(&tool.plugin);
    let invoked = tool.plugin.invoke(context, services, &call.function, arguments.as_bytes(), &tool.settings);
    match timeout(CALL_TIME_MAX, invoked).await {
        Ok(Ok(Ok(output))) => Finished::completed(output),
        Ok(Ok(Err(
            ToolError::InvalidArguments(message)
            | ToolError::Failed(message)
            | ToolError::InvalidSettings(message),
        ))) => Finished::failed(&message, true),
        Ok(Err(error)) => {
            tracing::warn!(plugin = %error.plugin, %error, "a call of a tool failed");
            Finished::failed(said_of(&error), !error.is_saturated())
        }
        Err(_elapsed) => {
            tracing::warn!(plugin = tool.plugin.name(), "a call of a tool took too long");
            Finished::failed("The tool took too long.", true)
        }
    }
}

/// What client and model are told of a tool that broke.
fn said_of(error: &CallError) -> &'static str {
    match error.kind {
        CallErrorKind::OutOfTime => "The tool took too long.",
        CallErrorKind::OutputTooLarge => "The tool's result is too large.",
        CallErrorKind::Saturated => "The tool has no room at the moment.",
        _ => "The tool failed.",
    }
}

/// Cuts a result that is too long where a character ends, and says so.
fn shortened(mut result: String) -> String {
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
    fn an_error_is_told_to_client_and_model_alike_and_bounded() {
        let failed = Finished::failed(&"x".repeat(10_000), true);
        let error: Value = serde_json::from_slice(&failed.members).unwrap();
        assert_eq!(error["error"].as_str().unwrap().len(), MESSAGE_CHARS_MAX);
        assert_eq!(failed.for_model.as_bytes(), failed.members);
    }
}
