//! Calls into hooks, one per phase.

use std::sync::Arc;

use crate::bindings::cofferdam::plugin::types::CallContext as GuestContext;
use crate::calls::answers::is_object;
use crate::calls::borrowing;
use crate::context::CallContext;
use crate::error::{CallError, CallErrorKind};
use crate::instance::Instance;
use crate::plugin::Plugin;
use crate::services::Services;
use crate::wire::{Action, Failure};

type HookAnswer = (Result<Action, Failure>,);

/// Output per byte of input: a hook may make a request or response somewhat longer.
const OUTPUT_PER_INPUT_BYTE: usize = 2;
const OUTPUT_BYTES_FREE: usize = 1024 * 1024;

impl Plugin {
    /// Calls a hook with a request. `request` and `settings` are JSON.
    ///
    /// # Errors
    ///
    /// The guest trapped, or replaced the request by something other than a JSON object.
    pub async fn on_request(
        self: &Arc<Self>,
        context: &CallContext,
        services: Services,
        request: &[u8],
        settings: &[u8],
    ) -> Result<Result<Action, Failure>, CallError> {
        if self.compiled().await?.functions.on_request.is_none() {
            return Err(self.missing("on-request"));
        }
        let mut instance = Instance::open(self, context, services).await?;
        instance.make_room(request.len())?;
        let handle = async |instance: &mut Instance| {
            type Parameters<'a> = (&'a [u8], &'a [u8], &'a GuestContext);
            let function =
                borrowing::<Parameters<'_>, HookAnswer>(instance, |functions| functions.on_request)?;
            let arguments = (request, settings, &instance.context);
            Ok(function.call_async(&mut instance.live.store, arguments).await?.0)
        };
        instance.note_call("on-request", &(request, settings));
        let (instance, answer) = instance.run("on-request", output_bytes_max(request.len()), handle).await?;
        check_action(&instance, "on-request", answer)
    }

    /// Calls a hook with a finished response and its request. `request`, `response` and `settings`
    /// are JSON.
    ///
    /// # Errors
    ///
    /// The guest trapped, or replaced the response by something other than a JSON object.
    pub async fn on_response(
        self: &Arc<Self>,
        context: &CallContext,
        services: Services,
        request: &[u8],
        response: &[u8],
        settings: &[u8],
    ) -> Result<Result<Action, Failure>, CallError> {
        if self.compiled().await?.functions.on_response.is_none() {
            return Err(self.missing("on-response"));
        }
        let mut instance = Instance::open(self, context, services).await?;
        instance.make_room(request.len().saturating_add(response.len()))?;
        let handle = async |instance: &mut Instance| {
            type Parameters<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a GuestContext);
            let function =
                borrowing::<Parameters<'_>, HookAnswer>(instance, |functions| functions.on_response)?;
            let arguments = (request, response, settings, &instance.context);
            Ok(function.call_async(&mut instance.live.store, arguments).await?.0)
        };
        instance.note_call("on-response", &(request, response, settings));
        let (instance, answer) =
            instance.run("on-response", output_bytes_max(request.len() + response.len()), handle).await?;
        check_action(&instance, "on-response", answer)
    }
}

fn check_action(
    instance: &Instance,
    function: &'static str,
    answer: Result<Action, Failure>,
) -> Result<Result<Action, Failure>, CallError> {
    instance.note_answer(&answer);
    match &answer {
        Ok(Action::Replace(json)) if !is_object(json) => {
            let rule = "a replacement is not a JSON object";
            Err(instance.failed(function, CallErrorKind::InvalidAnswer(rule)))
        }
        _ => Ok(answer),
    }
}

fn output_bytes_max(input_bytes: usize) -> usize {
    input_bytes.saturating_mul(OUTPUT_PER_INPUT_BYTE).saturating_add(OUTPUT_BYTES_FREE)
}
