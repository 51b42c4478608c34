//! Hosted substitutes: server tools that replace tools of the client's own kinds, such as
//! `web_search`, which only some endpoints offer.
//!
//! One request is handled in one way: if every endpoint of its models has the tool itself, that one
//! is used. Otherwise the host's tool serves all of them, so that each endpoint may answer and all
//! behave alike. A client that names an engine decides it: `native` is the endpoint's own, any
//! other the host's.

use crate::Engine;
use crate::catalog::Endpoint;
use crate::catalog::router_slug;
use crate::request::walk::walk;
use crate::request::{RequestTool, ResponsesRequest};
use cofferdam_protocol::{ToolClass, ToolKind};
use std::collections::{BTreeSet, HashMap};

/// Replaces tools that not every endpoint has itself by server tools, as far as this host has them.
///
/// `own_keys` are the providers for which the caller has a credential of its own.
pub(crate) fn substitute_hosted_tools(
    engine: &Engine,
    request: &mut ResponsesRequest,
    own_keys: &BTreeSet<String>,
) {
    let models: Vec<_> = request.models.iter().map(|slug| engine.catalog().find(slug)).collect();
    let is_unknown = |(slug, model): (&String, &Option<_>)| model.is_none() && router_slug(slug).is_none();
    if request.models.iter().zip(&models).any(is_unknown) {
        // The request will be refused for the unknown model.
        return;
    }
    let has = |endpoint: &Endpoint, tool: &RequestTool| {
        endpoint.lacks_tool(tool, own_keys.contains(&endpoint.provider.name)).is_none()
    };
    let have_all = |tool: &RequestTool| {
        // A model router may choose any model, so its slug counts as not having the tool.
        models.iter().all(|model| {
            model.is_some_and(|model| model.endpoints.iter().all(|endpoint| has(endpoint, tool)))
        })
    };
    // The types are few, even if the tools are many.
    let mut stand_ins: HashMap<String, Option<String>> = HashMap::new();
    for tool in walk(&mut request.tools).filter(|tool| is_replaceable(tool)) {
        // The server tool would ignore a member that it does not know, so the provider's tool is
        // kept.
        if is_endpoints_own(tool, have_all) || tool.unknown_member().is_some() {
            continue;
        }
        let stand_in = stand_ins.entry(tool.type_name.clone());
        if let Some(name) = stand_in.or_insert_with_key(|name| engine.hosted_substitute_for(name)) {
            tool.replace(name);
        }
    }
}

/// Functions that a client defines are run by the client, and server tools need no substitute.
fn is_replaceable(tool: &RequestTool) -> bool {
    let is_defined = matches!(
        tool.kind,
        ToolKind::Function | ToolKind::Custom | ToolKind::Namespace | ToolKind::ToolSearch
    );
    !is_defined && tool.kind.class() != ToolClass::Server
}

fn is_endpoints_own(tool: &RequestTool, have_all: impl Fn(&RequestTool) -> bool) -> bool {
    match tool.engine().as_deref() {
        Some("native") => true,
        None | Some("auto") => have_all(tool),
        Some(_) => false,
    }
}

impl Engine {
    /// The server tool that is the substitute for a client's tool of this type.
    pub(crate) fn hosted_substitute_for(&self, type_name: &str) -> Option<String> {
        let tables = self.parts.plugins.iter().filter(|plugin| plugin.is_usable());
        let mut tables = tables.filter_map(|plugin| plugin.manifest().tool.as_ref());
        let found = tables.find(|table| table.client_types.iter().any(|known| known == type_name));
        found.map(|table| table.tool_type.clone())
    }
}
