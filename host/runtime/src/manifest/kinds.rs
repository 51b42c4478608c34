//! The kinds of plugins, and what each may ask to import.

use std::fmt;

use serde::Deserialize;

/// What a plugin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Orders endpoints, may choose models.
    Router,
    /// Speaks a provider's dialect.
    Provider,
    /// Sees requests or responses.
    Hook,
    /// Offers functions to models.
    Tool,
}

impl Kind {
    /// The word of the manifest.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Provider => "provider",
            Self::Hook => "hook",
            Self::Tool => "tool",
        }
    }

    /// What a plugin of this kind may ask to import beyond `log` and `config`.
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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An interface that a plugin may import if it asks and the operator grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Import {
    /// Coarse time.
    Clock,
    /// Unpredictable bytes.
    Random,
    /// Requests to granted hosts.
    Http,
    /// Asking a model.
    Model,
    /// The list of models.
    Catalog,
    /// Bytes kept for one request.
    Scratch,
    /// The transcript of the request.
    Request,
    /// Functions that the client lets wait until they are found.
    DeferredTools,
    /// Calling a server tool.
    ToolCall,
}

impl Import {
    /// Every import a manifest can name.
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

    /// The interfaces of `wit/` that come with it, its own first.
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

    /// Whether the operator grants it by its name, because it costs money or shows content. `http` comes with
    /// the hosts that are granted, and asking is enough for the others.
    #[must_use]
    pub fn is_granted_by_name(self) -> bool {
        matches!(self, Self::Model | Self::ToolCall | Self::Request)
    }

    /// Whether this is one of its interfaces.
    #[must_use]
    pub fn brings(self, interface: &str) -> bool {
        self.interfaces().contains(&interface)
    }

    /// The name in manifests and configurations, which is that of its own interface.
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
