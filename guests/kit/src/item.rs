//! The items of `input`.

use cofferdam_protocol::{ItemRole, ToolKind};
use serde::de::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json;
use crate::lenient::{MaybeText, Text};
use crate::part::{Content, Marks, Part};

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A person.
    User,
    /// The model.
    Assistant,
    /// The operator of the application.
    System,
    /// The same in newer requests.
    Developer,
}

/// A message item.
#[derive(Debug)]
pub struct Message<'a> {
    /// Its author.
    pub role: Role,
    /// Its parts in order.
    pub content: Vec<Part<'a>>,
    /// `commentary` or `final_answer`, if the client sent the phase back.
    pub phase: Option<Text<'a>>,
    /// Its id, if the client sent it back.
    pub id: Option<Text<'a>>,
}

/// Reasoning of an earlier answer, sent back by the client.
#[derive(Debug)]
pub struct Reasoning<'a> {
    /// Its id, if the client sent it back.
    pub id: Option<Text<'a>>,
    /// The texts of `summary`.
    pub summary: Vec<Text<'a>>,
    /// The texts of `content`.
    pub content: Vec<Text<'a>>,
    /// The reasoning in a form that only the provider reads.
    pub encrypted_content: Option<Text<'a>>,
    /// The provider's signature over the plain reasoning.
    pub signature: Option<Text<'a>>,
    /// The name of the dialect that sealed it.
    pub format: Option<Text<'a>>,
}

/// One item of `input`. Calls of the client's own tool types (`shell_call` and the like) and their
/// outputs are read as calls of functions with the tool's name. Only a dialect that has the type
/// itself reads them differently.
#[derive(Debug)]
pub enum Item<'a> {
    /// A message.
    Message(Message<'a>),
    /// A call of a function.
    FunctionCall {
        /// The id of the item.
        id: Option<Text<'a>>,
        /// What the output names the call by.
        call_id: Text<'a>,
        /// The name of the function.
        name: Text<'a>,
        /// JSON text as the model wrote it. It may be invalid JSON.
        arguments: Text<'a>,
        /// The namespace of the function, if it has one.
        namespace: Option<Text<'a>>,
    },
    /// The output of a function.
    FunctionCallOutput {
        /// The call that it answers.
        call_id: Text<'a>,
        /// What the function gave.
        output: Content<'a>,
    },
    /// A call of a custom tool.
    CustomToolCall {
        /// The id of the item.
        id: Option<Text<'a>>,
        /// What the output names the call by.
        call_id: Text<'a>,
        /// The name of the tool.
        name: Text<'a>,
        /// Plain text.
        input: Text<'a>,
    },
    /// The output of a custom tool.
    CustomToolCallOutput {
        /// The call that it answers.
        call_id: Text<'a>,
        /// What the tool gave.
        output: Content<'a>,
    },
    /// Reasoning of an earlier answer.
    Reasoning(Reasoning<'a>),
    /// Any other item; `kind` is its `type`. To get the whole item, read the input as
    /// `Vec<&RawValue>` instead.
    Other {
        /// Its `type`.
        kind: Text<'a>,
    },
}

/// The union of the fields of all items. It is read in one pass, at any position of `type`.
#[derive(Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Fields<'a> {
    #[serde(rename = "type")]
    kind: MaybeText<'a>,
    id: MaybeText<'a>,
    role: MaybeText<'a>,
    content: Content<'a>,
    phase: MaybeText<'a>,
    call_id: MaybeText<'a>,
    name: MaybeText<'a>,
    arguments: MaybeText<'a>,
    namespace: MaybeText<'a>,
    input: MaybeText<'a>,
    output: Option<&'a RawValue>,
    action: Option<&'a RawValue>,
    operation: Option<&'a RawValue>,
    summary: Content<'a>,
    encrypted_content: MaybeText<'a>,
    signature: MaybeText<'a>,
    format: MaybeText<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Item<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <Fields<'a> as Deserialize>::deserialize(deserializer).map(Item::from)
    }
}

impl<'a> From<Fields<'a>> for Item<'a> {
    fn from(mut fields: Fields<'a>) -> Self {
        let kind = fields.kind.0.take().unwrap_or(Text::Borrowed("message"));
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
                call_id: fields.call_id.0.unwrap_or_default(),
                name: fields.name.0.unwrap_or_default(),
                arguments: fields.arguments.0.unwrap_or_default(),
                namespace: fields.namespace.0,
            },
            "function_call_output" => Item::FunctionCallOutput {
                call_id: fields.call_id.0.unwrap_or_default(),
                output: content(fields.output),
            },
            "custom_tool_call" => Item::CustomToolCall {
                id: fields.id.0,
                call_id: fields.call_id.0.unwrap_or_default(),
                name: fields.name.0.unwrap_or_default(),
                input: fields.input.0.unwrap_or_default(),
            },
            "custom_tool_call_output" => Item::CustomToolCallOutput {
                call_id: fields.call_id.0.unwrap_or_default(),
                output: content(fields.output),
            },
            "reasoning" => Item::Reasoning(Reasoning {
                id: fields.id.0,
                summary: texts(fields.summary),
                content: texts(fields.content),
                encrypted_content: fields.encrypted_content.0,
                signature: fields.signature.0,
                format: fields.format.0,
            }),
            _ => fields.client_tool(&kind).unwrap_or(Item::Other { kind }),
        }
    }
}

impl<'a> Fields<'a> {
    /// A call of one of the client's own tool types, or the output of such a call.
    fn client_tool(self, kind: &str) -> Option<Item<'a>> {
        let (tool, role) = ToolKind::of_item(kind)?;
        let input = match tool.arguments_member() {
            "action" => self.action,
            "operation" => self.operation,
            _ => return None,
        };
        let (call_id, id) = match self.call_id.0 {
            Some(call_id) => (call_id, self.id.0),
            None => (self.id.0?, None),
        };
        Some(match role {
            ItemRole::Call => Item::FunctionCall {
                id,
                call_id,
                name: tool.type_name().into(),
                arguments: input.map_or("{}", RawValue::get).into(),
                namespace: None,
            },
            ItemRole::Output => Item::FunctionCallOutput { call_id, output: client_output(self.output) },
        })
    }
}

/// The result of a function: text or parts.
fn content(output: Option<&RawValue>) -> Content<'_> {
    output.and_then(|output| json::from_str(output.get()).ok()).unwrap_or_default()
}

/// The result of a client's tool: text, a screenshot, or JSON of the tool's own form, which becomes text.
fn client_output(output: Option<&RawValue>) -> Content<'_> {
    #[derive(serde::Deserialize)]
    struct Screenshot<'a> {
        #[serde(borrow)]
        image_url: Text<'a>,
    }
    let Some(output) = output else { return Content::Empty };
    match output.get().as_bytes().first() {
        Some(b'"') => content(Some(output)),
        _ => match json::from_str::<Screenshot<'_>>(output.get()) {
            Ok(shot) => {
                let (url, marks) = (Some(shot.image_url), Marks::default());
                Content::Parts(vec![Part::Image { url, file_id: None, detail: None, marks }])
            }
            Err(_) => Content::Text(Text::Borrowed(output.get())),
        },
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

    /// The name of the role in the API.
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
