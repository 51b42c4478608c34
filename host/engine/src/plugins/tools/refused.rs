//! Why a request cannot have a server tool, and who can change that.

use super::offer::of_type;
use crate::Engine;
use crate::refusal::Refusal;
use crate::refusal::printable;
use crate::request::RequestTool;
use cofferdam_runtime::Plugin;
use std::time::Instant;

impl Engine {
    /// A tool that is not there, or lacks what it needs. The line that grants an import holds names of
    /// interfaces only, so that a client may pass it on to the operator.
    pub(super) fn unavailable(&self, tool: &RequestTool, name: &str) -> Refusal {
        self.tell_lacking_tool(name);
        let mut denials = of_type(&self.parts.plugins, name).flat_map(|plugin| plugin.missing_grants());
        let hint = denials
            .find(|denial| denial.imports.iter().all(|import| import.is_granted_by_name()))
            .map_or_else(String::new, |denial| format!("; its operator can allow it with {}", denial.line));
        Refusal { message: unavailable(tool).message + &hint, ..unavailable(tool) }
    }

    /// Tells the operator of the grants that a plugin lacks which a request asks for.
    pub(crate) fn tell_lacking(&self, plugin: &Plugin) {
        let Some(lacking) = plugin.lacks() else { return };
        if self.parts.memory.lacking.is_due(plugin.name(), Instant::now()) {
            tracing::warn!(plugin = plugin.name(), "a request asks for this plugin, which {lacking}");
        }
    }

    /// As [`Engine::tell_lacking`], of the tools of this type.
    pub(crate) fn tell_lacking_tool(&self, name: &str) {
        for plugin in of_type(&self.parts.plugins, name) {
            self.tell_lacking(plugin);
        }
    }
}

/// A tool that is not there, for whatever reason.
pub(super) fn unavailable(tool: &RequestTool) -> Refusal {
    Refusal::invalid(format!(
        "{}.type \"{}\" is not available on this host",
        tool.source.place,
        printable(&tool.type_name)
    ))
}

/// A tool that asks models, in a request that is so deep that nothing can be asked any more.
pub(super) fn too_deep(tool: &RequestTool) -> Refusal {
    Refusal::invalid(format!(
        "{}.type \"{}\" asks models, and questions to models nest no deeper",
        tool.source.place,
        printable(&tool.type_name)
    ))
}
