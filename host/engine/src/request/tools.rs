//! The tools a client offers, by who runs them.

use bytes::Bytes;

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolClass {
    /// The client: the call ends the response and comes back as input.
    Client,
    /// The model's provider, inside its own endpoint.
    Hosted,
    /// This service, in its loop.
    Server,
}

/// The kind of a tool, one per `type` that a client may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolKind {
    /// `function`
    Function,
    /// `custom`
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
    /// `service:NAME`, `openrouter:NAME`, or the bare alias `tool_search`: the name without prefix.
    /// Open, because installed tool guests may bring names of their own.
    Server(String),
}

impl ToolKind {
    /// Who runs it.
    #[must_use]
    pub const fn class(&self) -> ToolClass {
        match self {
            Self::Function
            | Self::Custom
            | Self::Namespace
            | Self::ApplyPatch
            | Self::LocalShell
            | Self::Shell
            | Self::ComputerUsePreview => ToolClass::Client,
            Self::WebSearch
            | Self::FileSearch
            | Self::CodeInterpreter
            | Self::Mcp
            | Self::ImageGeneration => ToolClass::Hosted,
            Self::Server(_) => ToolClass::Server,
        }
    }
}

/// The prefix a server tool was asked for with; answers use the same.
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

/// One entry of `tools`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTool {
    /// Its place in the request, for messages such as `tools[2].type ...`.
    pub index: usize,
    /// What it is.
    pub kind: ToolKind,
    /// `type` as the client wrote it.
    pub type_name: String,
    /// The prefix of a server tool; none for the others and for the bare alias.
    pub prefix: Option<ToolPrefix>,
    /// The name of a function, custom tool or namespace, or the `server_label` of an MCP server.
    pub name: Option<String>,
    /// The whole entry as JSON.
    pub json: Bytes,
    /// A server tool's `parameters` as JSON, `{}` when absent; empty bytes for the others.
    pub settings: Bytes,
}

/// `tool_choice`, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides; also when absent.
    #[default]
    Auto,
    /// No tool may be called.
    None,
    /// Some tool must be called.
    Required,
    /// This function must be called.
    Function(String),
    /// This custom tool must be called.
    Custom(String),
    /// A tool of this MCP server must be called.
    Mcp {
        /// The `server_label` of the tool entry.
        server_label: String,
        /// The tool on that server, if one was named.
        name: Option<String>,
    },
    /// The model may call only these tools.
    Allowed {
        /// Whether it must call one.
        required: bool,
        /// The list as JSON.
        tools: Bytes,
    },
    /// The tool of this type must be called, the type as the client wrote it.
    Type(String),
}
