//! A hook that changes or rejects answers as its entry says: `text` replaces every text of a message, `add` is a
//! further item, `set` are members of the response, `reject` is the message of a rejection.

use bindings::cofferdam::plugin::hooks::Action;
use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Json};
use bindings::exports::cofferdam::plugin::on_response::Guest;
use serde_json::Value;

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "response-hook" });
    use super::Hook;
    export!(Hook);
}

struct Hook;

impl Guest for Hook {
    fn handle(_: Json, response: Json, settings: Json, _: CallContext) -> Result<Action, Failure> {
        let settings: Value = serde_json::from_slice(&settings).map_err(|_| failure("no settings"))?;
        if let Some(message) = settings.get("reject").and_then(Value::as_str) {
            return Ok(Action::Reject(failure(message)));
        }
        let mut response: Value = serde_json::from_slice(&response).map_err(|_| failure("no response"))?;
        let output = response.get_mut("output").and_then(Value::as_array_mut);
        let output = output.ok_or_else(|| failure("no output"))?;
        if let Some(text) = settings.get("text") {
            replace_texts(output, text);
        }
        output.extend(settings.get("add").cloned());
        if let (Some(members), Some(set)) =
            (response.as_object_mut(), settings.get("set").and_then(Value::as_object))
        {
            members.extend(set.clone());
        }
        // Over several lines, as a stranger may write it.
        let written = serde_json::to_vec_pretty(&response).map_err(|_| failure("not written"))?;
        Ok(Action::Replace(written))
    }
}

fn replace_texts(output: &mut [Value], text: &Value) {
    let parts = output.iter_mut().filter_map(|item| item.get_mut("content")?.as_array_mut()).flatten();
    for part in parts {
        if let Some(place) = part.get_mut("text") {
            *place = text.clone();
        }
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
