//! Repairs answers that were to be JSON and almost are: fenced, introduced with
//! prose, cut off, or with commas and quotes in the wrong places.
//!
//! The worked example of a hook. It sees whole responses only; the parts of a
//! stream are already with the client. What is valid, or beyond repair, passes
//! unchanged: a client that validates sees the model's own words then.

#[allow(unsafe_code, clippy::all, reason = "generated")]
mod bindings {
    use super::Healing;

    wit_bindgen::generate!({ path: "../../wit", world: "response-hook" });
    export!(Healing);
}
mod repair;
mod wanted;

#[cfg(test)]
mod tests;

use bindings::cofferdam::plugin::hooks::Action;
use bindings::cofferdam::plugin::types::{CallContext, Failure, Json};
use bindings::exports::cofferdam::plugin::on_response::Guest;
use serde_json::Value;

use wanted::Wanted;

struct Healing;

impl Guest for Healing {
    fn handle(request: Json, response: Json, settings: Json, _: CallContext) -> Result<Action, Failure> {
        Ok(healed(&request, &response, &settings).map_or(Action::Pass, Action::Replace))
    }
}

/// The response with its texts repaired; `None` when there is nothing to do.
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
    // The convenience copy of the text follows.
    if let Some(Value::String(copy)) = response.get_mut("output_text") {
        *copy = replaced(copy, &repairs);
    }
    serde_json::to_vec(&response).ok()
}

/// `copy` with each text in the place of the broken one. It holds the broken ones in their order, so that one pass
/// finds them.
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

/// Repairs one part in place; what its text was and what it is now.
fn heal_part(part: &mut Value, wanted: Wanted) -> Option<(String, String)> {
    if part.get("type").and_then(Value::as_str) != Some("output_text") {
        return None;
    }
    let Some(Value::String(text)) = part.get_mut("text") else { return None };
    let whole = repair::repaired(text, wanted)?;
    let broken = std::mem::replace(text, whole.clone());
    Some((broken, whole))
}
