//! The parts of a conversation that the model's rules use.

use std::borrow::Cow;
use std::collections::HashMap;

use cofferdam_guest_kit::{Content, Item, Message, Part, Request, Role, Tool};

use crate::words;

/// The parts of a request that decide the answer.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// The instructions and the system and developer messages, in order.
    pub(crate) instructions: Vec<String>,
    /// Earlier user messages, oldest first.
    pub(crate) earlier: Vec<String>,
    /// The last user message.
    pub(crate) message: String,
    /// The kinds of parts other than text in the last user message, such as `image`.
    pub(crate) attachments: Vec<&'static str>,
    /// The names of the functions called since the last user message.
    pub(crate) called: Vec<String>,
    /// The results received since the last user message.
    pub(crate) results: Vec<CallResult>,
    /// The number of tokens in the whole request.
    pub(crate) input_tokens: u64,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct CallResult {
    pub(crate) name: String,
    pub(crate) output: String,
}

impl Conversation {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let mut conversation = Self::default();
        conversation.instructions.extend(request.instructions.iter().map(|text| text.to_string()));
        conversation.input_tokens = request.instructions.as_deref().map_or(0, words::count)
            + request.tools.iter().map(tool_tokens).sum::<u64>();
        let mut names: HashMap<&str, &str> = HashMap::new();
        for item in &request.input {
            match item {
                Item::Message(message) => conversation.add_message(message),
                Item::FunctionCall { call_id, name, arguments: input, .. }
                | Item::CustomToolCall { call_id, name, input, .. } => {
                    names.insert(call_id, name);
                    conversation.called.push(name.to_string());
                    conversation.input_tokens += words::count(name) + words::count(input);
                }
                Item::FunctionCallOutput { call_id, output }
                | Item::CustomToolCallOutput { call_id, output } => {
                    let name = names.get(&**call_id).copied();
                    conversation.add_result(name.unwrap_or("function"), output);
                }
                Item::Reasoning(_) | Item::Other { .. } => {}
            }
        }
        conversation
    }

    fn add_message(&mut self, message: &Message<'_>) {
        let text = text_of(&message.content);
        self.input_tokens += words::count(&text);
        match message.role {
            Role::System | Role::Developer => self.instructions.push(text.into_owned()),
            Role::Assistant => {}
            Role::User => {
                let before = std::mem::replace(&mut self.message, text.into_owned());
                if !before.is_empty() {
                    self.earlier.push(before);
                }
                self.attachments = message.content.iter().filter_map(attachment).collect();
                self.input_tokens += self.attachments.len() as u64;
                self.called.clear();
                self.results.clear();
            }
        }
    }

    fn add_result(&mut self, name: &str, output: &Content<'_>) {
        let output = output.to_text().into_owned();
        self.input_tokens += words::count(&output);
        self.results.push(CallResult { name: name.to_owned(), output });
    }
}

fn text_of<'a>(parts: &'a [Part<'_>]) -> Cow<'a, str> {
    match parts {
        [only] => Cow::Borrowed(only.text().unwrap_or_default()),
        many => Cow::Owned(many.iter().filter_map(Part::text).collect::<Vec<_>>().join("\n")),
    }
}

fn attachment(part: &Part<'_>) -> Option<&'static str> {
    Some(match part {
        Part::Text { .. } | Part::Refusal { .. } => return None,
        Part::Image { .. } => "image",
        Part::File { .. } => "file",
        Part::Audio { .. } => "sound",
        Part::Video { .. } => "video",
        Part::Other { .. } => "part of unknown type",
    })
}

fn tool_tokens(tool: &Tool<'_>) -> u64 {
    let text = |text: &Option<Cow<'_, str>>| text.as_deref().map_or(0, words::count);
    match tool {
        Tool::Function { name, description, parameters, .. } => {
            words::count(name) + text(description) + parameters.map_or(0, |json| words::count(json.get()))
        }
        Tool::Custom { name, description, .. } => words::count(name) + text(description),
        Tool::Namespace { name, description, tools } => {
            words::count(name) + text(description) + tools.iter().map(tool_tokens).sum::<u64>()
        }
        Tool::Other { .. } => 0,
    }
}
