//! The client's settings: `parameters` of the tool entry.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::tool::{Fields, Instance, Manner};

/// The tool's type, and the name of the function of a worker without a name.
pub(crate) const TYPE: &str = "subagent";
/// The default and the limit for the number of calls of a worker's own tools.
const CALLS_DEFAULT: u32 = 10;
const CALLS_MAX: u32 = 25;

/// Validated settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) instance: Instance,
    pub(crate) manner: Manner,
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// When a field is wrong; the message names it.
    pub(crate) fn read(fields: &Fields) -> Result<Self, ToolError> {
        const INHERIT: &str = "inherit_functions";
        if fields.flag(INHERIT)?.unwrap_or(false) {
            return Err(fields.wrong(
                INHERIT,
                "is not available on this host: a worker cannot wait for the client to run a function",
            ));
        }
        Ok(Self {
            instance: Instance::read(fields, TYPE)?,
            manner: Manner::read(fields, TYPE, CALLS_DEFAULT, CALLS_MAX)?,
        })
    }
}
