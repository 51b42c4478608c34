//! The refusals for a server tool that a request cannot have, and the log lines that say what the
//! operator can change.

use super::server_tool::of_type;
use crate::Engine;
use crate::refusal::Refusal;
use crate::refusal::printable;
use crate::request::RequestTool;
use cofferdam_runtime::Plugin;
use std::time::Instant;

impl Engine {
    /// The refusal for a tool that is not installed or lacks a grant. The hint contains only names
    /// of interfaces, so that a client may pass it on to the operator.
    pub(super) fn unavailable(&self, tool: &RequestTool, name: &str) -> Refusal {
        self.log_lacking_tool(name);
        let mut denials = of_type(&self.parts.plugins, name).flat_map(|plugin| plugin.missing_grants());
        let hint = denials
            .find(|denial| denial.imports.iter().all(|import| import.is_granted_by_name()))
            .map_or_else(String::new, |denial| format!("; its operator can allow it with {}", denial.line));
        Refusal { message: unavailable(tool).message + &hint, ..unavailable(tool) }
    }

    /// Logs which grants a plugin lacks that a request asks for, at most once a minute.
    pub(crate) fn log_lacking(&self, plugin: &Plugin) {
        let Some(lacking) = plugin.lacks() else { return };
        if self.parts.memory.lacking.is_due(plugin.name(), Instant::now()) {
            tracing::warn!(plugin = plugin.name(), "a request asks for this plugin, which {lacking}");
        }
    }

    /// Like [`Self::log_lacking`], but for all tools of this type.
    pub(crate) fn log_lacking_tool(&self, name: &str) {
        for plugin in of_type(&self.parts.plugins, name) {
            self.log_lacking(plugin);
        }
    }
}

/// The refusal for a tool that is not available, for any reason.
pub(super) fn unavailable(tool: &RequestTool) -> Refusal {
    Refusal::invalid(format!(
        "{}.type \"{}\" is not available on this host",
        tool.source.path,
        printable(&tool.type_name)
    ))
}

/// The refusal for a tool that asks models, in a request at the greatest depth of questions.
pub(super) fn too_deep(tool: &RequestTool) -> Refusal {
    Refusal::invalid(format!(
        "{}.type \"{}\" asks models, and questions to models nest no deeper",
        tool.source.path,
        printable(&tool.type_name)
    ))
}
