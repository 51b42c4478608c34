//! Server tools that a request asks for without an entry in `tools`: by an entry of `plugins`, or
//! by the suffix `:online` of a model slug, which means the plugin `web` without settings.
//!
//! Members of the plugin's entry become the tool's parameters, and error messages name these
//! members. A tool that is in `tools` as well is offered once, with the settings from `tools`.

use super::invalid::InvalidRequest;
use super::settings::Ability;
use super::tool_source::{ToolPath, ToolSource, Translation};
use super::tools::RequestTool;
use super::{RequestPlugin, ResponsesRequest};
use bytes::Bytes;
use cofferdam_protocol::ToolKind;
use serde_json::{Map, Value};

/// A plugin that is implemented by a server tool.
struct PluginTool {
    id: &'static str,
    tool: &'static str,
    /// Pairs of a member of the entry and the parameter that it sets. Members without an equivalent
    /// are ignored: `search_prompt` of `web` is text for models that receive search results, while
    /// models here call the search themselves.
    names: Translation,
}

/// The plugin that `:online` means.
const WEB: PluginTool = PluginTool {
    id: "web",
    tool: "web_search",
    names: &[
        ("engine", "engine"),
        ("mode", "mode"),
        ("max_results", "max_results"),
        ("max_uses", "max_uses"),
        ("include_domains", "allowed_domains"),
        ("exclude_domains", "excluded_domains"),
        ("user_location", "user_location"),
        ("x_search", "x_search"),
    ],
};

const PLUGIN_TOOLS: [PluginTool; 3] = [
    WEB,
    PluginTool {
        id: "web-fetch",
        tool: "web_fetch",
        names: &[
            ("allowed_domains", "allowed_domains"),
            ("blocked_domains", "blocked_domains"),
            ("max_content_tokens", "max_content_tokens"),
            ("max_uses", "max_uses"),
        ],
    },
    PluginTool {
        id: "fusion",
        tool: "fusion",
        names: &[
            ("preset", "preset"),
            ("analysis_models", "analysis_models"),
            ("model", "model"),
            ("tools", "tools"),
            ("max_tool_calls", "max_tool_calls"),
        ],
    },
];

/// The server tool that implements a plugin, by its name without prefix.
pub(crate) fn tool_of_plugin(id: &str) -> Option<&'static str> {
    PLUGIN_TOOLS.iter().find(|plugin| plugin.id == id).map(|plugin| plugin.tool)
}

impl RequestPlugin {
    /// Whether this plugin is implemented by a server tool, and not by a hook.
    #[must_use]
    pub fn is_tool(&self) -> bool {
        tool_of_plugin(&self.id).is_some()
    }
}

impl ResponsesRequest {
    /// Adds the tools that `plugins` and `:online` ask for, after those of `tools`. `is_there` says
    /// whether this host has a tool; `is_online` says whether a slug has the suffix.
    ///
    /// # Errors
    /// A tool that this host does not have, with the path of the part that asks for it.
    pub(crate) fn add_plugin_tools(
        &mut self,
        is_there: impl Fn(&str) -> bool,
        is_online: impl Fn(&str) -> bool,
    ) -> Result<(), InvalidRequest> {
        for plugin in &PLUGIN_TOOLS {
            let (path, settings) = match self.plugins.iter().find(|entry| entry.id == plugin.id) {
                Some(entry) if entry.enabled => {
                    let path = entry.index.map_or(ToolPath::Default(plugin.id), ToolPath::Plugins);
                    (path, plugin.parameters(entry))
                }
                // An entry that switches the plugin off wins over `:online` too.
                Some(_) => continue,
                None if plugin.id == WEB.id && self.models.iter().any(|slug| is_online(slug)) => {
                    (ToolPath::Model, Bytes::from_static(b"{}"))
                }
                None => continue,
            };
            if self.tools.iter().any(|tool| plugin.is_asked_for_by(tool)) {
                continue;
            }
            if !is_there(plugin.tool) {
                return Err(unavailable(path, plugin.id));
            }
            self.tools.push(RequestTool {
                source: ToolSource { path, names: Some(plugin.names) },
                kind: ToolKind::Server(plugin.tool.to_owned()),
                type_name: plugin.tool.to_owned(),
                prefix: None,
                name: None,
                json: Bytes::new(),
                settings,
                stands_in: false,
                hosted: None,
                is_deferred: false,
            });
            if !self.needs.contains(&Ability::Tools) {
                // Abilities are in the order of the enum, and `Tools` is its first variant.
                self.needs.insert(0, Ability::Tools);
            }
        }
        Ok(())
    }
}

impl PluginTool {
    fn is_asked_for_by(&self, tool: &RequestTool) -> bool {
        match &tool.kind {
            ToolKind::Server(name) => name == self.tool,
            // A web search entry becomes this server tool or the endpoint's own search.
            ToolKind::WebSearch => self.id == WEB.id,
            _ => false,
        }
    }

    /// The tool's parameters from the members of an entry.
    fn parameters(&self, entry: &RequestPlugin) -> Bytes {
        // The entry was checked to be an object.
        let stated: Map<String, Value> = serde_json::from_slice(&entry.json).unwrap_or_default();
        let of = |(member, parameter): &(&str, &str)| {
            let value = stated.get(*member).filter(|value| !value.is_null())?;
            Some(((*parameter).to_owned(), value.clone()))
        };
        let parameters: Map<String, Value> = self.names.iter().filter_map(of).collect();
        Bytes::from(Value::Object(parameters).to_string())
    }
}

fn unavailable(path: ToolPath, id: &str) -> InvalidRequest {
    match path {
        ToolPath::Model => {
            InvalidRequest::new("model", "asks for web search (:online), which is not available on this host")
        }
        path => InvalidRequest::new(format!("{path}.id"), format!("\"{id}\" is not available on this host")),
    }
}
