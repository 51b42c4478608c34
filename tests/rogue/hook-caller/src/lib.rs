//! A hook that calls the server tool its entry names and makes instructions of what it is told.

use bindings::cofferdam::plugin::hooks::Action;
use bindings::cofferdam::plugin::tool_call::{self, ToolCallError};
use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Json};
use bindings::exports::cofferdam::plugin::on_request::Guest;
use serde_json::Value;

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "request-hook" });
    use super::Hook;
    export!(Hook);
}

struct Hook;

impl Guest for Hook {
    fn handle(request: Json, settings: Json, _: CallContext) -> Result<Action, Failure> {
        let mut request: Value = serde_json::from_slice(&request).map_err(|_| unreadable())?;
        let settings: Value = serde_json::from_slice(&settings).map_err(|_| unreadable())?;
        let word = |name: &str| settings.get(name).and_then(Value::as_str).unwrap_or_default();
        let arguments = word("arguments").as_bytes();
        let told = match tool_call::call(word("tool"), b"{}", word("function"), arguments) {
            Ok(told) => String::from_utf8_lossy(&told).into_owned(),
            Err(ToolCallError::Unavailable) => "unavailable".to_owned(),
            Err(ToolCallError::InvalidArguments) => "invalid arguments".to_owned(),
            Err(ToolCallError::Failed) => "failed".to_owned(),
            Err(ToolCallError::Exhausted) => "exhausted".to_owned(),
        };
        if let Some(members) = request.as_object_mut() {
            members.insert("instructions".to_owned(), Value::String(told));
        }
        Ok(Action::Replace(request.to_string().into_bytes()))
    }
}

fn unreadable() -> Failure {
    let message = "the request is not what this hook expects".to_owned();
    Failure { kind: ErrorKind::InvalidRequest, message, code: None, retry_after_ms: None }
}
