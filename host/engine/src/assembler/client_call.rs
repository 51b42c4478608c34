//! A call of one of the client's own kinds of tools, and its item.

use crate::request::{ClientTool, no_arguments, read_arguments};
use cofferdam_protocol::{ObjectWriter, ToolKind};
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

    pub(super) fn item_type(&self) -> &'static str {
        self.tool.kind.call_type()
    }

    /// Writes the members of the item besides type, id and status.
    pub(super) fn write_members(&self, item: &mut ObjectWriter<'_>) {
        let ClientTool { kind, namespace, name } = &self.tool;
        item.value("call_id", &self.call_id);
        if *kind == ToolKind::Custom {
            item.value("name", name);
            namespace.iter().for_each(|namespace| item.value("namespace", namespace));
        }
        if *kind == ToolKind::ToolSearch {
            item.word("execution", "client");
        }
        match &self.said {
            Some(said) => item.value(kind.arguments_member(), said),
            None => item.value(kind.arguments_member(), no_arguments(kind)),
        }
    }

    /// Parses the arguments. Returns whether they fit the kind.
    pub(super) fn complete(&mut self) -> bool {
        self.said = read_arguments(&self.tool.kind, &self.arguments);
        self.said.is_some()
    }
}
