//! The prefixes of server tools, in the `type` of a tool and of the items of its calls.

/// The prefix with which the client named a server tool; output items use the same prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolPrefix {
    /// `service:`
    Service,
    /// `openrouter:`
    OpenRouter,
}

impl ToolPrefix {
    /// The prefix with its colon.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service:",
            Self::OpenRouter => "openrouter:",
        }
    }
}

/// The prefix and the bare name of a server tool's type or item type, if it has one of the
/// prefixes.
#[must_use]
pub fn split_prefix(type_name: &str) -> Option<(ToolPrefix, &str)> {
    [ToolPrefix::Service, ToolPrefix::OpenRouter]
        .into_iter()
        .find_map(|prefix| Some((prefix, type_name.strip_prefix(prefix.as_str())?)))
        .filter(|(_, name)| !name.is_empty())
}

/// The name of the server tool in a `type`, without prefix: after one of the prefixes, or the bare
/// alias.
#[must_use]
pub fn server_tool_name(type_name: &str) -> Option<&str> {
    match split_prefix(type_name) {
        Some((_, name)) => Some(name),
        None => (type_name == "tool_search").then_some(type_name),
    }
}
