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
        if ["instructions", "input"].iter().any(|member| has_word(&request[member], true, word)) {
            return Ok(Action::Reject(failure("the request has a word that is forbidden here")));
        }
        Ok(Action::Pass)
    }
}

/// The members that hold what a model reads. Others hold types, roles and ids.
const TEXTS: [&str; 3] = ["text", "arguments", "output"];

/// Whether the word is in what a model reads of `value`. `is_read`: a text here is such a part.
fn has_word(value: &Value, is_read: bool, word: &str) -> bool {
    match value {
        Value::String(text) => is_read && text.contains(word),
        Value::Array(values) => values.iter().any(|value| has_word(value, is_read, word)),
        Value::Object(members) => {
            members.iter().any(|(name, value)| has_word(value, TEXTS.contains(&name.as_str()), word))
        }
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
