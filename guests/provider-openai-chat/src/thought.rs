//! Reasoning on its way to the client and back.
//!
//! Servers that call it `reasoning_content` (DeepSeek, Moonshot, vLLM, llama.cpp) take it back with the calls
//! it led to, and the first two refuse a history whose calls come without it. Servers that call it otherwise,
//! or never sent any, refuse the field. A seal therefore names the model it is of, and holds the text, which
//! some clients drop.

use std::borrow::Cow;

use cofferdam_guest_kit::{Reasoning, Text};
use serde::{Deserialize, Serialize};

use crate::bindings::exports::cofferdam::plugin::generation::ReasoningSeal;

/// The dialect and version, as in `reasoning-seal.format`.
const FORMAT: &str = "openai-chat-v1";

/// What stands in `encrypted_content` behind the format and a colon.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    /// The provider's name for the model.
    model: Cow<'a, str>,
    reasoning_content: Cow<'a, str>,
}

/// The seal of reasoning that this model wrote as `reasoning_content`.
pub(crate) fn seal(model: &str, text: &str) -> ReasoningSeal {
    let sealed = Sealed { model: model.into(), reasoning_content: text.into() };
    let json = serde_json::to_string(&sealed).ok();
    ReasoningSeal {
        signature: None,
        encrypted_content: json.map(|json| format!("{FORMAT}:{json}")),
        format: Some(FORMAT.to_owned()),
    }
}

/// The text that goes back to this model, if the item is of its making.
pub(crate) fn unseal<'a>(item: &Reasoning<'a>, model: &str) -> Option<Text<'a>> {
    let json = item.encrypted_content.as_deref()?.strip_prefix(FORMAT)?.strip_prefix(':')?;
    let sealed: Sealed<'_> = serde_json::from_str(json).ok()?;
    (sealed.model == model).then(|| Cow::Owned(sealed.reasoning_content.into_owned()))
}
