//! The client's settings: `parameters` of the tool entry.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::{DomainRules, Fields};

/// The limit for the number of fetches in one request, which is also the default.
const USES_MAX: u32 = 50;
/// The default and the limit of `max_content_tokens`.
const CONTENT_TOKENS_DEFAULT: u32 = 20_000;
const CONTENT_TOKENS_MAX: u32 = 200_000;
/// The assumed length of a token, in characters.
const CHARS_PER_TOKEN: u32 = 4;

/// Validated settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The largest number of fetches in one request.
    pub(crate) uses_max: u32,
    /// The longest text of one page, in characters.
    pub(crate) content_chars_max: usize,
    pub(crate) domains: DomainRules,
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// When a field is wrong; the message names it.
    pub(crate) fn read(fields: &Fields) -> Result<Self, ToolError> {
        check_engine(fields)?;
        // Larger numbers are reduced to the limit and not refused.
        let tokens = fields.integer("max_content_tokens", 1..=u32::MAX)?;
        let uses = fields.integer("max_uses", 1..=u32::MAX)?;
        let tokens = tokens.unwrap_or(CONTENT_TOKENS_DEFAULT).min(CONTENT_TOKENS_MAX);
        Ok(Self {
            uses_max: uses.unwrap_or(USES_MAX).min(USES_MAX),
            content_chars_max: (tokens * CHARS_PER_TOKEN) as usize,
            domains: DomainRules::read(fields)?,
        })
    }
}

/// Checks `engine`. This tool is the only engine of the host. The other names are paid services that
/// this host does not use.
fn check_engine(fields: &Fields) -> Result<(), ToolError> {
    match fields.text("engine")? {
        None | Some("auto" | "native" | "openrouter" | "service") => Ok(()),
        Some("exa" | "firecrawl" | "parallel") => {
            Err(fields.wrong("engine", "is not available on this host; use auto, native or openrouter"))
        }
        Some(_) => Err(fields.wrong("engine", "takes auto, native or openrouter")),
    }
}
