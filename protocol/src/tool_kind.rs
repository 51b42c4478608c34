//! The kinds of tools: the `type` of each, which side runs it, and the items of its calls and
//! results.

use ItemRole::{Call, Output};
use Rendering::{Functions, Texts, Unchanged};
use ToolClass::{Client, Hosted};

/// Which side runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolClass {
    /// The client runs it: the call ends the response, and the result comes back as input of the
    /// next request.
    Client,
    /// The model's provider runs it inside its endpoint.
    Hosted,
    /// This service runs it in its server tool loop.
    Server,
}

/// What takes the place of a tool and its calls where a dialect lacks tools of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rendering {
    /// Functions, and calls of them: without loss, because the client runs the tool.
    Functions,
    /// Texts about past calls. The tool itself has no substitute.
    Texts,
    /// Nothing: every dialect has the kind, or its calls say nothing without it.
    Unchanged,
}

/// The kind of a tool; one for each `type` that a client may send, apart from aliases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolKind {
    /// `function`
    Function,
    /// `custom`: a tool whose input is plain text.
    Custom,
    /// `namespace`: a named group of functions and custom tools.
    Namespace,
    /// `apply_patch`
    ApplyPatch,
    /// `local_shell`
    LocalShell,
    /// `shell`
    Shell,
    /// `computer_use_preview`
    ComputerUsePreview,
    /// `computer`
    Computer,
    /// `tool_search` with `execution: "client"`
    ToolSearch,
    /// `web_search`, `web_search_2025_08_26`, `web_search_preview`, `web_search_preview_2025_03_11`
    WebSearch,
    /// `file_search`
    FileSearch,
    /// `code_interpreter`
    CodeInterpreter,
    /// `mcp`
    Mcp,
    /// `image_generation`
    ImageGeneration,
    /// `programmatic_tool_calling`
    ProgrammaticToolCalling,
    /// `service:NAME`, `openrouter:NAME`, or the bare alias `tool_search`: the name without prefix.
    /// The set is open, because installed tool guests may add names.
    Server(String),
}

/// What an item says about a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemRole {
    /// The model calls it. The item of a hosted tool also holds the result.
    Call,
    /// The result of a call.
    Output,
}

/// Every `type` of a tool. The first row of a kind has its own name, the others have aliases.
static TYPES: [(&str, ToolKind, ToolClass, Rendering); 18] = [
    ("function", ToolKind::Function, Client, Unchanged),
    ("custom", ToolKind::Custom, Client, Functions),
    ("namespace", ToolKind::Namespace, Client, Functions),
    ("apply_patch", ToolKind::ApplyPatch, Client, Functions),
    ("local_shell", ToolKind::LocalShell, Client, Functions),
    ("shell", ToolKind::Shell, Client, Functions),
    ("computer_use_preview", ToolKind::ComputerUsePreview, Client, Unchanged),
    ("computer", ToolKind::Computer, Client, Unchanged),
    ("tool_search", ToolKind::ToolSearch, Client, Functions),
    ("web_search", ToolKind::WebSearch, Hosted, Unchanged),
    ("web_search_2025_08_26", ToolKind::WebSearch, Hosted, Unchanged),
    ("web_search_preview", ToolKind::WebSearch, Hosted, Unchanged),
    ("web_search_preview_2025_03_11", ToolKind::WebSearch, Hosted, Unchanged),
    ("file_search", ToolKind::FileSearch, Hosted, Texts),
    ("code_interpreter", ToolKind::CodeInterpreter, Hosted, Texts),
    ("mcp", ToolKind::Mcp, Hosted, Texts),
    ("image_generation", ToolKind::ImageGeneration, Hosted, Unchanged),
    ("programmatic_tool_calling", ToolKind::ProgrammaticToolCalling, Hosted, Texts),
];

/// Every `type` of the items of calls and results. The most frequent ones come first.
static ITEMS: [(&str, ToolKind, ItemRole); 21] = [
    ("function_call", ToolKind::Function, Call),
    ("function_call_output", ToolKind::Function, Output),
    ("custom_tool_call", ToolKind::Custom, Call),
    ("custom_tool_call_output", ToolKind::Custom, Output),
    ("apply_patch_call", ToolKind::ApplyPatch, Call),
    ("apply_patch_call_output", ToolKind::ApplyPatch, Output),
    ("local_shell_call", ToolKind::LocalShell, Call),
    ("local_shell_call_output", ToolKind::LocalShell, Output),
    ("shell_call", ToolKind::Shell, Call),
    ("shell_call_output", ToolKind::Shell, Output),
    ("computer_call", ToolKind::Computer, Call),
    ("computer_call_output", ToolKind::Computer, Output),
    ("tool_search_call", ToolKind::ToolSearch, Call),
    ("tool_search_output", ToolKind::ToolSearch, Output),
    ("web_search_call", ToolKind::WebSearch, Call),
    ("file_search_call", ToolKind::FileSearch, Call),
    ("code_interpreter_call", ToolKind::CodeInterpreter, Call),
    ("mcp_call", ToolKind::Mcp, Call),
    ("image_generation_call", ToolKind::ImageGeneration, Call),
    ("program", ToolKind::ProgrammaticToolCalling, Call),
    ("program_output", ToolKind::ProgrammaticToolCalling, Output),
];

impl ToolKind {
    /// The kind of tools with this `type`; none for server tools.
    #[must_use]
    pub fn of_type(type_name: &str) -> Option<&'static Self> {
        TYPES.iter().find(|(name, ..)| *name == type_name).map(|(_, kind, ..)| kind)
    }

    /// The kind of tool that items of this type are about, and what they say about it.
    #[must_use]
    pub fn of_item(item_type: &str) -> Option<(&'static Self, ItemRole)> {
        ITEMS.iter().find(|(name, ..)| *name == item_type).map(|(_, kind, role)| (kind, *role))
    }

    fn row(&self) -> Option<&'static (&'static str, Self, ToolClass, Rendering)> {
        TYPES.iter().find(|(_, kind, ..)| kind == self)
    }

    /// The side that runs the tool.
    #[must_use]
    pub fn class(&self) -> ToolClass {
        self.row().map_or(ToolClass::Server, |(_, _, class, _)| *class)
    }

    /// What takes the place of the tool and its calls where a dialect lacks the kind.
    #[must_use]
    pub fn rendering(&self) -> Rendering {
        self.row().map_or(Unchanged, |(.., rendering)| *rendering)
    }

    /// The `type` of the tool; for a server tool without prefix.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Server(name) => name,
            _ => self.row().map_or("", |(name, ..)| name),
        }
    }

    /// The `type` of the items of calls; empty for kinds whose calls have no item type of their own.
    #[must_use]
    pub fn call_type(&self) -> &'static str {
        let call = ITEMS.iter().find(|(_, kind, role)| kind == self && *role == Call);
        call.map_or("", |(name, ..)| name)
    }

    /// The member of a call's item with what the model wrote, for tools that the client runs.
    #[must_use]
    pub const fn arguments_member(&self) -> &'static str {
        match self {
            Self::Custom => "input",
            Self::LocalShell | Self::Shell | Self::Computer => "action",
            Self::ApplyPatch => "operation",
            _ => "arguments",
        }
    }

    /// The prefix of the ids that this service gives to calls that the model made as functions.
    #[must_use]
    pub const fn id_prefix(&self) -> &'static str {
        match self {
            Self::Custom => "ctc",
            Self::LocalShell => "lsh",
            Self::Shell => "sh",
            Self::ApplyPatch => "apc",
            Self::ToolSearch => "tsc",
            _ => "fc",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, ITEMS, TYPES, ToolKind};

    #[test]
    fn every_type_leads_to_its_kind_and_back() {
        for (name, kind, ..) in &TYPES {
            assert_eq!(ToolKind::of_type(name), Some(kind));
            assert!(name.starts_with(kind.type_name()), "{name}");
        }
        for (name, kind, role) in &ITEMS {
            assert_eq!(ToolKind::of_item(name), Some((kind, *role)));
            assert!(!kind.type_name().is_empty(), "{name}");
            assert!(*role != Call || kind.call_type() == *name, "{name}");
        }
    }
}
