//! The small closed sets of a request: abilities, tiers, route, stop conditions, truncation, text
//! format.

use super::json::JsonValue;

/// What an endpoint must support. The words are those of `request-summary.needs` in the WIT files.
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
    /// Reasoning is requested, by effort, budget or switch.
    Reasoning,
    /// `modalities` names `image`.
    ImageOutput,
}

impl Ability {
    const ALL: [Self; 8] = [
        Self::Tools,
        Self::Images,
        Self::Files,
        Self::Audio,
        Self::Video,
        Self::StructuredOutput,
        Self::Reasoning,
        Self::ImageOutput,
    ];

    /// The word in the plugin contract and in the configuration.
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

/// A set of abilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Needs(u8);

impl Needs {
    pub(super) fn add(&mut self, ability: Ability) {
        self.0 |= 1 << ability as u8;
    }

    /// The abilities in the order of the enum, without repeats.
    pub(super) fn list(self) -> Vec<Ability> {
        Ability::ALL.into_iter().filter(|ability| self.0 & (1 << *ability as u8) != 0).collect()
    }
}

/// `service_tier`. The alias `fast` is parsed as [`ServiceTier::Priority`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceTier {
    /// The service decides.
    #[default]
    Auto,
    /// The standard tier only.
    Default,
    /// The cheaper tier, where one exists.
    Flex,
    /// The faster tier is tried first.
    Priority,
    /// The scale tier.
    Scale,
    /// The fastest tier is tried first, then `priority`, then the standard tier.
    Ultrafast,
}

impl ServiceTier {
    pub(super) fn of(value: JsonValue<'_>) -> Self {
        Self::named(&value.text()).unwrap_or_default()
    }

    /// The tier of this name; `None` for any other word.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "default" => Some(Self::Default),
            "flex" => Some(Self::Flex),
            "fast" | "priority" => Some(Self::Priority),
            "scale" => Some(Self::Scale),
            "ultrafast" => Some(Self::Ultrafast),
            _ => None,
        }
    }

    /// The value of `service_tier` in JSON.
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
pub enum RouteSetting {
    /// Partition by model.
    Fallback,
    /// No partition.
    Sort,
}

impl RouteSetting {
    pub(super) fn of(value: JsonValue<'_>) -> Self {
        if value.is("sort") { Self::Sort } else { Self::Fallback }
    }

    /// The value of `route` in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fallback => "fallback",
            Self::Sort => "sort",
        }
    }
}

/// One entry of `stop_server_tools_when`. The first condition that is met ends the server tool
/// loop.
#[derive(Debug, Clone, PartialEq)]
pub enum StopCondition {
    /// After this many steps of the loop.
    StepCountIs {
        /// Steps, at least 1.
        step_count: u32,
    },
    /// After a tool with this name was called.
    HasToolCall {
        /// The tool's name; not empty.
        tool_name: String,
    },
    /// When the tokens of all turns exceed this.
    MaxTokensUsed {
        /// Tokens, at least 1.
        max_tokens: u64,
    },
    /// When the cost of all turns exceeds this.
    MaxCost {
        /// Dollars, at least 0.
        max_cost_in_dollars: f64,
    },
    /// When a turn ends with this finish reason.
    FinishReasonIs {
        /// The finish reason, such as `length`; not empty.
        reason: String,
    },
}

impl StopCondition {
    pub(super) fn of(entry: JsonValue<'_>) -> Self {
        let text = |name| entry.get(name).map(|value| value.text().into_owned()).unwrap_or_default();
        let integer = |name| entry.get(name).and_then(JsonValue::integer).unwrap_or_default();
        match text("type").as_str() {
            "step_count_is" => {
                Self::StepCountIs { step_count: u32::try_from(integer("step_count")).unwrap_or(u32::MAX) }
            }
            "has_tool_call" => Self::HasToolCall { tool_name: text("tool_name") },
            "max_tokens_used" => {
                Self::MaxTokensUsed { max_tokens: u64::try_from(integer("max_tokens")).unwrap_or(u64::MAX) }
            }
            "max_cost" => Self::MaxCost {
                max_cost_in_dollars: entry
                    .get("max_cost_in_dollars")
                    .and_then(JsonValue::number)
                    .unwrap_or_default(),
            },
            _ => Self::FinishReasonIs { reason: text("reason") },
        }
    }
}

/// `truncation`: whether items may be dropped from a conversation that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truncation {
    /// Items that do not fit into the context may be dropped.
    Auto,
    /// Nothing may be dropped.
    Disabled,
}

impl Truncation {
    pub(super) fn of(value: JsonValue<'_>) -> Self {
        if value.is("auto") { Self::Auto } else { Self::Disabled }
    }
}

/// The type of `text.format`.
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

impl TextFormat {
    pub(super) fn of(format: JsonValue<'_>) -> Self {
        match format.get("type") {
            Some(tag) if tag.is("json_schema") => Self::JsonSchema,
            Some(tag) if tag.is("json_object") => Self::JsonObject,
            _ => Self::Text,
        }
    }
}
