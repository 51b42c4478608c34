//! What the client sets: `parameters` of the tool entry.

use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::ToolError;
use cofferdam_toolbox::{Fields, Instance, Manner};

/// The tool's type, and the function of a worker without a name.
const TYPE: &str = "subagent";
/// Steps of a worker's own tools when the client is silent, and at most (names.md 4.1).
const CALLS_DEFAULT: u32 = 10;
const CALLS_MAX: u32 = 25;

/// Checked settings.
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
    /// A field is wrong; the message names it.
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
