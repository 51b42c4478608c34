//! The items of `input`.

use serde::de::{Deserialize, Deserializer};

use crate::lenient::{MaybeText, Text};
use crate::part::{Content, Part};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    System,
    Developer,
}

/// A message.
#[derive(Debug)]
pub struct Message<'a> {
    pub role: Role,
    pub content: Vec<Part<'a>>,
    /// `commentary` or `final_answer`, when the client kept it.
    pub phase: Option<Text<'a>>,
    pub id: Option<Text<'a>>,
}

/// Reasoning of an earlier answer, sent back by the client.
#[derive(Debug)]
pub struct Reasoning<'a> {
    pub id: Option<Text<'a>>,
    /// The texts of `summary`.
    pub summary: Vec<Text<'a>>,
    /// The texts of `content`.
    pub content: Vec<Text<'a>>,
    pub encrypted_content: Option<Text<'a>>,
    pub signature: Option<Text<'a>>,
    /// The dialect that sealed it.
    pub format: Option<Text<'a>>,
}

/// One item of `input`.
#[derive(Debug)]
pub enum Item<'a> {
    Message(Message<'a>),
    FunctionCall {
        id: Option<Text<'a>>,
        call_id: Text<'a>,
        name: Text<'a>,
        /// JSON text as the model wrote it: not necessarily valid.
        arguments: Text<'a>,
        namespace: Option<Text<'a>>,
    },
    FunctionCallOutput {
        call_id: Text<'a>,
        output: Content<'a>,
    },
    CustomToolCall {
        id: Option<Text<'a>>,
        call_id: Text<'a>,
        name: Text<'a>,
        input: Text<'a>,
    },
    CustomToolCallOutput {
        call_id: Text<'a>,
        output: Content<'a>,
    },
    Reasoning(Reasoning<'a>),
    /// Any other item; `kind` is its `type`. To read it whole, take the input as
    /// `Vec<&RawValue>` instead.
    Other {
        kind: Text<'a>,
    },
}

/// The union of the items' fields, read in one pass wherever the `type` stands.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Fields<'a> {
    #[serde(rename = "type", borrow)]
    kind: MaybeText<'a>,
    #[serde(borrow)]
    id: MaybeText<'a>,
    #[serde(borrow)]
    role: MaybeText<'a>,
    #[serde(borrow)]
    content: Content<'a>,
    #[serde(borrow)]
    phase: MaybeText<'a>,
    #[serde(borrow)]
    call_id: MaybeText<'a>,
    #[serde(borrow)]
    name: MaybeText<'a>,
    #[serde(borrow)]
    arguments: MaybeText<'a>,
    #[serde(borrow)]
    namespace: MaybeText<'a>,
    #[serde(borrow)]
    input: MaybeText<'a>,
    #[serde(borrow)]
    output: Content<'a>,
    #[serde(borrow)]
    summary: Content<'a>,
    #[serde(borrow)]
    encrypted_content: MaybeText<'a>,
    #[serde(borrow)]
    signature: MaybeText<'a>,
    #[serde(borrow)]
    format: MaybeText<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Item<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <Fields<'a> as Deserialize>::deserialize(deserializer).map(Item::from)
    }
}

impl<'a> From<Fields<'a>> for Item<'a> {
    fn from(fields: Fields<'a>) -> Self {
        let kind = fields.kind.0.unwrap_or(Text::Borrowed("message"));
        let call_id = fields.call_id.0.unwrap_or_default();
        let name = fields.name.0.unwrap_or_default();
        match &*kind {
            "message" => {
                let Some(role) = fields.role.0.as_deref().and_then(Role::parse) else {
                    return Item::Other { kind };
                };
                let content = fields.content.into_parts();
                Item::Message(Message { role, content, phase: fields.phase.0, id: fields.id.0 })
            }
            "function_call" => Item::FunctionCall {
                id: fields.id.0,
                call_id,
                name,
                arguments: fields.arguments.0.unwrap_or_default(),
                namespace: fields.namespace.0,
            },
            "function_call_output" => Item::FunctionCallOutput { call_id, output: fields.output },
            "custom_tool_call" => Item::CustomToolCall {
                id: fields.id.0,
                call_id,
                name,
                input: fields.input.0.unwrap_or_default(),
            },
            "custom_tool_call_output" => Item::CustomToolCallOutput { call_id, output: fields.output },
            "reasoning" => Item::Reasoning(Reasoning {
                id: fields.id.0,
                summary: texts(fields.summary),
                content: texts(fields.content),
                encrypted_content: fields.encrypted_content.0,
                signature: fields.signature.0,
                format: fields.format.0,
            }),
            _ => Item::Other { kind },
        }
    }
}

impl Role {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            "developer" => Role::Developer,
            _ => return None,
        })
    }

    /// Its name in the interface.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System => "system",
            Role::Developer => "developer",
        }
    }
}

fn texts(content: Content<'_>) -> Vec<Text<'_>> {
    let text = |part| match part {
        Part::Text { text, .. } => Some(text),
        _ => None,
    };
    content.into_parts().into_iter().filter_map(text).collect()
}
