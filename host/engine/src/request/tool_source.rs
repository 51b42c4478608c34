//! Which part of a request asks for a tool, so that errors about the tool name the client's own
//! members.

use std::fmt;

/// The part of a request that asks for a tool. Displays as its JSON path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolPath {
    /// The entry of `tools` with this index.
    Tools(usize),
    /// A tool that an item of `input` brings: the index of the item, and the index in its `tools`.
    Input(usize, usize),
    /// The entry of `plugins` with this index.
    Plugins(usize),
    /// A plugin that is on by default in the workspace: its id.
    Default(&'static str),
    /// The `:online` suffix of a model slug.
    Model,
}

impl fmt::Display for ToolPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tools(index) => write!(f, "tools[{index}]"),
            Self::Input(item, index) => write!(f, "input[{item}].tools[{index}]"),
            Self::Plugins(index) => write!(f, "plugins[{index}]"),
            Self::Default(id) => f.write_str(id),
            Self::Model => f.write_str("model"),
        }
    }
}

/// Pairs of a member of an entry and the server tool's parameter that it sets.
pub(crate) type Translation = &'static [(&'static str, &'static str)];

/// Where a request asks for a tool and how the tool's settings are named there, for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolSource {
    /// The part of the request that asks for the tool.
    pub path: ToolPath,
    /// Set where the settings are members of the entry itself, under these names; none where they
    /// are its `parameters`.
    pub(crate) names: Option<Translation>,
}

impl ToolSource {
    /// Turns the tool's own message about its settings, which begins with `parameters.NAME`, into a
    /// sentence that begins with the path of the client's member.
    #[must_use]
    pub fn complaint(&self, message: &str) -> String {
        let path = self.path;
        let (Some(names), Some(rest)) = (self.names, message.strip_prefix("parameters")) else {
            return format!("{path}.{message}");
        };
        let Some(rest) = rest.strip_prefix('.') else { return format!("{path}{rest}") };
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let (parameter, rest) = rest.split_at(end);
        let member =
            names.iter().find(|(_, name)| *name == parameter).map_or(parameter, |(member, _)| member);
        format!("{path}.{member}{rest}")
    }
}
