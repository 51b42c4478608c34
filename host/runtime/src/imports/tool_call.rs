//! `tool-call`: a hook calls a server tool. Nested as deep as questions to models at most, because
//! tools may ask models.

use crate::bindings::cofferdam::plugin::tool_call::{Host, ToolCallError};
use crate::guest::GuestState;
use crate::imports::Interface;
use crate::services::{QUESTION_DEPTH_MAX, ToolCall};

/// Calls within one instance's life, which is one call of the hook.
const CALLS_MAX: u32 = 32;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap_async("call", |mut guest, (tool, settings, function, arguments)| {
        Box::new(async move { Ok((guest.data_mut().call(tool, settings, function, arguments).await?,)) })
    })
}

impl Host for GuestState {
    async fn call(
        &mut self,
        tool: String,
        settings: Vec<u8>,
        function: String,
        arguments: Vec<u8>,
    ) -> wasmtime::Result<Result<Vec<u8>, ToolCallError>> {
        let asked = self.enter_taped("tool-call.call", &(&tool, &settings, &function, &arguments))?;
        if let Some(output) = asked.recorded()? {
            return Ok(output);
        }
        let output = self.call_tool(&tool, &settings, &function, &arguments).await;
        asked.note(&output);
        Ok(output)
    }
}

impl GuestState {
    async fn call_tool(
        &mut self,
        tool: &str,
        settings: &[u8],
        function: &str,
        arguments: &[u8],
    ) -> Result<Vec<u8>, ToolCallError> {
        let Some(tools) = self.services.tools.clone() else { return Err(ToolCallError::Unavailable) };
        let depth = self.services.depth.saturating_add(1);
        if depth > QUESTION_DEPTH_MAX || self.tool_calls >= CALLS_MAX {
            return Err(ToolCallError::Exhausted);
        }
        self.tool_calls += 1;
        let call = ToolCall { plugin: self.plugin.name(), tool, settings, function, arguments, depth };
        self.account.beside(tools.call(call)).await
    }
}
