//! Functions that the client defers until a tool search has found them.

use crate::request::RequestTool;

use bytes::Bytes;
use cofferdam_protocol::ToolKind;
use cofferdam_runtime::manifest::ToolTable;

/// A function that the client defers until a tool search has found it.
pub(super) struct Deferred {
    pub(super) name: String,
    /// The entry of `tools`.
    pub(super) json: Bytes,
}

/// The deferred functions of a request. None are deferred if no tool could find them.
pub(super) fn deferred(tools: &[RequestTool]) -> Vec<Deferred> {
    let defers = defers(tools);
    let deferred = tools.iter().filter(|tool| defers && tool.is_deferred);
    let definition =
        |tool: &RequestTool| Some(Deferred { name: tool.name.clone()?, json: tool.loaded_json() });
    deferred.filter_map(definition).collect()
}

pub(super) fn defers(tools: &[RequestTool]) -> bool {
    tools.iter().any(|tool| matches!(&tool.kind, ToolKind::Server(name) if name == ToolTable::FINDS_DEFERRED))
}
