//! Repairs answers that should be JSON but are not quite: in a code fence, with prose around them, cut
//! off, or with commas and quotes in the wrong places.
//!
//! It is the worked example of a hook. It handles whole responses only; parts of a stream have already
//! been sent to the client. Valid answers and answers beyond repair pass unchanged, so that a client
//! that validates sees the model's own text.

mod repair;
mod wanted;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::hooks::Action;
use cofferdam_guest_kit::bindings::on_response::Guest;
use cofferdam_guest_kit::bindings::types::{CallContext, Failure, Json};
use serde_json::Value;

use wanted::Wanted;

struct Healing;

cofferdam_guest_kit::export!(response_hook: Healing);

impl Guest for Healing {
    fn handle(request: Json, response: Json, settings: Json, _: CallContext) -> Result<Action, Failure> {
        Ok(healed(&request, &response, &settings).map_or(Action::Pass, Action::Replace))
    }
}

/// The response with its texts repaired; `None` when there is nothing to repair.
fn healed(request: &[u8], response: &[u8], settings: &[u8]) -> Option<Vec<u8>> {
    if wanted::is_disabled(settings) {
        return None;
    }
    let wanted = Wanted::by(request)?;
    let mut response: Value = serde_json::from_slice(response).ok()?;
    let mut repairs = Vec::new();
    for item in response.get_mut("output")?.as_array_mut()? {
        if item.get("type").and_then(Value::as_str) != Some("message") {
            continue;
        }
        let parts = item.get_mut("content").and_then(Value::as_array_mut);
        for part in parts.into_iter().flatten() {
            repairs.extend(heal_part(part, wanted));
        }
    }
    if repairs.is_empty() {
        return None;
    }
    // `output_text` is a copy of the text for convenience and gets the same repairs.
    if let Some(Value::String(copy)) = response.get_mut("output_text") {
        *copy = replaced(copy, &repairs);
    }
    serde_json::to_vec(&response).ok()
}

/// `copy` with each broken text replaced. The copy contains the broken texts in the given order, so
/// one pass is enough.
fn replaced(copy: &str, repairs: &[(String, String)]) -> String {
    let mut out = String::with_capacity(copy.len());
    let mut rest = copy;
    for (broken, whole) in repairs {
        let Some((before, after)) = rest.split_once(broken.as_str()) else { break };
        out.push_str(before);
        out.push_str(whole);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Repairs one part in place. Returns its old and its new text.
fn heal_part(part: &mut Value, wanted: Wanted) -> Option<(String, String)> {
    if part.get("type").and_then(Value::as_str) != Some("output_text") {
        return None;
    }
    let Some(Value::String(text)) = part.get_mut("text") else { return None };
    let whole = repair::repaired(text, wanted)?;
    let broken = std::mem::replace(text, whole.clone());
    Some((broken, whole))
}
