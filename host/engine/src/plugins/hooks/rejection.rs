//! The refusal when a hook rejects content: 403, with the reasons and the flagged text in its
//! metadata.
//!
//! A hook puts both into the failure's `code`: the reasons with commas between them, then, if one
//! text is flagged, `#` and the JSON pointer of that text in what the hook was shown. The host
//! takes the text from there. So a hook can make the host repeat nothing but the client's own words
//! to that client.

use crate::refusal::Refusal;
use cofferdam_runtime::wire::Failure;
use serde_json::{Value, json};

/// The most reasons that are passed on, and the most characters of each.
const REASONS_MAX: usize = 16;
const REASON_CHARS_MAX: usize = 64;
/// The most characters of the text, including the mark for what was left out.
const INPUT_CHARS_MAX: usize = 100;
const LEFT_OUT: &str = "...";

/// The refusal for a failure of kind `content-policy-violation` of the hook called `plugin`.
/// `shown` is the JSON that it judged, `model` the model that the client asked for.
pub(super) fn refusal(failure: &Failure, plugin: &str, shown: &[u8], model: &str) -> Refusal {
    let code = failure.code.as_deref().unwrap_or_default();
    let (reasons, pointer) = code.split_once('#').map_or((code, None), |(list, at)| (list, Some(at)));
    let reasons = reasons.split(',').map(str::trim).filter(|reason| !reason.is_empty());
    let reasons: Vec<String> = reasons.take(REASONS_MAX).map(plain).collect();
    let mut metadata = json!({ "reasons": reasons, "provider_name": plugin, "model_slug": model });
    let text = pointer.and_then(|pointer| {
        let shown: Value = serde_json::from_slice(shown).ok()?;
        match shown.pointer(pointer)? {
            Value::String(text) => Some(shortened(text)),
            // A tool, for example, which was judged as a whole.
            object @ Value::Object(_) => Some(shortened(&object.to_string())),
            _ => None,
        }
    });
    if let (Some(members), Some(text)) = (metadata.as_object_mut(), text) {
        members.insert("flagged_input".to_owned(), text.into());
    }
    Refusal { metadata: Box::new(metadata), ..Refusal::new(403, failure.kind, failure.message.clone()) }
}

fn plain(reason: &str) -> String {
    reason.chars().filter(|letter| !letter.is_control()).take(REASON_CHARS_MAX).collect()
}

/// The text, or its beginning and its end with a mark between them.
fn shortened(text: &str) -> String {
    let chars = text.chars().count();
    if chars <= INPUT_CHARS_MAX {
        return text.to_owned();
    }
    let kept = INPUT_CHARS_MAX - LEFT_OUT.len();
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let letters = text.chars();
    letters.clone().take(head).chain(LEFT_OUT.chars()).chain(letters.skip(chars - tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_runtime::wire::ErrorKind;
    use proptest::prelude::*;

    fn metadata(code: Option<&str>, shown: &str) -> Value {
        let failure = Failure {
            kind: ErrorKind::ContentPolicyViolation,
            message: "flagged".to_owned(),
            code: code.map(str::to_owned),
            retry_after_ms: None,
        };
        let refusal = refusal(&failure, "hook-x", shown.as_bytes(), "a/b");
        assert_eq!((refusal.status, refusal.message.as_str()), (403, "flagged"));
        *refusal.metadata
    }

    #[test]
    fn a_refusal_has_the_reasons_and_the_clients_own_text() {
        let shown = r#"{"input":[{"content":[{"text":"some words"}]}]}"#;
        assert_eq!(
            metadata(Some("violence, hate#/input/0/content/0/text"), shown),
            json!({"reasons": ["violence", "hate"], "provider_name": "hook-x", "model_slug": "a/b",
                "flagged_input": "some words"})
        );
    }

    #[test]
    fn what_a_hook_leaves_out_is_absent() {
        let details = json!({"reasons": [], "provider_name": "hook-x", "model_slug": "a/b"});
        assert_eq!(metadata(None, "{}"), details);
        assert_eq!(metadata(Some("#/input"), "{\"input\":[]}"), details);
        assert_eq!(metadata(Some(",#/nowhere"), "no json"), details);
        assert_eq!(metadata(Some("one"), "{}")["reasons"], json!(["one"]));
        assert_eq!(metadata(Some("a\u{1b}b"), "{}")["reasons"], json!(["ab"]));
    }

    #[test]
    fn a_flagged_object_is_shown_as_json() {
        let shown = json!({"tools": [{"name": "a".repeat(200)}]}).to_string();
        let details = metadata(Some("x#/tools/0"), &shown)["flagged_input"].as_str().unwrap().to_owned();
        assert!(details.starts_with(r#"{"name":"aaa"#) && details.len() == INPUT_CHARS_MAX, "{details}");
    }

    #[test]
    fn the_middle_of_a_long_text_is_left_out() {
        assert_eq!(shortened(&"é".repeat(100)), "é".repeat(100));
        let text = format!("{}{}", "a".repeat(80), "z".repeat(80));
        assert_eq!(shortened(&text), format!("{}...{}", "a".repeat(49), "z".repeat(48)));
    }

    proptest! {
        #[test]
        fn any_code_gives_a_bounded_refusal(code in "\\PC{0,200}|[a-z,#/~0-9]{0,200}", text in "\\PC{0,300}") {
            let details = metadata(Some(&code), &json!({"input": text}).to_string());
            prop_assert!(details["reasons"].as_array().unwrap().len() <= REASONS_MAX);
            prop_assert!(shortened(&text).chars().count() <= INPUT_CHARS_MAX);
        }
    }
}
