//! A hook that shows what it gets, in the phase that its entry names (`phase`). `on-request` replaces the input by
//! one text, `on-response` every text of the answer: a JSON object of the arguments.

use bindings::cofferdam::plugin::hooks::Action;
use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Json};
use bindings::exports::cofferdam::plugin::{on_request, on_response};
use serde_json::{Value, json};

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "hook" });
    use super::Hook;
    export!(Hook);
}

struct Hook;

impl on_request::Guest for Hook {
    fn handle(request: Json, settings: Json, context: CallContext) -> Result<Action, Failure> {
        let (mut request, settings) = (read(&request)?, read(&settings)?);
        if settings.get("phase").is_none_or(|phase| phase != "on-request") {
            return Ok(Action::Pass);
        }
        let shown = json!({ "request": request, "settings": settings, "context": described(&context) });
        let members = request.as_object_mut().ok_or_else(|| failure("no object"))?;
        members.insert("input".to_owned(), shown.to_string().into());
        Ok(Action::Replace(request.to_string().into_bytes()))
    }
}

impl on_response::Guest for Hook {
    fn handle(
        request: Json,
        response: Json,
        settings: Json,
        context: CallContext,
    ) -> Result<Action, Failure> {
        let (request, mut response, settings) = (read(&request)?, read(&response)?, read(&settings)?);
        if settings.get("phase").is_none_or(|phase| phase != "on-response") {
            return Ok(Action::Pass);
        }
        let shown = json!({
            "request": request, "response": response, "settings": settings, "context": described(&context),
        });
        let output = response.get_mut("output").and_then(Value::as_array_mut);
        let items = output.ok_or_else(|| failure("no output"))?.iter_mut();
        let parts = items.filter_map(|item| item.get_mut("content")?.as_array_mut()).flatten();
        for part in parts {
            if let Some(place) = part.get_mut("text") {
                *place = shown.to_string().into();
            }
        }
        Ok(Action::Replace(response.to_string().into_bytes()))
    }
}

fn described(context: &CallContext) -> Value {
    json!({ "request_id": context.request_id, "workspace": context.workspace, "now_ms": context.now_ms })
}

fn read(json: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(json).map_err(|_| failure("not JSON"))
}

fn failure(message: &str) -> Failure {
    Failure { kind: ErrorKind::Server, message: message.to_owned(), code: None, retry_after_ms: None }
}
