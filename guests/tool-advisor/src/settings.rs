//! The client's settings: `parameters` of the tool entry.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::tool::{Fields, Instance, Manner};

/// The tool's type, and the name of the function of an advisor without a name.
pub(crate) const TYPE: &str = "advisor";
/// The default and the limit for the number of calls of an advisor's own tools.
const CALLS_DEFAULT: u32 = 10;
const CALLS_MAX: u32 = 25;

/// Validated settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) instance: Instance,
    pub(crate) manner: Manner,
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
            manner: Manner::read(fields, TYPE, CALLS_DEFAULT, CALLS_MAX)?,
            forwards_transcript: fields.flag("forward_transcript")?.unwrap_or(false),
        })
    }
}
