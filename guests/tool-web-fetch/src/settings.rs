//! What the client may choose: `parameters` of the tool entry.

use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::ToolError;
use cofferdam_toolbox::{DomainRules, Fields};

/// Fetches of one request, at most and when the client is silent.
const USES_MAX: u32 = 50;
/// `max_content_tokens` when the client is silent, and at most.
const CONTENT_TOKENS_DEFAULT: u32 = 20_000;
const CONTENT_TOKENS_MAX: u32 = 200_000;
/// What a token is taken for, in characters.
const CHARS_PER_TOKEN: u32 = 4;

/// Checked settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Fetches in one request.
    pub(crate) uses_max: u32,
    /// Characters of one page's text.
    pub(crate) content_chars_max: usize,
    pub(crate) domains: DomainRules,
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// A field is wrong; the message names it.
    pub(crate) fn read(fields: &Fields) -> Result<Self, ToolError> {
        check_engine(fields)?;
        // Larger numbers are wishes like the others: capped, not refused.
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

/// Every engine that this host has is this one; the others are services it does
/// not buy from.
fn check_engine(fields: &Fields) -> Result<(), ToolError> {
    match fields.text("engine")? {
        None | Some("auto" | "native" | "openrouter" | "service") => Ok(()),
        Some("exa" | "firecrawl" | "parallel") => {
            Err(fields.wrong("engine", "is not available on this host; use auto, native or openrouter"))
        }
        Some(_) => Err(fields.wrong("engine", "takes auto, native or openrouter")),
    }
}
