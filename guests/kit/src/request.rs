//! The request that a provider guest translates.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::item::Item;
use crate::json::{self, JsonError};
use crate::lenient::{MaybeText, Text, maybe_text, text};
use crate::tools::{Tool, ToolChoice};

/// A Responses request as the host passes it: validated, with only the fields of the API;
/// `input` is always a list of items and message content always a list of parts.
///
/// `I` is the form in which the input is read: items by default, or `Vec<&RawValue>` for a
/// dialect that passes items on.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a, I: Deserialize<'de> + Default"))]
pub struct Request<'a, I = Vec<Item<'a>>> {
    /// The catalog id of the model. The name to send upstream is in the target.
    #[serde(default, deserialize_with = "text")]
    pub model: Text<'a>,
    /// Whether the client wants a stream of events.
    #[serde(default)]
    pub stream: bool,
    /// The conversation.
    #[serde(default)]
    pub input: I,
    /// The system message of this request.
    #[serde(default, deserialize_with = "maybe_text")]
    pub instructions: Option<Text<'a>>,
    /// The largest output in tokens, reasoning included.
    pub max_output_tokens: Option<u64>,
    /// From 0 to 2.
    pub temperature: Option<Number>,
    /// From 0 to 1.
    pub top_p: Option<Number>,
    /// How many of the likeliest tokens are considered.
    pub top_k: Option<Number>,
    /// From -2 to 2.
    pub frequency_penalty: Option<Number>,
    /// From -2 to 2.
    pub presence_penalty: Option<Number>,
    /// How many alternatives each token of the answer comes with, from 0 to 20.
    pub top_logprobs: Option<u64>,
    /// One text or a list of texts.
    pub stop: Option<&'a RawValue>,
    /// Whether one answer may call several tools.
    pub parallel_tool_calls: Option<bool>,
    /// The tools that the model may call.
    #[serde(default = "Vec::new")]
    pub tools: Vec<Tool<'a>>,
    /// Which of them it must or may call.
    pub tool_choice: Option<ToolChoice<'a>>,
    /// The form of the answer.
    #[serde(default)]
    pub text: TextSettings<'a>,
    /// How much the model should reason.
    pub reasoning: Option<ReasoningSettings<'a>>,
    /// What the answer should also contain, such as `reasoning.encrypted_content`.
    #[serde(default)]
    pub include: Vec<String>,
    /// The service tier that the client asked for.
    #[serde(default, deserialize_with = "maybe_text")]
    pub service_tier: Option<Text<'a>>,
    /// Groups requests that share a prefix, for the cache of the provider.
    #[serde(default, deserialize_with = "maybe_text")]
    pub prompt_cache_key: Option<Text<'a>>,
    /// An object: how the provider should cache the prompt.
    pub prompt_cache_options: Option<&'a RawValue>,
    /// An object: the cache hint for the whole prompt.
    pub cache_control: Option<&'a RawValue>,
    /// Stands for the person behind the request, for the provider.
    #[serde(default, deserialize_with = "maybe_text")]
    pub safety_identifier: Option<Text<'a>>,
    /// The older name of `safety_identifier`.
    #[serde(default, deserialize_with = "maybe_text")]
    pub user: Option<Text<'a>>,
    /// An object of texts that the client gets back.
    pub metadata: Option<&'a RawValue>,
    /// `auto` or `disabled`.
    #[serde(default, deserialize_with = "maybe_text")]
    pub truncation: Option<Text<'a>>,
    /// The kinds of output that the client takes: `text`, `image`.
    #[serde(default)]
    pub modalities: Vec<String>,
    /// Settings for generated images.
    pub image_config: Option<Map<String, Value>>,
}

impl<'a> Request<'a> {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// When the bytes do not have the form described above. This would be an error of the host,
    /// which validates requests before guests get them.
    pub fn parse(json: &'a [u8]) -> Result<Self, JsonError> {
        json::from_str(json::utf8(json)?)
    }
}

impl<'a> Request<'a, Vec<&'a RawValue>> {
    /// Reads a request and leaves the input items unparsed.
    ///
    /// # Errors
    ///
    /// As for [`Request::parse`].
    pub fn parse_with_raw_items(json: &'a [u8]) -> Result<Self, JsonError> {
        json::from_str(json::utf8(json)?)
    }
}

/// `text`: the form of the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct TextSettings<'a> {
    /// `text.format`.
    #[serde(default)]
    pub format: TextFormat<'a>,
    /// `low`, `medium` or `high`.
    #[serde(default, deserialize_with = "maybe_text")]
    pub verbosity: Option<Text<'a>>,
}

/// `text.format`.
#[derive(Debug, Default)]
pub enum TextFormat<'a> {
    /// Plain text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema {
        /// A name for the schema.
        name: Text<'a>,
        /// What the JSON is for.
        description: Option<Text<'a>>,
        /// The JSON Schema.
        schema: &'a RawValue,
        /// Whether the answer has to fit exactly.
        strict: Option<bool>,
    },
    /// A format that the API does not define.
    Other {
        /// Its `type`.
        kind: Text<'a>,
        /// The whole format.
        raw: &'a RawValue,
    },
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct FormatFields<'a> {
    #[serde(rename = "type", default)]
    kind: MaybeText<'a>,
    #[serde(default)]
    name: MaybeText<'a>,
    #[serde(default)]
    description: MaybeText<'a>,
    schema: Option<&'a RawValue>,
    strict: Option<bool>,
}

impl<'de: 'a, 'a> Deserialize<'de> for TextFormat<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?;
        if raw.get() == "null" {
            return Ok(TextFormat::Text);
        }
        let fields: FormatFields<'a> = json::from_str(raw.get()).map_err(D::Error::custom)?;
        let kind = fields.kind.0.unwrap_or_default();
        Ok(match (&*kind, fields.schema) {
            ("text", _) => TextFormat::Text,
            ("json_object", _) => TextFormat::JsonObject,
            ("json_schema", Some(schema)) => TextFormat::JsonSchema {
                name: fields.name.0.unwrap_or_default(),
                description: fields.description.0,
                schema,
                strict: fields.strict,
            },
            _ => TextFormat::Other { kind, raw },
        })
    }
}

/// `reasoning`: how much the model should reason.
#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct ReasoningSettings<'a> {
    /// A word such as `low` or `high`.
    #[serde(default, deserialize_with = "maybe_text")]
    pub effort: Option<Text<'a>>,
    /// The kind of summary: `auto`, `concise` or `detailed`.
    #[serde(default, deserialize_with = "maybe_text")]
    pub summary: Option<Text<'a>>,
    /// A budget in tokens.
    pub max_tokens: Option<u64>,
    /// Whether the model reasons at all.
    pub enabled: Option<bool>,
}

impl ReasoningSettings<'_> {
    /// The effort for a dialect that has neither a switch nor a token budget:
    ///
    /// - `none` when reasoning is off;
    /// - otherwise the requested effort;
    /// - otherwise the budget as a share of the output limit: `low`, `medium` or `high`, the three
    ///   words that every reasoning model accepts;
    /// - `medium` when reasoning is only switched on;
    /// - nothing when the request does not mention reasoning.
    ///
    /// `output_limit` is the largest output in tokens, if there is one.
    #[must_use]
    pub fn effort_word(&self, output_limit: Option<u64>) -> Option<&str> {
        if self.enabled == Some(false) || self.max_tokens == Some(0) {
            return Some("none");
        }
        let by_budget = self.max_tokens.map(|budget| {
            // A typical limit, for models whose limit is unknown.
            let limit = output_limit.filter(|limit| *limit > 0).unwrap_or(16_384);
            match budget.saturating_mul(100) / limit {
                0..35 => "low",
                35..65 => "medium",
                _ => "high",
            }
        });
        let switched_on = (self.enabled == Some(true)).then_some("medium");
        self.effort.as_deref().or(by_budget).or(switched_on)
    }
}

#[cfg(test)]
mod tests;
