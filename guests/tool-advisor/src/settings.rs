//! The client's settings: `parameters` of the tool entry.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::{Fields, Instance};

/// The tool's type, and the name of the function of an advisor without a name.
pub(crate) const TYPE: &str = "advisor";

/// Validated settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) instance: Instance,
    /// Whether the advisor sees the conversation.
    pub(crate) forwards_transcript: bool,
}

impl Settings {
    /// Reads the settings. `stream` is accepted and ignored: the API has no events for advice.
    ///
    /// # Errors
    ///
    /// When a field is wrong; the message names it.
    pub(crate) fn read(fields: &Fields) -> Result<Self, ToolError> {
        fields.flag("stream")?;
        Ok(Self {
            instance: Instance::read(fields, TYPE)?,
            forwards_transcript: fields.flag("forward_transcript")?.unwrap_or(false),
        })
    }
}
