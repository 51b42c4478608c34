//! Turns the question of a plugin into a request body such as a client could have sent.

use crate::request::{Prompts, RequestBounds, ResponsesRequest};
use cofferdam_runtime::wire::{ErrorKind, Failure};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Parses what a plugin wrote. A question is never streamed. Without models it is put to those in
/// `default`, and without a `provider` object it gets that of the request it is asked for.
pub(super) fn read(
    written: &[u8],
    default: &[String],
    provider: &[u8],
    entry_ids: &[String],
    prompts: &Prompts,
    bounds: RequestBounds,
) -> Result<ResponsesRequest, Failure> {
    let body = completed(written, default, provider);
    ResponsesRequest::parse_with(&body, entry_ids, prompts, bounds)
        .map_err(|error| Failure::new(ErrorKind::InvalidRequest, error.to_string()))
}

/// Checks what a plugin wrote as a host with any models and plugins does. What a prompt template adds is not known here,
/// so a question with one is not checked.
///
/// # Errors
///
/// What the plugin gets in the place of an answer.
pub fn check_question(written: &[u8]) -> Result<(), Failure> {
    let question: Value = serde_json::from_slice(written).unwrap_or_default();
    if question.get("prompt").is_some_and(Value::is_object) {
        return Ok(());
    }
    let plugins = question.get("plugins").and_then(Value::as_array);
    let ids = plugins.into_iter().flatten().filter_map(|entry| entry.get("id")?.as_str().map(str::to_owned));
    let (ids, models) = (ids.collect::<Vec<_>>(), ["sample/model".to_owned()]);
    read(written, &models, b"{}", &ids, &Prompts::default(), RequestBounds::default()).map(drop)
}

/// Adds what the plugin left out. Input that is not a JSON object is returned unchanged, and the
/// parser refuses it. A body that needs no change is kept byte for byte, so that the parser sees
/// duplicate members.
fn completed<'a>(written: &'a [u8], default: &[String], provider: &[u8]) -> Cow<'a, [u8]> {
    let Ok(mut body) = serde_json::from_slice::<Map<String, Value>>(written) else {
        return Cow::Borrowed(written);
    };
    let streamed = body.shift_remove("stream").is_some();
    let is_null = body.get("provider").is_some_and(Value::is_null);
    let says_null = is_null && body.shift_remove("provider").is_some();
    let has = |name: &str| body.get(name).is_some_and(|it| !it.is_null());
    let names_models = has("model") || has("models");
    let inherits = !has("provider") && !matches!(provider, b"" | b"{}");
    let whole = if names_models && !streamed && !says_null {
        Cow::Borrowed(written)
    } else {
        if !names_models {
            body.insert("models".to_owned(), Value::from(default));
        }
        Cow::Owned(Value::Object(body).to_string().into_bytes())
    };
    match whole.trim_ascii().strip_prefix(b"{") {
        // The body names models by now, so another member follows the comma.
        Some(rest) if inherits => Cow::Owned([b"{\"provider\":", provider, b",", rest].concat()),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_it(written: &str) -> Result<ResponsesRequest, Failure> {
        read(
            written.as_bytes(),
            &["a/b".to_owned(), "c/d".to_owned()],
            br#"{"zdr":true}"#,
            &[],
            &Prompts::default(),
            RequestBounds::default(),
        )
    }

    #[test]
    fn a_question_gets_models_and_is_not_streamed() {
        for (written, models) in [
            (r#"{"input":"x"}"#, vec!["a/b", "c/d"]),
            (r#"{"input":"x","model":null}"#, vec!["a/b", "c/d"]),
            (r#"{"input":"x","model":"e/f","stream":true}"#, vec!["e/f"]),
            (r#"{"input":"x","models":["e/f"],"provider":null}"#, vec!["e/f"]),
        ] {
            let request = read_it(written).unwrap();
            assert_eq!(request.models, models, "{written}");
            assert!(!request.stream, "{written}");
            assert_eq!(request.provider.json.as_ref(), br#"{"zdr":true}"#, "{written}");
        }
    }

    #[test]
    fn a_question_is_checked_without_the_models_and_plugins_of_a_host() {
        for fine in [
            r#"{"input":"x"}"#,
            r#"{"model":"m","input":[{"role":"user","content":"x"}],"plugins":[{"id":"mine","a":1}]}"#,
            r#"{"prompt":{"id":"p"}}"#,
        ] {
            assert_eq!(check_question(fine.as_bytes()), Ok(()), "{fine}");
        }
        for (wrong, starts) in [
            (r#"{"input":5}"#, "input "),
            (r#"{"input":"x","temperature":99}"#, "temperature "),
            ("{}", "input "),
            ("[]", ""),
        ] {
            let failure = check_question(wrong.as_bytes()).unwrap_err();
            assert_eq!(failure.kind, ErrorKind::InvalidRequest, "{wrong}");
            assert!(failure.message.starts_with(starts), "{}", failure.message);
        }
    }

    #[test]
    fn errors_name_the_field_as_for_a_client() {
        for (written, starts) in [
            (r#"{"model":"a/b","input":"x","temperature":"hot"}"#, "temperature "),
            ("[]", ""),
            ("{", ""),
            (r#"{"input":"x","model":"a/b","model":"c/d"}"#, ""),
        ] {
            let failure = read_it(written).unwrap_err();
            assert_eq!(failure.kind, ErrorKind::InvalidRequest);
            assert!(failure.message.starts_with(starts), "{}", failure.message);
        }
    }
}
