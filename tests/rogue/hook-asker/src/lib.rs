//! A hook that asks a model, with itself among the question's plugins, and makes instructions of the answer.
//! `reject` in its entry rejects the request afterwards, `break` breaks instead.

use bindings::cofferdam::plugin::hooks::Action;
use bindings::cofferdam::plugin::model;
use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Json};
use bindings::exports::cofferdam::plugin::on_request::Guest;
use serde_json::{Value, json};

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "request-hook" });
    use super::Hook;
    export!(Hook);
}

struct Hook;

impl Guest for Hook {
    fn handle(request: Json, settings: Json, _: CallContext) -> Result<Action, Failure> {
        let mut request: Value = serde_json::from_slice(&request).map_err(|_| rejected())?;
        let settings: Value = serde_json::from_slice(&settings).map_err(|_| rejected())?;
        let model = settings.get("model").cloned().unwrap_or_default();
        let question = json!({ "model": model, "input": "Is it fine?", "plugins": [{ "id": "asking" }] });
        let told = match model::ask(question.to_string().as_bytes()) {
            Ok(answer) => answer.text,
            Err(failure) => failure.message,
        };
        if settings.get("reject").is_some() {
            return Ok(Action::Reject(rejected()));
        }
        if settings.get("break").is_some() {
            eprintln!("broken after {told}");
            std::process::abort();
        }
        if let Some(members) = request.as_object_mut() {
            members.insert("instructions".to_owned(), Value::String(told));
        }
        Ok(Action::Replace(request.to_string().into_bytes()))
    }
}

fn rejected() -> Failure {
    let message = "this hook does not like the request".to_owned();
    Failure { kind: ErrorKind::InvalidRequest, message, code: None, retry_after_ms: None }
}
