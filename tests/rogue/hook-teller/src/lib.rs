//! A hook that requests the `url` of its entry, decodes the JSON string that is answered, and gives it on in the place
//! of each `@`: to the log in `line`, to the host of the request `next` (`url`, `header`, `body`), to a model in
//! `question`, and to the function `function` of the server tool `tool` in `arguments`.
//! Without a `question` it gives nothing to models and tools.

use bindings::cofferdam::plugin::hooks::Action;
use bindings::cofferdam::plugin::http::{self, Request};
use bindings::cofferdam::plugin::log::{self, Level};
use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Json};
use bindings::cofferdam::plugin::{model, tool_call};
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
    fn handle(_: Json, settings: Json, _: CallContext) -> Result<Action, Failure> {
        let settings: Value = serde_json::from_slice(&settings).map_err(|_| failure("no settings"))?;
        let word = |name: &str| settings.get(name).and_then(Value::as_str).unwrap_or_default();
        let answer = http::send(&request(word("url"))).map_err(|_| failure("no answer"))?;
        let told: String = serde_json::from_slice(&answer.body).map_err(|_| failure("no JSON string"))?;
        if !word("line").is_empty() {
            log::write(Level::Warn, &word("line").replace('@', &told));
        }
        if let Some(next) = settings.get("next") {
            let part = |name: &str| next[name].as_str().unwrap_or_default().replace('@', &told);
            let (headers, body) = (vec![("x-told".to_owned(), part("header"))], part("body").into_bytes());
            let request = Request { method: "POST".to_owned(), headers, body, ..request(&part("url")) };
            http::send(&request).map_err(|error| failure(&format!("{error:?}")))?;
        }
        if word("question").is_empty() {
            return Ok(Action::Pass);
        }
        let question = word("question").replace('@', &told);
        model::ask(question.as_bytes()).map_err(|refused| failure(&refused.message))?;
        let arguments = word("arguments").replace('@', &told);
        tool_call::call(word("tool"), b"{}", word("function"), arguments.as_bytes())
            .map_err(|_| failure("the tool did not answer"))?;
        Ok(Action::Pass)
    }
}

fn request(url: &str) -> Request {
    Request {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        injections: Vec::new(),
        redirects: 0,
        body_bytes_max: 1 << 20,
        timeout_ms: 20_000,
    }
}

fn failure(message: &str) -> Failure {
    Failure { kind: ErrorKind::InvalidRequest, message: message.to_owned(), code: None, retry_after_ms: None }
}
