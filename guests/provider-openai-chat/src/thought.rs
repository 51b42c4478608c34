//! Reasoning on its way to the client and back.
//!
//! Servers that call it `reasoning_content` (DeepSeek, Moonshot, vLLM, llama.cpp) take it back with the calls
//! it led to, and the first two refuse a history whose calls come without it. Google signs calls in their
//! `extra_content` and refuses those of its newer models without the signature. Servers that know neither
//! refuse both fields. A seal therefore names the model it is of, stands right before the call it belongs to,
//! and holds the text, which some clients drop.

use std::borrow::Cow;

use cofferdam_guest_kit::{Reasoning, Text};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bindings::exports::cofferdam::plugin::generation::ReasoningSeal;

/// The dialect and version, as in `reasoning-seal.format`.
const FORMAT: &str = "openai-chat-v1";

/// What goes back to the server that made it.
#[derive(Debug, Default)]
pub(crate) struct Thought<'a> {
    /// `reasoning_content` of the message.
    pub(crate) text: Option<Text<'a>>,
    /// `extra_content` of the call, an object.
    pub(crate) extra: Option<Box<RawValue>>,
}

/// What stands in `encrypted_content` behind the format and a colon.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    /// The provider's name for the model.
    model: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extra_content: Option<Box<RawValue>>,
}

/// The seal of what this model thought.
pub(crate) fn seal(model: &str, thought: Thought<'_>) -> ReasoningSeal {
    let Thought { text, extra } = thought;
    let sealed = Sealed { model: model.into(), reasoning_content: text, extra_content: extra };
    let json = serde_json::to_string(&sealed).ok();
    ReasoningSeal {
        signature: None,
        encrypted_content: json.map(|json| format!("{FORMAT}:{json}")),
        format: Some(FORMAT.to_owned()),
    }
}

/// What goes back to this model, if the item is of its making.
pub(crate) fn unseal<'a>(item: &Reasoning<'_>, model: &str) -> Option<Thought<'a>> {
    let json = item.encrypted_content.as_deref()?.strip_prefix(FORMAT)?.strip_prefix(':')?;
    let Sealed { model: of, reasoning_content, extra_content } = serde_json::from_str(json).ok()?;
    let text = reasoning_content.map(|text| Cow::Owned(text.into_owned()));
    let extra = extra_content.filter(|extra| extra.get().starts_with('{'));
    (of == model).then_some(Thought { text, extra })
}
