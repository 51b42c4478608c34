//! Prompt templates: messages from the configuration that a request names by id.
//!
//! A template's messages go before the client's `input`. `{{name}}` in their text is a variable. A
//! request must give exactly the variables that the template uses, so that a misspelt name is an
//! error. Values are inserted once: braces inside a value are not expanded.

use super::invalid::{InvalidKind, InvalidRequest, quoted};
use super::json::{JsonKind, JsonValue};
use std::borrow::Cow;

#[cfg(test)]
mod tests;

/// The longest variable name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The role of a message in a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptRole {
    /// Instructions: `system`.
    System,
    /// Instructions: `developer`, the newer name.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl PromptRole {
    /// The role with this name, if there is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::System, Self::Developer, Self::User, Self::Assistant]
            .into_iter()
            .find(|role| role.as_str() == name)
    }

    /// The name of the role in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One version of a template.
#[derive(Debug, Clone)]
pub struct PromptTemplate {
    id: String,
    version: Option<String>,
    messages: Vec<(PromptRole, Vec<TextPiece>)>,
}

/// A piece of a message's text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TextPiece {
    /// Literal text.
    Text(String),
    /// The value of the variable with this name.
    Variable(String),
}

impl PromptTemplate {
    /// A template of messages in this order. `{{name}}` is a variable; whitespace inside the braces
    /// is allowed. A name is an ASCII letter or `_`, followed by at most 63 ASCII letters, digits
    /// or `_`. All other text is literal.
    #[must_use]
    pub fn new(id: String, version: Option<String>, messages: Vec<(PromptRole, String)>) -> Self {
        let messages = messages.into_iter().map(|(role, text)| (role, pieces(&text))).collect();
        Self { id, version, messages }
    }

    fn uses(&self, name: &str) -> bool {
        let pieces = self.messages.iter().flat_map(|(_, pieces)| pieces);
        pieces.into_iter().any(|piece| matches!(piece, TextPiece::Variable(used) if used == name))
    }
}

/// All templates of the host.
#[derive(Debug, Clone, Default)]
pub struct Prompts(Vec<PromptTemplate>);

impl Prompts {
    /// Templates in the order of the configuration. Of several versions of a template, the last one
    /// is the default.
    #[must_use]
    pub fn new(templates: Vec<PromptTemplate>) -> Self {
        Self(templates)
    }

    /// Expands a checked `prompt` and `input` into a JSON array of items.
    ///
    /// # Errors
    /// An unknown id or version (404), a variable without a value, a value without a variable, or a
    /// picture or file in a message that may only have text.
    pub(super) fn expand(
        &self,
        prompt: JsonValue<'_>,
        input: Option<JsonValue<'_>>,
    ) -> Result<Vec<u8>, InvalidRequest> {
        let template = self.find(prompt)?;
        let variables = prompt.get("variables");
        for (name, value) in variables.into_iter().flat_map(JsonValue::members) {
            if !template.uses(&name.text()) {
                return Err(value.invalid("is not used by this prompt template"));
            }
        }
        let mut out = Vec::with_capacity(256 + input.map_or(0, |input| input.raw().len()));
        out.push(b'[');
        for (role, pieces) in &template.messages {
            separate(&mut out);
            write_message(*role, pieces, prompt, &mut out)?;
        }
        match input {
            Some(text) if text.kind() == JsonKind::String => {
                separate(&mut out);
                out.extend_from_slice(br#"{"role":"user","content":"#);
                text.write(&mut out);
                out.push(b'}');
            }
            input => input.into_iter().flat_map(JsonValue::items).for_each(|item| {
                separate(&mut out);
                item.write(&mut out);
            }),
        }
        out.push(b']');
        Ok(out)
    }

    fn find(&self, prompt: JsonValue<'_>) -> Result<&PromptTemplate, InvalidRequest> {
        let id = prompt.get("id").map(JsonValue::text).unwrap_or_default();
        let mut versions = self.0.iter().rev().filter(|template| template.id == id).peekable();
        if versions.peek().is_none() {
            let message = format!("names no prompt template of this host: \"{}\"", quoted(&id));
            return Err(not_found("prompt.id", message));
        }
        let wanted = prompt.get("version").map(JsonValue::text);
        let fits = |template: &&PromptTemplate| match &wanted {
            None => true,
            Some(wanted) => template.version.as_deref() == Some(wanted),
        };
        versions.find(fits).ok_or_else(|| {
            let wanted = quoted(wanted.as_deref().unwrap_or_default());
            let message = format!("names no version of this prompt template: \"{wanted}\"");
            not_found("prompt.version", message)
        })
    }
}

fn not_found(path: &str, message: String) -> InvalidRequest {
    InvalidRequest { kind: InvalidKind::NotFound, path: path.to_owned(), message }
}

/// Appends a comma unless the list was just opened.
fn separate(out: &mut Vec<u8>) {
    if !out.ends_with(b"[") {
        out.push(b',');
    }
}

/// A part of a message that is being built.
enum MessagePart<'d> {
    Text(String),
    /// A part as the client sent it.
    Given(JsonValue<'d>),
}

fn write_message<'d>(
    role: PromptRole,
    pieces: &[TextPiece],
    prompt: JsonValue<'d>,
    out: &mut Vec<u8>,
) -> Result<(), InvalidRequest> {
    let mut parts: Vec<MessagePart<'d>> = Vec::new();
    for piece in pieces {
        let text = match piece {
            TextPiece::Text(text) => Cow::Borrowed(text.as_str()),
            TextPiece::Variable(name) => {
                let value = value_of(prompt, name)?;
                match inline(value) {
                    Some(text) => text,
                    None if role == PromptRole::User => {
                        parts.push(MessagePart::Given(value));
                        continue;
                    }
                    None => {
                        let message =
                            format!("must be text: the template uses it in a {} message", role.as_str());
                        return Err(value.invalid(message));
                    }
                }
            }
        };
        match parts.last_mut() {
            Some(MessagePart::Text(before)) => before.push_str(&text),
            _ => parts.push(MessagePart::Text(text.into_owned())),
        }
    }
    out.extend_from_slice(br#"{"role":""#);
    out.extend_from_slice(role.as_str().as_bytes());
    out.extend_from_slice(br#"","content":"#);
    match parts.as_slice() {
        [] => out.extend_from_slice(b"\"\""),
        [MessagePart::Text(only)] => write_text(only, out),
        _ => write_parts(&parts, out),
    }
    out.push(b'}');
    Ok(())
}

fn write_parts(parts: &[MessagePart<'_>], out: &mut Vec<u8>) {
    out.push(b'[');
    for part in parts {
        separate(out);
        match part {
            MessagePart::Text(text) => {
                out.extend_from_slice(br#"{"type":"input_text","text":"#);
                write_text(text, out);
                out.push(b'}');
            }
            MessagePart::Given(part) => part.write(out),
        }
    }
    out.push(b']');
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    // Serialization of a string cannot fail.
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

fn value_of<'d>(prompt: JsonValue<'d>, name: &str) -> Result<JsonValue<'d>, InvalidRequest> {
    let given = prompt.get("variables").and_then(|variables| variables.get(name));
    given.ok_or_else(|| {
        InvalidRequest::new(format!("prompt.variables.{name}"), "is required by this prompt template")
    })
}

/// The text of a value that can be inserted into the surrounding text; none for a value that must
/// be a part of its own.
fn inline(value: JsonValue<'_>) -> Option<Cow<'_, str>> {
    if value.kind() == JsonKind::String {
        return Some(value.text());
    }
    // A text with a cache mark must stay a part of its own, or the mark would be lost.
    let marked = value.get("prompt_cache_breakpoint").or_else(|| value.get("cache_control")).is_some();
    let is_text = value.get("type").is_some_and(|tag| tag.is("input_text"));
    value.get("text").filter(|_| is_text && !marked).map(JsonValue::text)
}

/// Splits a text into literal pieces and variables.
fn pieces(text: &str) -> Vec<TextPiece> {
    let mut pieces = Vec::new();
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        plain.push_str(before);
        match after.split_once("}}").filter(|(name, _)| is_name(name.trim())) {
            Some((name, behind)) => {
                if !plain.is_empty() {
                    pieces.push(TextPiece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(TextPiece::Variable(name.trim().to_owned()));
                rest = behind;
            }
            None => {
                // Consume only one brace: the next one may open a variable, as in `{{{name}}`.
                plain.push('{');
                rest = rest.get(before.len() + 1..).unwrap_or_default();
            }
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(TextPiece::Text(plain));
    }
    pieces
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.len() <= NAME_BYTES_MAX
}
