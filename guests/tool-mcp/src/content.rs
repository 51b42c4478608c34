//! Renders the results of calls as text. Images and sound are left out and named, because models get
//! tool results as text only.

use cofferdam_guest_kit::server_tool::clip;
use serde_json::{Map, Value};

use crate::rpc::printable;

/// The longest text, in characters.
const TEXT_CHARS_MAX: usize = 400_000;

/// The text of a result: its parts, and its structured content when no part has text.
pub(crate) fn text(result: &Map<String, Value>) -> String {
    let parts = result.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut texts: Vec<String> = parts.iter().filter_map(part).collect();
    if !parts.iter().any(has_text)
        && let Some(structured) = result.get("structuredContent").filter(|value| !value.is_null())
    {
        texts.retain(|text| !text.trim().is_empty());
        texts.push(structured.to_string());
    }
    let text = texts.join("\n");
    let clipped = clip(&text, TEXT_CHARS_MAX);
    if clipped.cut { format!("{}\n[The rest was cut off.]", clipped.text) } else { text }
}

/// Whether a part has text of its own. Servers give structured content as such a text too.
fn has_text(part: &Value) -> bool {
    let text = part.get("text").or_else(|| part.get("resource")?.get("text"));
    text.and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty())
}

fn part(part: &Value) -> Option<String> {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let kind = text(part, "type")?;
    let left_out = |what: &str| {
        let media = text(part, "mimeType").unwrap_or_default();
        Some(format!("[{} was left out: {}]", what, printable(&media)))
    };
    match kind.as_str() {
        "text" => text(part, "text"),
        "image" => left_out("A picture"),
        "audio" => left_out("Sound"),
        "resource_link" => {
            let name = text(part, "name").unwrap_or_default();
            Some(format!("[Resource {}: {}]", printable(&name), printable(&text(part, "uri")?)))
        }
        "resource" => {
            let resource = part.get("resource")?;
            let uri = text(resource, "uri").unwrap_or_default();
            Some(match text(resource, "text") {
                Some(body) => format!("[Resource {}]\n{body}", printable(&uri)),
                None => format!("[Resource {} is not text and was left out]", printable(&uri)),
            })
        }
        _ => None,
    }
}
