//! A conversation as text. The advisor gets text and not the original items: it is another model,
//! which accepts neither calls of functions that it is not offered nor sealed reasoning.

use serde_json::Value;

/// The longest text, in characters. A longer conversation loses its beginning, which may end
/// inside of a message.
const CHARS_MAX: usize = 400_000;
/// The longest text for the arguments or the result of one call, in characters.
const CALL_CHARS_MAX: usize = 20_000;

/// Whether the transcript has no items.
pub(crate) fn is_empty(transcript: &[u8]) -> bool {
    items(transcript).is_empty()
}

/// The text for `transcript`, a JSON array of items; `None` when no item gives any text.
pub(crate) fn rendered(transcript: &[u8]) -> Option<String> {
    let lines: Vec<String> = items(transcript).iter().filter_map(line).collect();
    if lines.is_empty() {
        return None;
    }
    let (kept, is_cut) = end_of(&lines);
    let cut = if is_cut { "[The beginning was left out.]\n" } else { "" };
    Some(format!("The conversation so far:\n{cut}{}", kept.join("\n")))
}

/// The last characters that fit, and whether they are not all. The first of the lines may have lost
/// its beginning.
fn end_of(lines: &[String]) -> (Vec<&str>, bool) {
    let mut left = CHARS_MAX;
    let mut kept = Vec::new();
    let mut is_cut = false;
    for line in lines.iter().rev() {
        let surplus = line.chars().count().saturating_sub(left);
        is_cut = surplus > 0;
        let start = line.char_indices().nth(surplus).map_or(line.len(), |(start, _)| start);
        let end = line.get(start..).unwrap_or_default();
        if !end.is_empty() {
            kept.push(end);
        }
        if is_cut {
            break;
        }
        left -= end.chars().count();
    }
    kept.reverse();
    (kept, is_cut)
}

fn items(transcript: &[u8]) -> Vec<Value> {
    serde_json::from_slice(transcript).unwrap_or_default()
}

/// One item as text; `None` for an item that says nothing to another model.
fn line(item: &Value) -> Option<String> {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    match text("type").unwrap_or("message") {
        "message" => {
            let said = content(item.get("content")?);
            (!said.is_empty()).then(|| format!("{}: {said}", text("role").unwrap_or("user")))
        }
        "function_call" | "custom_tool_call" => {
            let passed = text("arguments").or_else(|| text("input")).unwrap_or_default();
            Some(format!("assistant called {}({})", text("name")?, short(passed)))
        }
        "function_call_output" | "custom_tool_call_output" => {
            Some(format!("result of the call: {}", short(&content(item.get("output")?))))
        }
        _ => None,
    }
}

/// The text of a content: of a list of parts the texts, and the type of every other part.
fn content(content: &Value) -> String {
    let parts = match content {
        Value::String(text) => return text.clone(),
        Value::Array(parts) => parts,
        _ => return String::new(),
    };
    let part = |part: &Value| {
        let said = ["text", "refusal"].iter().find_map(|name| part.get(name)?.as_str());
        said.map_or_else(
            || format!("[{}]", part.get("type").and_then(Value::as_str).unwrap_or("content")),
            str::to_owned,
        )
    };
    parts.iter().map(part).collect::<Vec<_>>().join("\n")
}

fn short(text: &str) -> String {
    let clipped = cofferdam_guest_kit::server_tool::clip(text, CALL_CHARS_MAX);
    if clipped.cut { format!("{} [...]", clipped.text) } else { clipped.text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_conversation_is_rendered_item_by_item() {
        let items = json!([
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": "data:..."}]},
            {"role": "assistant", "content": "Yes?"},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "name": "f", "arguments": "{\"a\":1}", "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "done"},
        ]);
        assert_eq!(
            rendered(items.to_string().as_bytes()).unwrap(),
            "The conversation so far:\nuser: Look\n[input_image]\nassistant: Yes?\nassistant called f({\"a\":1})\n\
             result of the call: done"
        );
        assert_eq!(rendered(b"[]"), None);
    }

    #[test]
    fn a_long_conversation_keeps_its_end() {
        let long = "x".repeat(CHARS_MAX / 2);
        let items: Vec<_> =
            ["one", &long, &long, "four"].map(|text| json!({"role": "user", "content": text})).into();
        let rendered = rendered(Value::from(items).to_string().as_bytes()).unwrap();
        assert!(rendered.contains("[The beginning was left out.]") && rendered.ends_with("user: four"));
        assert!(!rendered.contains("one") && rendered.chars().count() < CHARS_MAX + 100);
    }

    #[test]
    fn the_end_of_a_message_that_is_too_long_is_kept() {
        let long = format!("first{}last", "ü".repeat(CHARS_MAX + 50_000));
        let of = |texts: &[&str]| {
            let items: Vec<_> = texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
            rendered(Value::from(items).to_string().as_bytes()).unwrap()
        };
        let alone = of(&[&long]);
        assert!(alone.starts_with("The conversation so far:\n[The beginning was left out.]\nüü"));
        assert!(alone.ends_with("üülast") && !alone.contains("first"));
        let after = of(&["one", &long, "three"]);
        assert!(after.ends_with("üülast\nuser: three") && !after.contains("one"));
        let heads = "The conversation so far:\n[The beginning was left out.]\n".len();
        assert_eq!(alone.chars().count(), heads + CHARS_MAX);
        let full = "x".repeat(CHARS_MAX - "user: ".len());
        assert_eq!(
            of(&["one", &full]),
            format!("The conversation so far:\n[The beginning was left out.]\nuser: {full}")
        );
    }

    proptest! {
        #[test]
        fn foreign_items_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,50}") {
            rendered(&bytes);
            let items = json!([{"type": text, "content": text, "output": [text], "name": 7}]);
            rendered(items.to_string().as_bytes());
        }
    }
}
