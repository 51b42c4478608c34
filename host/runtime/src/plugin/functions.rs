//! The functions of a component that the host calls.

use wasmtime::component::{Component, ComponentExportIndex};

use crate::contract::{ContractLine, Export};

/// The functions that a component exports, looked up by the names of its line. They are called
/// without the generated functions, which take owned bytes and have the names of one line only.
#[derive(Clone)]
pub(crate) struct Functions {
    pub(crate) route: Option<ComponentExportIndex>,
    pub(crate) slugs: Option<ComponentExportIndex>,
    pub(crate) choose: Option<ComponentExportIndex>,
    pub(crate) prepare: Option<ComponentExportIndex>,
    pub(crate) new_decoder: Option<ComponentExportIndex>,
    pub(crate) feed: Option<ComponentExportIndex>,
    pub(crate) finish: Option<ComponentExportIndex>,
    pub(crate) map_error: Option<ComponentExportIndex>,
    pub(crate) prepare_embeddings: Option<ComponentExportIndex>,
    pub(crate) decode_embeddings: Option<ComponentExportIndex>,
    pub(crate) on_request: Option<ComponentExportIndex>,
    pub(crate) on_response: Option<ComponentExportIndex>,
    pub(crate) tool_functions: Option<ComponentExportIndex>,
    pub(crate) invoke_tool: Option<ComponentExportIndex>,
}

impl Functions {
    /// A component of an earlier or later patch of the line is found under the same names.
    pub(super) fn of(component: &Component, line: &ContractLine) -> Self {
        let find = |export: Export, function: &str| {
            let interface = component.get_export_index(None, line.interface_name(export.as_str()))?;
            component.get_export_index(Some(&interface), function)
        };
        Self {
            route: find(Export::Routing, "route"),
            slugs: find(Export::ModelChoice, "slugs"),
            choose: find(Export::ModelChoice, "choose"),
            prepare: find(Export::Generation, "prepare"),
            new_decoder: find(Export::Generation, "[constructor]decoder"),
            feed: find(Export::Generation, "[method]decoder.feed"),
            finish: find(Export::Generation, "[method]decoder.finish"),
            map_error: find(Export::Dialect, "map-error"),
            prepare_embeddings: find(Export::Embedding, "prepare"),
            decode_embeddings: find(Export::Embedding, "decode"),
            on_request: find(Export::OnRequest, "handle"),
            on_response: find(Export::OnResponse, "handle"),
            tool_functions: find(Export::Tools, "functions"),
            invoke_tool: find(Export::Tools, "invoke"),
        }
    }
}
