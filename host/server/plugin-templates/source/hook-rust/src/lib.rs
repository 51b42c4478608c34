//! The hook `{{name}}`: refuses requests with a word that the request's entry for this hook forbids.
//!
//! A client switches it on with `"plugins": [{"id": "{{name}}", "word": "secret"}]`.

wit_bindgen::generate!({ path: "wit", world: "plugin", generate_all });

use cofferdam::plugin::hooks::Action;
use cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Json};
use exports::cofferdam::plugin::on_request::Guest;
use serde_json::Value;

struct Hook;
export!(Hook);

impl Guest for Hook {
    fn handle(request: Json, settings: Json, _context: CallContext) -> Result<Action, Failure> {
        let settings: Value = serde_json::from_slice(&settings).map_err(|_| failure("the entry is not JSON"))?;
        let Some(word) = settings["word"].as_str() else { return Ok(Action::Pass) };
        let request: Value = serde_json::from_slice(&request).map_err(|_| failure("the request is not JSON"))?;
        if has_word(&request["input"], word) {
            return Ok(Action::Reject(failure("the request has a word that is forbidden here")));
        }
        Ok(Action::Pass)
    }
}

/// Whether any text within `value` contains the word.
fn has_word(value: &Value, word: &str) -> bool {
    match value {
        Value::String(text) => text.contains(word),
        Value::Array(values) => values.iter().any(|value| has_word(value, word)),
        Value::Object(members) => members.values().any(|value| has_word(value, word)),
        _ => false,
    }
}

fn failure(message: &str) -> Failure {
    Failure {
        kind: ErrorKind::ContentPolicyViolation,
        message: message.to_owned(),
        code: None,
        retry_after_ms: None,
    }
}
