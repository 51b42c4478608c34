//! `tools` and `tool_choice`.

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::value::RawValue;

use crate::json;
use crate::lenient::{MaybeText, Text, text};

/// A tool that the client offers.
#[derive(Debug)]
pub enum Tool<'a> {
    /// A function; `parameters` is its JSON Schema.
    Function {
        /// The name that the model calls it by.
        name: Text<'a>,
        /// What it does, for the model.
        description: Option<Text<'a>>,
        /// The JSON Schema of its arguments.
        parameters: Option<&'a RawValue>,
        /// Whether arguments have to fit the schema exactly.
        strict: Option<bool>,
        /// A cache hint of the client.
        cache_control: Option<&'a RawValue>,
    },
    /// A tool whose input is free text; `format` is `text` or a grammar.
    Custom { name: Text<'a>, description: Option<Text<'a>>, format: Option<&'a RawValue> },
    /// Tools under a common name.
    Namespace { name: Text<'a>, description: Option<Text<'a>>, tools: Vec<Tool<'a>> },
    /// Any other tool; `raw` is the whole definition.
    Other { kind: Text<'a>, raw: &'a RawValue },
}

#[derive(Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Fields<'a> {
    #[serde(rename = "type")]
    kind: MaybeText<'a>,
    name: MaybeText<'a>,
    description: MaybeText<'a>,
    parameters: Option<&'a RawValue>,
    strict: Option<&'a RawValue>,
    cache_control: Option<&'a RawValue>,
    format: Option<&'a RawValue>,
    tools: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Tool<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?;
        let fields: Fields<'a> = json::from_str(raw.get()).map_err(D::Error::custom)?;
        let kind = fields.kind.0.unwrap_or_default();
        let name = fields.name.0.unwrap_or_default();
        let description = fields.description.0;
        Ok(match &*kind {
            "function" => Tool::Function {
                name,
                description,
                parameters: fields.parameters,
                strict: fields.strict.and_then(|raw| json::from_str(raw.get()).ok()),
                cache_control: fields.cache_control,
            },
            "custom" => Tool::Custom { name, description, format: fields.format },
            "namespace" => {
                let tools = fields.tools.map_or("[]", RawValue::get);
                let tools = json::from_str(tools).map_err(D::Error::custom)?;
                Tool::Namespace { name, description, tools }
            }
            _ => Tool::Other { kind, raw },
        })
    }
}

/// A tool that `allowed_tools` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedTool<'a> {
    /// `function`, `custom`, or the type of another tool.
    pub kind: Text<'a>,
    /// The tool's name, for types that have one.
    pub name: Option<Text<'a>>,
}

/// Which tools the model must or may call.
#[derive(Debug)]
pub enum ToolChoice<'a> {
    /// The model decides.
    Auto,
    /// It must call none.
    None,
    /// It must call at least one.
    Required,
    /// This function.
    Function {
        /// Its name.
        name: Text<'a>,
    },
    /// This custom tool.
    Custom {
        /// Its name.
        name: Text<'a>,
    },
    /// One of these tools. When `required`, the model must call at least one.
    Allowed {
        /// Whether the model must call at least one.
        required: bool,
        /// The tools that it may call.
        tools: Vec<AllowedTool<'a>>,
    },
    /// Another tool; `raw` is the whole choice.
    Other {
        /// Its `type`.
        kind: Text<'a>,
        /// The whole choice.
        raw: &'a RawValue,
    },
}

#[derive(serde::Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ChoiceFields<'a> {
    #[serde(rename = "type", deserialize_with = "text")]
    kind: Text<'a>,
    #[serde(default)]
    name: MaybeText<'a>,
    #[serde(default)]
    mode: MaybeText<'a>,
    #[serde(default)]
    tools: Vec<AllowedFields<'a>>,
}

#[derive(serde::Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct AllowedFields<'a> {
    #[serde(rename = "type", default)]
    kind: MaybeText<'a>,
    #[serde(default)]
    name: MaybeText<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for ToolChoice<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?;
        match raw.get() {
            "\"auto\"" => return Ok(ToolChoice::Auto),
            "\"none\"" => return Ok(ToolChoice::None),
            "\"required\"" => return Ok(ToolChoice::Required),
            _ => {}
        }
        let fields: ChoiceFields<'a> = json::from_str(raw.get()).map_err(D::Error::custom)?;
        let name = fields.name.0.unwrap_or_default();
        Ok(match &*fields.kind {
            "function" => ToolChoice::Function { name },
            "custom" => ToolChoice::Custom { name },
            "allowed_tools" => ToolChoice::Allowed {
                required: fields.mode.0.as_deref() == Some("required"),
                tools: fields
                    .tools
                    .into_iter()
                    .map(|tool| AllowedTool { kind: tool.kind.0.unwrap_or_default(), name: tool.name.0 })
                    .collect(),
            },
            _ => ToolChoice::Other { kind: fields.kind, raw },
        })
    }
}
