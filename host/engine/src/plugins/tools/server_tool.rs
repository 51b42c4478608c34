//! A server tool of a request, and the plugins that are tools.

use crate::request::ToolSource;
use bytes::Bytes;
use cofferdam_runtime::{Plugin, PluginKind, Plugins};
use std::sync::Arc;

/// A server tool of a request.
#[derive(Clone)]
pub(crate) struct ServerTool {
    /// What in the request asks for it.
    pub(crate) source: ToolSource,
    pub(crate) plugin: Arc<Plugin>,
    /// The tool's name without prefix.
    pub(crate) name: String,
    /// Whether it is a hosted substitute for a tool of the client's own kind.
    pub(crate) stands_in: bool,
    /// The label of the server behind it, for tools that connect to one of several servers.
    pub(crate) label: Option<String>,
    /// The entry's `parameters`.
    pub(crate) settings: Bytes,
}

impl ServerTool {
    /// Whether it shows an item before the first turn, such as the tools that it found.
    pub(super) fn opens(&self) -> bool {
        self.plugin.manifest().tool.iter().flat_map(|table| &table.items).any(|item| item.opening.is_some())
    }

    /// Whether some of its calls need the client's approval.
    pub(super) fn asks_client(&self) -> bool {
        self.plugin.manifest().tool.iter().flat_map(|table| &table.items).any(|item| item.asks.is_some())
    }
}

/// The plugin that is a tool of this type and has the grants it needs.
pub(crate) fn installed<'a>(plugins: &'a Plugins, name: &str) -> Option<&'a Arc<Plugin>> {
    of_type(plugins, name).find(|plugin| plugin.is_usable())
}

/// The plugins that are tools of this type, whether or not they have the grants they need.
pub(super) fn of_type<'a>(plugins: &'a Plugins, name: &str) -> impl Iterator<Item = &'a Arc<Plugin>> {
    plugins.iter().filter(move |plugin| {
        plugin.kind() == PluginKind::Tool
            && plugin.manifest().tool.as_ref().is_some_and(|table| table.tool_type == name)
    })
}
