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
