//! The texts of a request, each with its place.

use cofferdam_guest_kit::is_text_member;
use serde::Deserialize;
use serde_json::{Value, from_slice};

/// One text that a model would read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// Its JSON pointer (RFC 6901).
    pub(crate) pointer: String,
    pub(crate) text: String,
}

/// As much of a request as holds text.
#[derive(Deserialize)]
struct Request {
    instructions: Option<String>,
    #[serde(default)]
    input: Vec<Value>,
    #[serde(default)]
    tools: Vec<Value>,
}

/// The texts in the order in which they stand: instructions, input, and what the
/// client says of its tools. `None` for bytes that are no request.
pub(crate) fn read(request: &[u8]) -> Option<Vec<Text>> {
    let Request { instructions, input, tools } = from_slice(request).ok()?;
    let mut texts = Vec::new();
    if let Some(text) = instructions {
        note("/instructions".to_owned(), text, &mut texts);
    }
    for (place, item) in input.into_iter().enumerate() {
        collect(&format!("/input/{place}"), item, &is_text_member, &mut texts);
    }
    for (place, tool) in tools.into_iter().enumerate() {
        collect(&format!("/tools/{place}"), tool, &|name: &str| name == "description", &mut texts);
    }
    Some(texts)
}

/// Notes the strings below a value that stand in a member for which `reads` holds.
/// The host has bounded how deep this goes.
fn collect(pointer: &str, value: Value, reads: &impl Fn(&str) -> bool, texts: &mut Vec<Text>) {
    match value {
        Value::Array(values) => {
            for (place, value) in values.into_iter().enumerate() {
                element(format!("{pointer}/{place}"), value, reads, texts);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                let is_text = reads(&name);
                if is_text || !value.is_string() {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    element(format!("{pointer}/{name}"), value, reads, texts);
                }
            }
        }
        _ => {}
    }
}

fn element(pointer: String, value: Value, reads: &impl Fn(&str) -> bool, texts: &mut Vec<Text>) {
    match value {
        Value::String(text) => note(pointer, text, texts),
        value => collect(&pointer, value, reads, texts),
    }
}

fn note(pointer: String, text: String, texts: &mut Vec<Text>) {
    if !text.trim().is_empty() {
        texts.push(Text { pointer, text });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_a_model_reads_is_found_with_its_place() {
        let request = json!({
            "model": "a/b",
            "instructions": "one",
            "metadata": { "note": "not read" },
            "input": [
                { "type": "message", "role": "user", "content": [
                    { "type": "input_text", "text": "two" },
                    { "type": "input_text", "text": " \n" },
                    { "type": "input_image", "image_url": "data:image/png;base64,AAAA" },
                    { "type": "input_file", "filename": "three", "file_data": "AAAA" },
                ]},
                { "type": "function_call", "call_id": "c", "name": "four", "arguments": "five" },
                { "type": "function_call_output", "call_id": "c", "output": "six" },
                { "type": "shell_call_output", "output": [{ "stdout": "seven", "a/b~c": "eight" }] },
            ],
            "tools": [{ "type": "function", "name": "f", "description": "nine",
                "parameters": { "properties": { "x": { "type": "string", "description": "ten" } } } }],
        });
        let texts = read(request.to_string().as_bytes()).unwrap();
        let words: Vec<&str> = texts.iter().map(|text| text.text.as_str()).collect();
        assert_eq!(words, ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]);
        for text in &texts {
            assert_eq!(request.pointer(&text.pointer), Some(&json!(text.text)), "{}", text.pointer);
        }
        assert_eq!(texts[1].pointer, "/input/0/content/0/text");
    }

    #[test]
    fn bytes_that_are_no_request_are_told_from_empty_ones() {
        assert_eq!(read(b"{}"), Some(Vec::new()));
        assert_eq!(read(b"{\"input\":7}"), None);
        assert_eq!(read(b"\xff"), None);
    }
}
