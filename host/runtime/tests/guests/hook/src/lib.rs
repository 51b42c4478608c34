//! A hook for both phases. Its settings select what it does.

mod bindings {
    wit_bindgen::generate!({ path: "../../../../../wit", world: "hook" });
    use super::Guest;
    export!(Guest);
}

use bindings::cofferdam::plugin::hooks::Action;
use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure};
use bindings::cofferdam::plugin::{http, log, model, tool_call};
use bindings::exports::cofferdam::plugin::{on_request, on_response};

struct Guest;

fn write(line: &str) {
    log::write(log::Level::Info, line);
}

fn failure(message: String) -> Failure {
    Failure { kind: ErrorKind::ContentPolicyViolation, message, code: None, retry_after_ms: None }
}

impl on_request::Guest for Guest {
    fn handle(request: Vec<u8>, settings: Vec<u8>, context: CallContext) -> Result<Action, Failure> {
        let settings = String::from_utf8(settings).unwrap();
        deeds::commit(&settings, write);
        Ok(match settings.as_str() {
            "replace" => Action::Replace(b"{\"replaced\":true}".to_vec()),
            "replace badly" => Action::Replace(b"not json".to_vec()),
            "reject" => Action::Reject(failure("rejected".into())),
            "ask" => match model::ask(&request) {
                Ok(answer) => Action::Replace(format!("{{\"text\":{:?}}}", answer.text).into_bytes()),
                Err(refused) => Action::Reject(refused),
            },
            "ask often" => {
                let mut answered = 0;
                while model::ask(&request).is_ok() {
                    answered += 1;
                }
                return Err(failure(format!("{answered} answers")));
            }
            "tool" => match tool_call::call("datetime", b"{}", "now", b"{}") {
                Ok(told) => Action::Replace(told),
                Err(error) => return Err(failure(format!("{error:?}"))),
            },
            "fetch" => {
                let sent = http::send(&http::Request {
                    method: "GET".into(),
                    url: "https://api.test/x".into(),
                    headers: vec![],
                    body: vec![],
                    injections: vec![],
                    redirects: 0,
                    body_bytes_max: 1024,
                    timeout_ms: 1000,
                });
                match sent {
                    Ok(response) => Action::Replace(response.body),
                    Err(error) => return Err(failure(format!("{error:?}"))),
                }
            }
            "who" => return Err(failure(context.workspace)),
            _ => Action::Pass,
        })
    }
}

impl on_response::Guest for Guest {
    fn handle(
        _request: Vec<u8>,
        response: Vec<u8>,
        settings: Vec<u8>,
        _context: CallContext,
    ) -> Result<Action, Failure> {
        let settings = String::from_utf8(settings).unwrap();
        deeds::commit(&settings, write);
        Ok(if settings == "replace" { Action::Replace(response) } else { Action::Pass })
    }
}
