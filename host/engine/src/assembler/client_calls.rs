//! Calls of the client's own kinds of tools that were rendered as functions for the model. The
//! item is added when the call begins; its content and events are written when the arguments are
//! complete. A call whose function was only renamed gets its name back and streams as usual.

use super::client_call::ClientCall;
use super::items::{ItemBody, ItemStatus};
use super::{Assembler, Malformed};
use crate::request::{ClientTool, RenderedTools};
use cofferdam_protocol::ToolKind;
use cofferdam_runtime::wire::CallStart;
use serde_json::Value;
use std::sync::Arc;

impl Assembler {
    /// Sets the functions of the turn that begins which represent tools of the client's own kinds.
    /// If the turn compacts a conversation, all its text goes into the summary.
    pub(crate) fn use_told(&mut self, told: Option<Arc<RenderedTools>>) {
        self.summary = told.as_ref().filter(|told| told.compacts).map(|_| String::new());
        self.told = told;
    }

    /// Begins a call of the client's own kinds. Returns the start if the call is one of a function
    /// or custom tool, under the name and namespace of the client.
    pub(super) fn start_client_call(
        &mut self,
        start: CallStart,
        custom: bool,
    ) -> Result<Option<CallStart>, Malformed> {
        let tool = self.told.as_ref().filter(|_| start.namespace.is_none());
        let Some(tool) = tool.and_then(|told| told.get(&start.name)).cloned() else { return Ok(Some(start)) };
        if tool.kind == ToolKind::Function || custom {
            // Only the name was changed by the rendering; the kind of the call is the same.
            let ClientTool { name, namespace, .. } = tool;
            return Ok(Some(CallStart { name, namespace, ..start }));
        }
        let CallStart { key, call_id, .. } = start;
        let call = ClientCall { tool, call_id, arguments: String::new(), said: None };
        self.add(ItemBody::Client(Box::new(call)), Some(key))?;
        Ok(None)
    }

    /// Ends a call: converts the arguments and writes the item with the events of its kind.
    pub(super) fn close_client_call(&mut self, place: usize, status: ItemStatus) {
        let Some(ItemBody::Client(call)) = self.items.get_mut(place).map(|item| &mut item.body) else {
            return;
        };
        let is_whole = call.complete();
        let (kind, said) = (call.tool.kind.clone(), call.said.clone());
        if let Some(said) = said {
            self.client_events(place, &kind, &said);
        }
        // A call whose arguments do not fit its kind must not be run by the client.
        self.finish_item(place, if is_whole { status } else { ItemStatus::Incomplete });
    }

    fn client_events(&mut self, place: usize, kind: &ToolKind, said: &Value) {
        match kind {
            ToolKind::Custom => {
                let input = said.as_str().unwrap_or_default();
                self.text_events(place, "custom_tool_call_input", "input", input);
            }
            ToolKind::ApplyPatch => {
                if let Some(diff) = said.get("diff").and_then(Value::as_str) {
                    self.text_events(place, "apply_patch_call_operation_diff", "diff", diff);
                }
            }
            ToolKind::Shell => {
                let commands = said.get("commands").and_then(Value::as_array);
                for (index, command) in commands.into_iter().flatten().enumerate() {
                    self.command_events(place, index, command.as_str().unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    fn command_events(&mut self, place: usize, index: usize, command: &str) {
        for (name, said, text) in
            [("added", "command", ""), ("delta", "delta", command), ("done", "command", command)]
        {
            self.item_event(&format!("response.shell_call_command.{name}"), place, |event, _| {
                event.value("command_index", index);
                event.value(said, text);
            });
        }
    }
}
