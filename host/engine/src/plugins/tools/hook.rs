//! Server tools for hooks: the same calls, made by a guest instead of a model.

use super::capabilities::RequestCapabilities;
use super::run::{Invocation, ToolFailure, begin_tool, outcome_of, shortened};
use crate::Engine;
use cofferdam_runtime::services::{Opening, ToolAccess, ToolCall};
use cofferdam_runtime::wire::{Action, Failure, ToolCallError};
use cofferdam_runtime::{CallContext, CallError, Plugin, Services};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;

/// How a call into a hook ended.
pub(crate) type HookOutcome = Result<Result<Action, Failure>, CallError>;

/// The tools that one call into a hook may use.
pub(crate) struct HookTools {
    engine: Arc<Engine>,
    context: CallContext,
    capabilities: RequestCapabilities,
}

impl HookTools {
    /// The tools of this host, with the capabilities of a request.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        context: &CallContext,
        capabilities: RequestCapabilities,
    ) -> Arc<Self> {
        let (engine, context) = (Arc::clone(engine), context.clone());
        Arc::new(Self { engine, context, capabilities })
    }

    /// The host services for a call into `hook`.
    pub(crate) fn services(self: &Arc<Self>, hook: &Plugin) -> Services {
        let tools = Arc::clone(self) as Arc<dyn ToolAccess>;
        Services { tools: Some(tools), ..self.capabilities.services(hook, self.capabilities.timeline()) }
    }

    /// Removes the values of secrets that were sent for `hook` from its decision.
    pub(crate) fn clean(&self, hook: &Plugin, verdict: HookOutcome) -> HookOutcome {
        let Some(mut search) = self.capabilities.http().search(hook) else { return verdict };
        let clean = match verdict {
            Ok(Ok(action)) => Ok(Ok(search.action(action))),
            Ok(Err(failure)) => Ok(Err(search.failure(failure))),
            Err(error) => Err(error),
        };
        // The decision counts even where the grant blocks such outputs: ignoring a hook's decision
        // would let everything pass.
        self.capabilities.http().note_removed(hook, &search);
        clean
    }

    /// The arguments and the settings of a call, without the values of secrets that were sent for the hook. `None`
    /// for a call that had some, where the grant of the hook blocks such outputs.
    fn searched(&self, call: ToolCall<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
        let hook = self.engine.parts.plugins.get(call.plugin)?;
        let written = (call.arguments.to_vec(), call.settings.to_vec());
        self.capabilities.http().clean(hook, written, |search, (arguments, settings)| {
            (search.json(arguments), search.json(settings))
        })
    }

    async fn run(&self, call: ToolCall<'_>) -> Result<Vec<u8>, ToolCallError> {
        let plugin = self.engine.tool_plugin(call.tool).ok_or_else(|| {
            self.engine.log_lacking_tool(call.tool);
            ToolCallError::Unavailable
        })?;
        let (arguments, settings) = self.searched(call).ok_or(ToolCallError::Failed)?;
        let timeline = self.capabilities.timeline();
        let (step, spent) = begin_tool(timeline, plugin);
        let services = self.capabilities.services(plugin, &timeline.under(step));
        let services = Services { depth: call.depth, spent: Some(spent.clone()), ..services };
        let output =
            Invocation { plugin, function: call.function, arguments: &arguments, settings: &settings }
                .run(&self.context, services, &self.capabilities)
                .await;
        timeline.end_call(step, outcome_of(&output), spent.time(), &[]);
        let output = output.map_err(|failure| match failure {
            ToolFailure::Arguments(_) => ToolCallError::InvalidArguments,
            ToolFailure::Late | ToolFailure::NoRoom | ToolFailure::NoCredit => ToolCallError::Exhausted,
            ToolFailure::Failed(_)
            | ToolFailure::Withheld
            | ToolFailure::TooLarge
            | ToolFailure::OutOfMemory
            | ToolFailure::TooDeep
            | ToolFailure::Broken => ToolCallError::Failed,
        })?;
        Ok(as_json(shortened(output.for_model)))
    }
}

impl ToolAccess for HookTools {
    fn call<'a>(&'a self, call: ToolCall<'a>) -> Opening<'a, Result<Vec<u8>, ToolCallError>> {
        Box::pin(self.run(call))
    }
}

/// Returns JSON text as it is, and other text as a JSON string.
fn as_json(text: String) -> Vec<u8> {
    if serde_json::from_str::<&RawValue>(&text).is_ok() {
        return text.into_bytes();
    }
    Value::String(text).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_result_is_json_for_a_hook() {
        assert_eq!(as_json("{\"a\":1}".to_owned()), b"{\"a\":1}");
        assert_eq!(as_json("12 o\"clock".to_owned()), b"\"12 o\\\"clock\"");
    }
}
