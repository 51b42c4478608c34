//! Translates items into messages. Strict servers and chat templates require one system message at
//! the start, one message for everything the model did in a turn, and the results of its calls
//! directly after that message.

mod results;

use std::borrow::Cow;

use cofferdam_dialect_openai::failure;
use cofferdam_guest_kit::bindings::types::Failure;
use cofferdam_guest_kit::{Content as Given, Item, Marks, Part as GivenPart, Role, Text, json};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::thought::{self, Thought};

#[derive(Serialize)]
pub(crate) struct Message<'a> {
    role: &'static str,
    content: Content<'a>,
    /// The reasoning before the calls, for servers that require it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Text<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    /// Null: an assistant message that has only calls.
    Nothing,
    Text(Text<'a>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text {
        text: Text<'a>,
        #[serde(flatten)]
        marks: Written<'a>,
    },
    ImageUrl {
        image_url: Url<'a>,
        #[serde(flatten)]
        marks: Written<'a>,
    },
    File {
        file: File<'a>,
        #[serde(flatten)]
        marks: Written<'a>,
    },
    InputAudio {
        input_audio: Audio<'a>,
    },
    VideoUrl {
        video_url: Url<'a>,
    },
}

/// The cache marks of a part that this endpoint accepts.
#[derive(Clone, Copy, Default, Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_breakpoint: Option<&'a RawValue>,
}

/// Features that not every server of this dialect accepts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Takes {
    /// Custom tools. For other endpoints their calls become function calls.
    pub(crate) custom: bool,
    /// `cache_control` on parts, which servers in front of Anthropic's models accept.
    pub(crate) cache_control: bool,
    /// `prompt_cache_options`, and `prompt_cache_breakpoint` on parts.
    pub(crate) breakpoints: bool,
}

impl Takes {
    fn marks<'a>(self, given: &Marks<'a>) -> Written<'a> {
        Written {
            cache_control: given.cache_control.filter(|_| self.cache_control),
            prompt_cache_breakpoint: given.breakpoint.filter(|_| self.breakpoints),
        }
    }
}

impl Written<'_> {
    fn is_empty(&self) -> bool {
        self.cache_control.is_none() && self.prompt_cache_breakpoint.is_none()
    }
}

#[derive(Serialize)]
struct Url<'a> {
    url: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Text<'a>>,
}

#[derive(Serialize)]
struct File<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_data: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<Text<'a>>,
}

#[derive(Serialize)]
struct Audio<'a> {
    data: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Text<'a>>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Text<'a>,
    #[serde(flatten)]
    what: Called<'a>,
    /// Google's signature of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Called<'a> {
    Function { function: Function<'a> },
    Custom { custom: Custom<'a> },
}

#[derive(Serialize)]
struct Function<'a> {
    name: Text<'a>,
    arguments: Text<'a>,
}

#[derive(Serialize)]
struct Custom<'a> {
    name: Text<'a>,
    input: Text<'a>,
}

/// Translates instructions and input for an endpoint of this model with these features.
pub(crate) fn messages<'a>(
    instructions: Option<Text<'a>>,
    input: &[&'a RawValue],
    model: &'a str,
    takes: Takes,
) -> Result<Vec<Message<'a>>, Failure> {
    let mut conversation = Conversation { messages: Vec::new(), takes, model, thought: Thought::default() };
    if let Some(text) = instructions {
        conversation.system(text);
    }
    for (index, raw) in input.iter().enumerate() {
        let item = json::from_str(raw.get()).map_err(|_| failure::unreadable_request())?;
        conversation.take(item, index)?;
    }
    // A server that requires reasoning back requires it with every call, also with calls that other
    // models made.
    if conversation.messages.iter().any(|message| message.reasoning_content.is_some()) {
        let calling = conversation.messages.iter_mut().filter(|message| !message.tool_calls.is_empty());
        calling.for_each(|message| _ = message.reasoning_content.get_or_insert_default());
    }
    Ok(results::behind_their_calls(conversation.messages))
}

/// Puts the mark on the last part of a user or system message; the provider may cache up to it.
pub(crate) fn mark_last<'a>(messages: &mut [Message<'a>], mark: &'a RawValue) {
    let markable = messages.iter_mut().rev().filter(|message| matches!(message.role, "system" | "user"));
    for message in markable {
        if let Content::Text(text) = &mut message.content {
            let part = Part::Text { text: std::mem::take(text), marks: Written::default() };
            message.content = Content::Parts(vec![part]);
        }
        let Content::Parts(parts) = &mut message.content else { continue };
        let last = parts.iter_mut().rev().find_map(|part| match part {
            Part::Text { marks, .. } | Part::ImageUrl { marks, .. } | Part::File { marks, .. } => Some(marks),
            Part::InputAudio { .. } | Part::VideoUrl { .. } => None,
        });
        if let Some(marks) = last {
            marks.cache_control = Some(mark);
            return;
        }
    }
}

struct Conversation<'a> {
    messages: Vec<Message<'a>>,
    takes: Takes,
    /// The provider's name of the model.
    model: &'a str,
    /// Reasoning of this model that has not been attached to its call yet.
    thought: Thought<'a>,
}

impl<'a> Conversation<'a> {
    fn take(&mut self, item: Item<'a>, index: usize) -> Result<(), Failure> {
        match item {
            Item::Message(message) => match message.role {
                Role::User => {
                    let content = user_content(message.content, index, self.takes)?;
                    self.push("user", content);
                }
                Role::Assistant => self.assistant_text(&message.content),
                Role::System | Role::Developer => self.instructions(message.content),
            },
            Item::FunctionCall { call_id, name, arguments, .. } => {
                self.function(call_id, name, arguments);
            }
            Item::CustomToolCall { call_id, name, input, .. } if self.takes.custom => {
                self.call(call_id, Called::Custom { custom: Custom { name, input } });
            }
            Item::CustomToolCall { call_id, name, input, .. } => {
                let arguments = serde_json::json!({ "input": input }).to_string();
                self.function(call_id, name, arguments.into());
            }
            Item::FunctionCallOutput { call_id, output } | Item::CustomToolCallOutput { call_id, output } => {
                self.result(call_id, result_text(output));
            }
            // Useful only to the server that wrote it; the seal names its model.
            Item::Reasoning(reasoning) => {
                if let Some(Thought { text, extra }) = thought::unseal(&reasoning, self.model) {
                    append(&mut self.thought.text, text);
                    self.thought.extra = extra.or(self.thought.extra.take());
                }
            }
            // Useful only to the provider that made it.
            Item::Other { .. } => {}
        }
        Ok(())
    }

    /// Adds instructions as plain text, unless a part has a cache mark, which must keep its position.
    fn instructions(&mut self, parts: Vec<GivenPart<'a>>) {
        let takes = self.takes;
        let marked = |part: &GivenPart<'a>| match part {
            GivenPart::Text { marks, .. } => !takes.marks(marks).is_empty(),
            _ => false,
        };
        if !parts.iter().any(marked) {
            return self.system(Given::Parts(parts).to_text().into_owned().into());
        }
        let parts = parts.into_iter().filter_map(|part| match part {
            GivenPart::Text { text, marks } => Some(Part::Text { text, marks: takes.marks(&marks) }),
            _ => None,
        });
        self.push("system", Content::Parts(parts.collect()));
    }

    /// Joins system messages at the start, because many chat templates accept only one.
    fn system(&mut self, text: Text<'a>) {
        match self.messages.as_mut_slice() {
            [Message { role: "system", content: Content::Text(first), .. }] => {
                first.to_mut().push_str("\n\n");
                first.to_mut().push_str(&text);
            }
            _ => self.push("system", Content::Text(text)),
        }
    }

    fn push(&mut self, role: &'static str, content: Content<'a>) {
        // Reasoning without a call before the turn ended is not needed any more.
        if role != "assistant" {
            self.thought = Thought::default();
        }
        self.messages.push(Message {
            role,
            content,
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
        });
    }

    /// The assistant message of the current turn.
    fn turn(&mut self) -> Option<&mut Message<'a>> {
        if self.messages.last().is_none_or(|last| last.role != "assistant") {
            self.push("assistant", Content::Nothing);
        }
        self.messages.last_mut()
    }

    fn assistant_text(&mut self, parts: &[GivenPart<'a>]) {
        let text: String = parts.iter().filter_map(GivenPart::text).collect();
        let Some(turn) = self.turn() else { return };
        match &mut turn.content {
            Content::Text(before) => {
                before.to_mut().push_str("\n\n");
                before.to_mut().push_str(&text);
            }
            content => *content = Content::Text(Cow::Owned(text)),
        }
    }

    fn call(&mut self, id: Text<'a>, what: Called<'a>) {
        let Thought { text, extra: extra_content } = std::mem::take(&mut self.thought);
        let Some(turn) = self.turn() else { return };
        turn.tool_calls.push(Call { id, what, extra_content });
        append(&mut turn.reasoning_content, text);
    }

    fn function(&mut self, id: Text<'a>, name: Text<'a>, arguments: Text<'a>) {
        // Servers that parse the arguments reject an empty string.
        let arguments = if arguments.trim().is_empty() { Cow::Borrowed("{}") } else { arguments };
        self.call(id, Called::Function { function: Function { name, arguments } });
    }

    fn result(&mut self, id: Text<'a>, text: Text<'a>) {
        self.push("tool", Content::Text(text));
        if let Some(message) = self.messages.last_mut() {
            message.tool_call_id = Some(id);
        }
    }
}

fn append<'a>(text: &mut Option<Text<'a>>, more: Option<Text<'a>>) {
    match (text, more) {
        (_, None) => {}
        (Some(text), Some(more)) => text.to_mut().push_str(&more),
        (text, more) => *text = more,
    }
}

const LEFT_OUT: &str = "[A result that is not text was left out: this model takes only text from tools.]";

fn result_text(output: Given<'_>) -> Text<'_> {
    match output {
        Given::Empty => Cow::Borrowed(""),
        Given::Text(text) => text,
        Given::Parts(parts) => {
            let texts: Vec<&str> = parts.iter().map(|part| part.text().unwrap_or(LEFT_OUT)).collect();
            Cow::Owned(texts.join("\n"))
        }
    }
}

/// Plain text when there is only one text part, for servers that do not support parts. An empty
/// list becomes empty text, because no server accepts an empty list.
fn user_content(mut parts: Vec<GivenPart<'_>>, item: usize, takes: Takes) -> Result<Content<'_>, Failure> {
    if parts.is_empty() {
        return Ok(Content::Text(Cow::Borrowed("")));
    }
    if let [GivenPart::Text { text, marks }] = parts.as_mut_slice()
        && takes.marks(marks).is_empty()
    {
        return Ok(Content::Text(std::mem::take(text)));
    }
    let parts = parts.into_iter().enumerate().map(|(index, part)| {
        translate(part, takes)
            .map_err(|what| failure::unsupported(&format!("input[{item}].content[{index}]"), what))
    });
    Ok(Content::Parts(parts.collect::<Result<_, _>>()?))
}

/// Translates a part. The error names the kind of part that this dialect lacks.
fn translate(part: GivenPart<'_>, takes: Takes) -> Result<Part<'_>, &'static str> {
    match part {
        GivenPart::Text { text, marks } => Ok(Part::Text { text, marks: takes.marks(&marks) }),
        GivenPart::Refusal { text } => Ok(Part::Text { text, marks: Written::default() }),
        GivenPart::Image { url: Some(url), detail, marks, .. } => {
            let detail = detail.filter(|detail| matches!(&**detail, "auto" | "low" | "high"));
            Ok(Part::ImageUrl { image_url: Url { url, detail }, marks: takes.marks(&marks) })
        }
        GivenPart::Image { .. } => Err("an image without a URL"),
        GivenPart::File { data: None, file_id: None, .. } => Err("a file without its data"),
        GivenPart::File { filename, data, file_id, marks, .. } => {
            let file = File { filename, file_data: data, file_id };
            Ok(Part::File { file, marks: takes.marks(&marks) })
        }
        GivenPart::Audio { data, format } => Ok(Part::InputAudio { input_audio: Audio { data, format } }),
        GivenPart::Video { url } => Ok(Part::VideoUrl { video_url: Url { url, detail: None } }),
        GivenPart::Other { .. } => Err("a part of this type"),
    }
}
