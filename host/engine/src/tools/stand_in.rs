//! Server tools in the place of tools of the client's own kinds, such as `web_search`, which only some
//! endpoints have.
//!
//! One request is served one way: where every endpoint of its models has the tool itself, that is used; else
//! the host's tool serves all of them, so that each may answer and none answers differently. A client that
//! names an engine decides it: `native` is the endpoint's own, any other the host's.

use crate::Engine;
use crate::request::{RequestTool, ResponsesRequest, ToolClass, ToolKind};
use crate::routing::router_slug;

/// Puts server tools in the place of tools that not every endpoint has itself, as far as this host has them.
pub(crate) fn stand_in(engine: &Engine, request: &mut ResponsesRequest) {
    let models: Vec<_> = request.models.iter().map(|slug| engine.catalog().find(slug)).collect();
    let is_unknown = |(slug, model): (&String, &Option<_>)| model.is_none() && router_slug(slug).is_none();
    if request.models.iter().zip(&models).any(is_unknown) {
        // The request is refused for it; no tool needs to look at it first.
        return;
    }
    let have_all = |tool_type: &str| {
        // A model router's choice may be any model.
        models.iter().all(|model| {
            model.is_some_and(|model| model.endpoints.iter().all(|endpoint| endpoint.offers(tool_type)))
        })
    };
    for tool in request.tools.iter_mut().filter(|tool| is_replaceable(tool)) {
        if is_endpoints_own(tool, have_all) {
            continue;
        }
        if let Some(name) = engine.stand_in_for(&tool.type_name) {
            tool.replace(&name);
        }
    }
}

/// What a client defines itself is its own to run, and server tools are what they are.
fn is_replaceable(tool: &RequestTool) -> bool {
    let is_defined = matches!(
        tool.kind,
        ToolKind::Function | ToolKind::Custom | ToolKind::Namespace | ToolKind::ToolSearch
    );
    // What this host's search finds is not what a provider has stored.
    !is_defined && !tool.is_search_offline() && tool.kind.class() != ToolClass::Server
}

fn is_endpoints_own(tool: &RequestTool, have_all: impl Fn(&str) -> bool) -> bool {
    match tool.engine().as_deref() {
        Some("native") => true,
        None | Some("auto") => have_all(&tool.type_name),
        Some(_) => false,
    }
}

impl Engine {
    /// The server tool that takes the place of a client's tool of this type.
    fn stand_in_for(&self, type_name: &str) -> Option<String> {
        let tables = self.parts.plugins.iter().filter(|plugin| plugin.is_usable());
        let mut tables = tables.filter_map(|plugin| plugin.manifest().tool.as_ref());
        let found = tables.find(|table| table.client_types.iter().any(|known| known == type_name));
        found.map(|table| table.tool_type.clone())
    }
}
