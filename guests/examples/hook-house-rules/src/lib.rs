//! The hook `hook-house-rules`: puts the operator's rules before the instructions of every request.
//!
//! The rules are the text `rules` in `[plugins.hook-house-rules.config]`. It shows how a hook reads its settings and
//! replaces a request.

use cofferdam_guest_kit::bindings::config;
use cofferdam_guest_kit::bindings::hooks::Action;
use cofferdam_guest_kit::bindings::on_request::Guest;
use cofferdam_guest_kit::bindings::types::{CallContext, ErrorKind, Failure, Json};
use serde_json::Value;

struct HouseRules;
cofferdam_guest_kit::export!(request_hook: HouseRules, "wit", "plugin");

impl Guest for HouseRules {
    /// `settings` are what the client wrote beside `"id": "house-rules"`. This hook has none.
    fn handle(request: Json, _settings: Json, _context: CallContext) -> Result<Action, Failure> {
        let operator: Value = serde_json::from_slice(&config::settings()).unwrap_or_default();
        let Some(rules) = operator["rules"].as_str().filter(|rules| !rules.is_empty()) else {
            return Ok(Action::Pass);
        };
        let mut request: Value = serde_json::from_slice(&request)
            .map_err(|_| Failure::new(ErrorKind::InvalidRequest, "the request is not JSON"))?;
        let instructions = match request["instructions"].as_str() {
            Some(own) if !own.is_empty() => format!("{rules}\n\n{own}"),
            _ => rules.to_owned(),
        };
        request["instructions"] = instructions.into();
        Ok(Action::Replace(request.to_string().into_bytes()))
    }
}
