//! Wraps reasoning that the upstream server has encrypted. The ciphertext is bound to the id of its
//! original item, but clients get ids of this service. The seal therefore contains the original id.
//! It also contains the name of the dialect, so that seals of other dialects are never sent to an
//! upstream server of this one. The seal itself encrypts nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The dialect and its version, as in `reasoning-seal.format`.
pub(crate) const FORMAT: &str = "openai-responses-v1";
/// The longest id that OpenAI accepts, in bytes.
const ID_BYTES_MAX: usize = 64;

/// The original id and ciphertext of a reasoning item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sealed<'a> {
    pub(crate) id: String,
    pub(crate) payload: &'a str,
}

/// The text that the client gets as `encrypted_content`.
pub(crate) fn seal(id: &str, payload: &str) -> String {
    format!("{FORMAT}.{}.{payload}", URL_SAFE_NO_PAD.encode(id))
}

/// Opens a text that [`seal`] made; `None` for any other text.
pub(crate) fn unseal(text: &str) -> Option<Sealed<'_>> {
    let (id, payload) = text.strip_prefix(FORMAT)?.strip_prefix('.')?.split_once('.')?;
    let id = String::from_utf8(URL_SAFE_NO_PAD.decode(id).ok()?).ok()?;
    (is_id(&id) && !payload.is_empty()).then_some(Sealed { id, payload })
}

/// Whether OpenAI would accept this as the id of an item.
pub(crate) fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Sealed, seal, unseal};

    #[test]
    fn only_own_seals_open() {
        for foreign in [
            "",
            "gAAAAB",
            "anthropic-claude-v1.cnNfMQ.abc",
            "openai-responses-v1",
            "openai-responses-v1.cnNfMQ",
            "openai-responses-v1.cnNfMQ.",
            "openai-responses-v1..abc",
            "openai-responses-v1.!!.abc",
            "openai-responses-v1.AAAA.abc",
            "openai-responses-v11.cnNfMQ.abc",
        ] {
            assert_eq!(unseal(foreign), None, "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn a_seal_opens_to_what_was_sealed(id in "[A-Za-z0-9_-]{1,64}", payload in ".{1,80}") {
            let sealed = seal(&id, &payload);
            prop_assert_eq!(unseal(&sealed), Some(Sealed { id, payload: &payload }));
        }

        #[test]
        fn any_text_opens_without_panic(text in any::<String>()) {
            let _ = unseal(&text);
            let _ = unseal(&format!("openai-responses-v1.{text}"));
        }
    }
}
