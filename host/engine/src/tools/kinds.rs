//! The client's own kinds of tools, such as `code_interpreter`. An endpoint whose dialect has one keeps it as
//! it is; for the others a tool of this host that serves the kind stands in its place, as functions.

use crate::Engine;
use crate::catalog::{Endpoint, ModelKind};
use crate::request::{RequestTool, ResponsesRequest, ToolClass, ToolKind};
use crate::routing::find_models;
use cofferdam_runtime::Plugin;
use cofferdam_runtime::manifest::ToolTable;
use std::sync::Arc;

/// Which of a request's entries an endpoint's dialect has itself, by the place of the entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own(Vec<bool>);

impl Own {
    pub(crate) fn new(entries: impl Iterator<Item = bool>) -> Self {
        Self(entries.collect())
    }

    pub(crate) fn has(&self, place: usize) -> bool {
        self.0.get(place).copied().unwrap_or_default()
    }
}

/// Whether the endpoint's dialect knows tools of this type.
pub(crate) fn dialect_has(endpoint: &Endpoint, tool_type: &str) -> bool {
    let provider = endpoint.provider.adapter.manifest().provider.as_ref();
    provider.is_some_and(|provider| provider.tools.iter().any(|known| known == tool_type))
}

impl Engine {
    /// The tool that serves this entry of the client's own kinds, if one does and has all it needs. Functions
    /// and custom tools are the client's to run.
    pub(crate) fn stand_in(&self, tool: &RequestTool) -> Option<(&Arc<Plugin>, &ToolTable)> {
        let is_clients = matches!(tool.kind, ToolKind::Function | ToolKind::Custom | ToolKind::Namespace);
        if is_clients || tool.kind.class() == ToolClass::Server {
            return None;
        }
        let tables =
            self.parts.plugins.iter().filter_map(|plugin| Some((plugin, plugin.manifest().tool.as_ref()?)));
        let mut serving = tables.filter(|(_, table)| table.client_types.contains(&tool.type_name));
        serving.find(|(plugin, _)| plugin.is_usable())
    }

    /// Whether an endpoint that may answer this request needs a stand-in for one of its tools.
    pub(crate) fn needs_stand_in(&self, request: &ResponsesRequest) -> bool {
        let mut served = request.tools.iter().filter(|tool| self.stand_in(tool).is_some()).peekable();
        if served.peek().is_none() {
            return false;
        }
        // A name that is no model's is a model router's, and which models that chooses is not known yet.
        let Ok(models) = find_models(self.catalog(), &request.models, ModelKind::Responses) else {
            return true;
        };
        let endpoints = || models.iter().flat_map(|model| &model.endpoints);
        served.any(|tool| endpoints().any(|endpoint| !dialect_has(endpoint, &tool.type_name)))
    }
}
