//! Which items a provider may create.
//!
//! Clients send the output of a response back as input, where the type of an item decides how it is
//! used. So an item that only the client or this host may create must not come from a provider: it
//! could forge the client's approval, or the result of a client's tool.

use super::items::tag_of;
use crate::request::ResponsesRequest;
use cofferdam_protocol::{ItemRole, ToolClass, ToolKind, split_prefix};
use cofferdam_runtime::wire::Event;

/// The item types that a provider may create. The default permits no items of MCP servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permits {
    /// The provider was sent an MCP server that it may call itself.
    pub mcp: bool,
}

impl Permits {
    /// The permits for the endpoints that this request is sent to, which all support its tools. An
    /// MCP server that this host calls itself has become a server tool by now, and providers
    /// receive only its functions.
    pub(crate) fn of(request: &ResponsesRequest) -> Self {
        Self { mcp: request.all_tools().any(|tool| tool.kind == ToolKind::Mcp) }
    }

    pub(super) fn allow(self, item_type: &str) -> bool {
        let is_clients = item_type == "additional_tools"
            || item_type.ends_with("_approval_response")
            || is_output_of_client(item_type);
        let is_hosts = split_prefix(item_type).is_some();
        let is_of_mcp = item_type.starts_with("mcp_");
        !is_clients && !is_hosts && (self.mcp || !is_of_mcp)
    }

    /// Whether a provider may create all items among these events. An item whose type cannot be
    /// read is not permitted.
    pub(crate) fn allow_all(self, events: &[Event]) -> bool {
        events.iter().all(|event| match event {
            Event::OpaqueItem(item) => tag_of(item).is_some_and(|tag| self.allow(&tag)),
            _ => true,
        })
    }
}

/// Whether only the client can have made items of this type. A provider may run a shell itself.
fn is_output_of_client(item_type: &str) -> bool {
    match ToolKind::of_item(item_type) {
        Some((kind, ItemRole::Output)) => kind.class() == ToolClass::Client && *kind != ToolKind::Shell,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(permits: Permits, item: &str) -> bool {
        permits.allow_all(&[Event::MessageStart(None), Event::OpaqueItem(item.as_bytes().to_vec())])
    }

    #[test]
    fn items_of_the_client_and_of_this_host_are_refused_from_providers() {
        for item_type in [
            "mcp_approval_response",
            "other_approval_response",
            "service:datetime",
            "openrouter:datetime",
            "additional_tools",
            "function_call_output",
            "custom_tool_call_output",
            "computer_call_output",
            "local_shell_call_output",
            "apply_patch_call_output",
            "tool_search_output",
        ] {
            let item = format!("{{\"type\":\"{item_type}\"}}");
            assert!(!allowed(Permits::default(), &item) && !allowed(Permits { mcp: true }, &item), "{item}");
        }
    }

    #[test]
    fn mcp_items_need_an_mcp_server_that_was_sent() {
        for item_type in ["mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_x"] {
            let item = format!("{{\"type\":\"{item_type}\"}}");
            assert!(!allowed(Permits::default(), &item) && allowed(Permits { mcp: true }, &item), "{item}");
        }
    }

    #[test]
    fn other_items_are_allowed_and_unreadable_types_are_not() {
        for item in [
            r#"{"type":"shell_call_output"}"#,
            r#"{"type":"web_search_call","id":"ws_1"}"#,
            r#"{"type":"tool_search_call","call_id":"c"}"#,
            r#"{"type":"mcpx"}"#,
        ] {
            assert!(allowed(Permits::default(), item), "{item}");
        }
        for item in [
            "",
            "[]",
            "{}",
            r#"{"type":7}"#,
            r#"{"type":"message","type":"mcp_approval_response"}"#,
            r#"{"type":"mcp\u005fapproval_response"}"#,
        ] {
            assert!(!allowed(Permits::default(), item), "{item}");
        }
    }
}
