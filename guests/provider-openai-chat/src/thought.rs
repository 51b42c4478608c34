//! Reasoning on its way to the client and back.
//!
//! Servers that send `reasoning_content` (DeepSeek, Moonshot, vLLM, llama.cpp) accept it back with
//! the calls it led to. DeepSeek and Moonshot refuse a history whose calls come without it. Google
//! signs calls in their `extra_content`; its newer models refuse calls without the signature. Other
//! servers refuse both fields. A seal therefore names its model, stands directly before the call it
//! belongs to, and contains the text, because some clients drop the text.

use std::borrow::Cow;

use cofferdam_guest_kit::bindings::generation::ReasoningSeal;
use cofferdam_guest_kit::{Reasoning, Text};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The dialect and its version, as in `reasoning-seal.format`.
const FORMAT: &str = "openai-chat-v1";

/// The values that go back to the server that made them.
#[derive(Debug, Default)]
pub(crate) struct Thought<'a> {
    /// `reasoning_content` of the message.
    pub(crate) text: Option<Text<'a>>,
    /// `extra_content` of the call, a JSON object.
    pub(crate) extra: Option<Box<RawValue>>,
}

/// The content of `encrypted_content` after the format and a colon.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    /// The provider's name of the model.
    model: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extra_content: Option<Box<RawValue>>,
}

/// Seals the reasoning of this model.
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

/// The values to send back to this model, if it made the item.
pub(crate) fn unseal<'a>(item: &Reasoning<'_>, model: &str) -> Option<Thought<'a>> {
    let json = item.encrypted_content.as_deref()?.strip_prefix(FORMAT)?.strip_prefix(':')?;
    let Sealed { model: of, reasoning_content, extra_content } = serde_json::from_str(json).ok()?;
    let text = reasoning_content.map(|text| Cow::Owned(text.into_owned()));
    let extra = extra_content.filter(|extra| extra.get().starts_with('{'));
    (of == model).then_some(Thought { text, extra })
}
