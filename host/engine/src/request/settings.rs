//! The small closed sets of a request: tier, route, stop conditions, abilities, text format.

/// What an endpoint must be able to do. The words are those of `request-summary.needs` in the WIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// At least one tool is offered to the model.
    Tools,
    /// The input holds an image.
    Images,
    /// The input holds a file.
    Files,
    /// The input holds audio.
    Audio,
    /// The input holds a video.
    Video,
    /// `text.format` is a JSON schema.
    StructuredOutput,
    /// Reasoning was asked for by effort, budget or switch.
    Reasoning,
    /// `modalities` names `image`.
    ImageOutput,
}

impl Ability {
    /// The word routers know it by.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Images => "images",
            Self::Files => "files",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::StructuredOutput => "structured_output",
            Self::Reasoning => "reasoning",
            Self::ImageOutput => "image_output",
        }
    }
}

/// `service_tier`; the alias `fast` has become [`ServiceTier::Priority`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceTier {
    /// The service decides.
    #[default]
    Auto,
    /// The standard tier, pinned.
    Default,
    /// The cheaper tier, where there is one.
    Flex,
    /// The faster tier first.
    Priority,
    /// The scale tier.
    Scale,
    /// The fastest tier, then priority, then the standard one.
    Ultrafast,
}

impl ServiceTier {
    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Default => "default",
            Self::Flex => "flex",
            Self::Priority => "priority",
            Self::Scale => "scale",
            Self::Ultrafast => "ultrafast",
        }
    }
}

/// The deprecated `route`, an alias of `provider.sort.partition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Partition by model.
    Fallback,
    /// No partition.
    Sort,
}

impl Route {
    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fallback => "fallback",
            Self::Sort => "sort",
        }
    }
}

/// One entry of `stop_server_tools_when`; any of them ends the loop of server tools.
#[derive(Debug, Clone, PartialEq)]
pub enum StopCondition {
    /// After that many steps of the loop.
    StepCountIs {
        /// Steps, at least 1.
        step_count: u32,
    },
    /// After a tool of that name was called.
    HasToolCall {
        /// The tool's name, not empty.
        tool_name: String,
    },
    /// When the tokens of all turns exceed it.
    MaxTokensUsed {
        /// Tokens, at least 1.
        max_tokens: u64,
    },
    /// When the cost of all turns exceeds it.
    MaxCost {
        /// Dollars, at least 0.
        max_cost_in_dollars: f64,
    },
    /// When a turn finishes for that reason.
    FinishReasonIs {
        /// The reason, not empty: `length` for instance.
        reason: String,
    },
}

/// `text.format` by its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextFormat {
    /// Plain text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that follows a schema.
    JsonSchema,
}
