//! Reasoning on its way to the client and back.
//!
//! Anthropic verifies thinking blocks that a client sends back, so they must return unchanged.
//! Clients keep different parts of a reasoning item: some drop `signature` and `format`, some the
//! text. `encrypted_content` therefore holds the whole block after a prefix that names the
//! dialect. Incomplete reasoning and reasoning of other dialects is left out; the conversation
//! continues without it.

use std::borrow::Cow;

use cofferdam_guest_kit::Reasoning;
use cofferdam_guest_kit::bindings::generation::ReasoningSeal;
use serde::{Deserialize, Serialize};

use crate::blocks::Block;

/// The name of this dialect's reasoning format.
const FORMAT: &str = "anthropic-claude-v1";

/// A block as it is stored in `encrypted_content`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Sealed<'a> {
    Thinking {
        #[serde(default)]
        thinking: Cow<'a, str>,
        signature: Cow<'a, str>,
    },
    RedactedThinking {
        data: Cow<'a, str>,
    },
}

/// The seal of a thinking block. `None` without a signature, because the provider would not accept
/// the block back.
pub fn seal_thinking(thinking: &str, signature: &str) -> Option<ReasoningSeal> {
    let sealed = Sealed::Thinking { thinking: thinking.into(), signature: signature.into() };
    (!signature.is_empty()).then(|| ReasoningSeal {
        signature: Some(signature.to_owned()),
        encrypted_content: encode(&sealed),
        format: Some(FORMAT.to_owned()),
    })
}

/// The seal of redacted thinking, which only the provider can read.
pub fn seal_redacted(data: &str) -> ReasoningSeal {
    ReasoningSeal {
        signature: None,
        encrypted_content: encode(&Sealed::RedactedThinking { data: data.into() }),
        format: Some(FORMAT.to_owned()),
    }
}

fn encode(sealed: &Sealed<'_>) -> Option<String> {
    let json = serde_json::to_string(sealed).ok()?;
    Some(format!("{FORMAT}:{json}"))
}

/// The block that a reasoning item was made from, if this dialect made it.
pub fn block<'a>(item: &'a Reasoning<'a>) -> Option<Block<'a>> {
    item.encrypted_content.as_deref().and_then(decode).or_else(|| signed(item))
}

fn decode<'a>(content: &str) -> Option<Block<'a>> {
    let json = content.strip_prefix(FORMAT)?.strip_prefix(':')?;
    let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
    match serde_json::from_str(json).ok()? {
        Sealed::Thinking { signature, .. } if signature.is_empty() => None,
        Sealed::Thinking { thinking, signature } => {
            Some(Block::Thinking { thinking: own(thinking), signature: own(signature) })
        }
        Sealed::RedactedThinking { data } => Some(Block::RedactedThinking { data: own(data) }),
    }
}

/// Rebuilds a block from text, signature and format, for clients that keep these but drop
/// `encrypted_content`.
fn signed<'a>(item: &'a Reasoning<'a>) -> Option<Block<'a>> {
    if item.format.as_deref() != Some(FORMAT) {
        return None;
    }
    let signature = item.signature.as_deref().filter(|signature| !signature.is_empty())?;
    let texts = if item.content.is_empty() { &item.summary } else { &item.content };
    let thinking = match texts.as_slice() {
        [one] => Cow::Borrowed(&**one),
        many => Cow::Owned(many.concat()),
    };
    Some(Block::Thinking { thinking, signature: Cow::Borrowed(signature) })
}

#[cfg(test)]
mod tests {
    use cofferdam_guest_kit::Item;
    use serde_json::{Value, json};

    use super::{block, seal_redacted, seal_thinking};

    fn replayed(item: &Value) -> Option<Value> {
        let text = item.to_string();
        let item: Item<'_> = serde_json::from_str(&text).expect("an item");
        let Item::Reasoning(reasoning) = &item else { panic!("not reasoning") };
        block(reasoning).map(|block| serde_json::to_value(block).expect("JSON"))
    }

    #[test]
    fn a_sealed_block_returns_whatever_the_client_dropped() {
        let seal = seal_thinking("It is \"so\".\n", "c2ln").expect("signed");
        let block = json!({"type":"thinking","thinking":"It is \"so\".\n","signature":"c2ln"});
        let sealed = seal.encrypted_content.expect("sealed");
        let whole = json!({"type":"reasoning","summary":[],"encrypted_content":sealed,
            "content":[{"type":"reasoning_text","text":"edited"}]});
        assert_eq!(replayed(&whole), Some(block.clone()));
        let signed = json!({"type":"reasoning","summary":[],"signature":"c2ln","format":"anthropic-claude-v1",
            "content":[{"type":"reasoning_text","text":"It is \"so\".\n"}]});
        assert_eq!(replayed(&signed), Some(block));
        let redacted = seal_redacted("b64").encrypted_content;
        let redacted = json!({"type":"reasoning","summary":null,"encrypted_content":redacted});
        assert_eq!(replayed(&redacted), Some(json!({"type":"redacted_thinking","data":"b64"})));
        assert!(seal_thinking("text", "").is_none());
    }

    #[test]
    fn reasoning_of_others_is_left_out() {
        let cases = [
            json!({"type":"reasoning","summary":[],"encrypted_content":"gAAAAB-other"}),
            json!({"type":"reasoning","summary":[],"encrypted_content":"anthropic-claude-v1:{broken"}),
            json!({"type":"reasoning","summary":[],"encrypted_content":"anthropic-claude-v1:{\"type\":\"tool_use\"}"}),
            json!({"type":"reasoning","summary":[],"signature":"s","format":"google-gemini-v1"}),
            json!({"type":"reasoning","summary":[],"signature":"s"}),
            json!({"type":"reasoning","summary":[{"type":"summary_text","text":"plain"}]}),
        ];
        for item in cases {
            assert_eq!(replayed(&item), None, "{item}");
        }
    }
}
