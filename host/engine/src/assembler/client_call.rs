//! A call of one of the client's own kinds of tools, and its item.

use super::json::{member, raw};
use crate::request::{ClientTool, no_arguments, read_arguments};
use cofferdam_protocol::ToolKind;
use serde_json::Value;

/// A call that is converted into the client's kind.
#[derive(Debug)]
pub(super) struct ClientCall {
    pub(super) tool: ClientTool,
    pub(super) call_id: String,
    /// The arguments that the model has written so far.
    pub(super) arguments: String,
    /// What the item holds in their place, once they are complete.
    pub(super) said: Option<Value>,
}

impl ClientCall {
    pub(super) fn id_prefix(&self) -> &'static str {
        self.tool.kind.id_prefix()
    }

    pub(super) fn push(&mut self, arguments: &str) {
        self.arguments.push_str(arguments);
    }

    /// Writes the item. Without `id_and_status` it is written for the model's history.
    pub(super) fn write(&self, id_and_status: Option<(&str, &str)>, out: &mut Vec<u8>) {
        let ClientTool { kind, namespace, name } = &self.tool;
        raw(out, "{\"type\":\"");
        raw(out, kind.call_type());
        raw(out, "\"");
        if let Some((id, status)) = id_and_status {
            member(out, "id", id);
            member(out, "status", status);
        }
        member(out, "call_id", &self.call_id);
        if *kind == ToolKind::Custom {
            member(out, "name", name);
            namespace.iter().for_each(|namespace| member(out, "namespace", namespace));
        }
        if *kind == ToolKind::ToolSearch {
            member(out, "execution", "client");
        }
        match &self.said {
            Some(said) => member(out, kind.arguments_member(), said),
            None => member(out, kind.arguments_member(), no_arguments(kind)),
        }
        raw(out, "}");
    }

    /// Parses the arguments. Returns whether they fit the kind.
    pub(super) fn complete(&mut self) -> bool {
        self.said = read_arguments(&self.tool.kind, &self.arguments);
        self.said.is_some()
    }
}
