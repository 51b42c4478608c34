//! Calls into server tools: listing their functions and running one.

use std::sync::Arc;

use crate::bindings::cofferdam::plugin::types::CallContext as GuestContext;
use crate::calls::answers::{check_functions, check_output};
use crate::calls::{borrowing, index};
use crate::context::CallContext;
use crate::error::{CallError, CallErrorKind};
use crate::guest::exports;
use crate::instance::Instance;
use crate::plugin::Plugin;
use crate::services::Services;
use crate::wire::{Function, Output, ToolError};

/// Length limit of names, descriptions and schemas, in bytes.
const FUNCTIONS_BYTES_MAX: usize = 1024 * 1024;
/// Length limit in bytes of a tool's result, such as a fetched page or a picture, or of one body
/// that it sends.
const OUTPUT_BYTES_MAX: usize = 32 * 1024 * 1024;

impl Plugin {
    /// The functions that a tool offers with these settings (JSON).
    ///
    /// # Errors
    ///
    /// The guest trapped or its answer breaks a rule. The inner error reports wrong settings.
    pub async fn functions(
        self: &Arc<Self>,
        context: &CallContext,
        services: Services,
        settings: &[u8],
    ) -> Result<Result<Vec<Function>, ToolError>, CallError> {
        if self.compiled().await?.functions.tool_functions.is_none() {
            return Err(self.missing("tools"));
        }
        let instance = Instance::open(self, context, services).await?;
        let functions = async |instance: &mut Instance| {
            type Answer = (Result<Vec<Function>, ToolError>,);
            let function =
                borrowing::<(&[u8], &GuestContext), Answer>(instance, |functions| functions.tool_functions)?;
            Ok(function.call_async(&mut instance.live.store, (settings, &instance.context)).await?.0)
        };
        instance.note_call("functions", &(settings,));
        let (instance, answer) = instance.run("functions", FUNCTIONS_BYTES_MAX, functions).await?;
        instance.note_answer(&answer);
        if let Ok(functions) = &answer {
            let invalid = |rule| instance.failed("functions", CallErrorKind::InvalidAnswer(rule));
            check_functions(functions, self.manifest().tool.as_ref()).map_err(invalid)?;
        }
        Ok(answer)
    }

    /// Runs one function. `arguments` and `settings` are JSON.
    ///
    /// # Errors
    ///
    /// The guest trapped or its answer breaks a rule. The inner error is a failure that the guest
    /// reports.
    pub async fn invoke(
        self: &Arc<Self>,
        context: &CallContext,
        services: Services,
        function: &str,
        arguments: &[u8],
        settings: &[u8],
    ) -> Result<Result<Output, ToolError>, CallError> {
        if self.compiled().await?.functions.invoke_tool.is_none() {
            return Err(self.missing("tools"));
        }
        let instance = Instance::open_in_turn(self, context, services).await?;
        let invoke = async |instance: &mut Instance| {
            let index = index(instance, |functions| functions.invoke_tool)?;
            let Instance { live, context, plugin, .. } = instance;
            let parameters = (function, arguments, settings, &*context);
            match plugin.line().invoke_tool {
                None => exports::invoke::<Output>(live, index, parameters).await,
                Some(converted) => converted(live, index, parameters).await,
            }
        };
        instance.note_call("invoke", &(function, arguments, settings));
        let (instance, answer) = instance.run("invoke", OUTPUT_BYTES_MAX, invoke).await?;
        instance.note_answer(&answer);
        if let Ok(output) = &answer {
            let invalid = |rule| instance.failed("invoke", CallErrorKind::InvalidAnswer(rule));
            check_output(output).map_err(invalid)?;
        }
        Ok(answer)
    }
}
