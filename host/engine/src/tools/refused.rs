//! Why a request cannot have a server tool, and who can change that.

use super::offer::of_type;
use crate::Engine;
use crate::refusal::Refusal;
use crate::request::RequestTool;
use crate::routing::printable;
use cofferdam_runtime::manifest::Import;

impl Engine {
    /// A tool that is not there, or lacks what it needs. The line that grants an import holds names of
    /// interfaces only, so that a client may pass it on to the operator.
    pub(super) fn unavailable(&self, tool: &RequestTool, name: &str) -> Refusal {
        let by_name = |wanted: &str| {
            Import::ALL.iter().any(|import| import.is_granted_by_name() && import.as_str() == wanted)
        };
        let mut denials = of_type(&self.parts.plugins, name).flat_map(|plugin| plugin.missing_grants());
        let hint = denials
            .find(|denial| by_name(&denial.wanted))
            .map_or_else(String::new, |denial| format!("; its operator can allow it with {}", denial.line));
        Refusal { message: unavailable(tool).message + &hint, ..unavailable(tool) }
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
