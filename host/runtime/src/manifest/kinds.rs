//! The kinds of plugins, and the interfaces that each may request to import.

use std::fmt;

use serde::Deserialize;

/// The kind of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginKind {
    /// Orders the endpoints for a request. May also choose models.
    Router,
    /// Translates between the Responses format and a provider's dialect.
    Provider,
    /// Checks or changes requests or responses.
    Hook,
    /// A server tool: offers functions to models and runs them.
    Tool,
}

impl PluginKind {
    /// The name in the manifest.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Provider => "provider",
            Self::Hook => "hook",
            Self::Tool => "tool",
        }
    }

    /// The interfaces that a plugin of this kind may request beyond `log` and `config`.
    #[must_use]
    pub fn optional_imports(self) -> &'static [Import] {
        match self {
            Self::Router | Self::Provider => &[],
            Self::Hook => &[Import::Http, Import::Model, Import::ToolCall],
            Self::Tool => &[
                Import::Clock,
                Import::Random,
                Import::Http,
                Import::Model,
                Import::Catalog,
                Import::Scratch,
                Import::Request,
                Import::DeferredTools,
            ],
        }
    }
}

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An interface that a plugin may import if its manifest requests it and the operator grants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Import {
    /// The time, rounded down to 10 ms.
    Clock,
    /// Random bytes.
    Random,
    /// HTTP requests to granted hosts.
    Http,
    /// Questions to models, at the cost of the request being served.
    Model,
    /// The list of models that this host serves.
    Catalog,
    /// Storage that lasts for one request.
    Scratch,
    /// The transcript of the request, and its deferred functions.
    Request,
    /// Functions of the client whose loading is deferred until a search finds them.
    DeferredTools,
    /// Calls of server tools.
    ToolCall,
}

impl Import {
    /// All imports that a manifest can name.
    pub const ALL: [Self; 9] = [
        Self::Clock,
        Self::Random,
        Self::Http,
        Self::Model,
        Self::Catalog,
        Self::Scratch,
        Self::Request,
        Self::DeferredTools,
        Self::ToolCall,
    ];

    /// The interfaces of `wit/` that this import includes; the first one has its name.
    #[must_use]
    pub fn interfaces(self) -> &'static [&'static str] {
        match self {
            Self::Clock => &["clock"],
            Self::Random => &["random"],
            Self::Http => &["http", "http-stream"],
            Self::Model => &["model", "model-panel"],
            Self::Catalog => &["catalog"],
            Self::Scratch => &["scratch"],
            Self::Request => &["request"],
            Self::DeferredTools => &["deferred-tools"],
            Self::ToolCall => &["tool-call"],
        }
    }

    /// Whether the operator must grant the import by its name, because it costs money or reveals
    /// content. `http` is granted with the first host. The others need no grant.
    #[must_use]
    pub fn is_granted_by_name(self) -> bool {
        matches!(self, Self::Model | Self::ToolCall | Self::Request)
    }

    /// Whether this import includes the interface.
    #[must_use]
    pub fn brings(self, interface: &str) -> bool {
        self.interfaces().contains(&interface)
    }

    /// The name in manifests and configurations; also the name of its first interface.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Random => "random",
            Self::Http => "http",
            Self::Model => "model",
            Self::Catalog => "catalog",
            Self::Scratch => "scratch",
            Self::Request => "request",
            Self::DeferredTools => "deferred-tools",
            Self::ToolCall => "tool-call",
        }
    }
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
