//! Where in a request a tool is asked for, so that what is wrong with it is told in the client's own terms.

use std::fmt;

/// Which part of a request asks for a tool. Displays as its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// This entry of `tools`.
    Tools(usize),
    /// The tool at the second place of what the item of `input` at the first brings.
    Input(usize, usize),
    /// This entry of `plugins`.
    Plugins(usize),
    /// A plugin that the workspace has by default, by its id.
    Default(&'static str),
    /// The suffix of a slug.
    Model,
}

impl fmt::Display for Place {
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

/// Members of an entry, each with the parameter of a server tool that it is.
pub(crate) type Translation = &'static [(&'static str, &'static str)];

/// Where a tool's settings stand in the request, for messages in the client's own terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolSource {
    /// What asks for the tool.
    pub place: Place,
    /// The settings are members of the entry itself, by these names; none where they are its `parameters`.
    pub(crate) names: Option<Translation>,
}

impl ToolSource {
    /// A tool's complaint about its settings, which begins with `parameters.NAME`, as a sentence about the
    /// request.
    #[must_use]
    pub fn complaint(&self, message: &str) -> String {
        let place = self.place;
        let (Some(names), Some(rest)) = (self.names, message.strip_prefix("parameters")) else {
            return format!("{place}.{message}");
        };
        let Some(rest) = rest.strip_prefix('.') else { return format!("{place}{rest}") };
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let (parameter, rest) = rest.split_at(end);
        let member =
            names.iter().find(|(_, name)| *name == parameter).map_or(parameter, |(member, _)| member);
        format!("{place}.{member}{rest}")
    }
}
