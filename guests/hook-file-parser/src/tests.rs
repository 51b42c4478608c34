//! Tests of requests before and after the hook.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_guest_kit::bindings::hooks::Action;
use cofferdam_guest_kit::bindings::types::ErrorKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::handled;
use super::settings::Operator;

const PAPER: &[u8] = include_bytes!("../../pdf/fixtures/paper.pdf");
const TEXT: &str = "<file name=\"paper.pdf\" title=\"A paper\">\n\
    Hello from a page\nwith final words \u{2014} and\na third line.\n</file>";

fn paper() -> String {
    format!("data:application/pdf;base64,{}", STANDARD.encode(PAPER))
}

fn request(parts: Value) -> Value {
    json!({
        "model": "a/b",
        "instructions": "stay",
        "input": [
            { "type": "message", "role": "user", "content": parts },
            { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
        ],
        "temperature": 0.50,
    })
}

fn run(request: &Value, entry: &Value, chars_max: usize) -> Result<Option<Value>, String> {
    let result =
        handled(request.to_string().as_bytes(), entry.to_string().as_bytes(), &Operator { chars_max });
    match result {
        Ok(Action::Pass) => Ok(None),
        Ok(Action::Replace(json)) => Ok(Some(serde_json::from_slice(&json).unwrap())),
        Err(failure) => {
            assert!(matches!(failure.kind, ErrorKind::InvalidRequest));
            Err(failure.message)
        }
        Ok(Action::Reject(_)) => panic!("rejected"),
    }
}

fn parsed(parts: Value) -> Result<Option<Value>, String> {
    let before = request(parts);
    let after = run(&before, &json!({ "id": "file-parser" }), 1000)?;
    Ok(after.map(|mut after| {
        let parts = after["input"][0]["content"].take();
        after["input"][0]["content"] = before["input"][0]["content"].clone();
        assert_eq!(after, before, "more than the parts changed");
        parts
    }))
}

#[test]
fn a_pdf_becomes_text_under_its_name_and_the_rest_stays() {
    let parts = json!([
        { "type": "input_text", "text": "Sum this up: {\"type\":\"input_file\"}" },
        { "type": "input_file", "filename": "paper.pdf", "file_data": paper() },
        { "type": "input_image", "image_url": "https://example.com/a.png" },
        { "type": "input_file", "filename": "a.csv", "file_data": "data:text/csv;base64,YSxi" },
        { "type": "input_file", "file_id": "file_1" },
        { "filename": "paper.pdf", "cache_control": { "type": "ephemeral" },
          "prompt_cache_breakpoint": { "mode": "explicit" }, "file_data": STANDARD.encode(PAPER), "type": "input_file" },
    ]);
    let mut expected = parts.clone();
    expected[1] = json!({ "type": "input_text", "text": TEXT });
    expected[5] = json!({ "type": "input_text", "text": TEXT, "cache_control": { "type": "ephemeral" },
        "prompt_cache_breakpoint": { "mode": "explicit" } });
    assert_eq!(parsed(parts), Ok(Some(expected)));
}

#[test]
fn files_in_the_output_of_a_call_are_read_too() {
    let mut request = request(json!([]));
    request["input"][1] = json!({ "type": "function_call_output", "call_id": "c", "output": [
        { "type": "input_file", "filename": "paper.pdf", "file_data": paper() } ] });
    let after = run(&request, &json!({}), 1000).unwrap().unwrap();
    assert_eq!(after["input"][1]["output"][0], json!({ "type": "input_text", "text": TEXT }));
}

#[test]
fn requests_without_a_pdf_pass() {
    assert_eq!(parsed(json!([{ "type": "input_text", "text": "x" }])), Ok(None));
    assert_eq!(parsed(json!([])), Ok(None));
    let with_file = request(json!([{ "type": "input_file", "filename": "paper.pdf", "file_data": paper() }]));
    assert_eq!(run(&with_file, &json!({ "pdf": { "engine": "native" } }), 1000), Ok(None));
    let error = run(&with_file, &json!({ "pdf": { "engine": "mistral-ocr" } }), 1000).unwrap_err();
    assert!(
        error.starts_with("file-parser.pdf.engine \"mistral-ocr\" is not available on this host"),
        "{error}"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let text = json!({ "type": "input_text", "text": "x" });
    let file = |data: &str| json!([text, { "type": "input_file", "filename": "a.pdf", "file_data": data }]);
    let cases = [
        (file("%"), "input[0].content[1].file_data is said to be a PDF and is not valid base64"),
        (
            file(&STANDARD.encode(b"%PDF-1.7\n")),
            "input[0].content[1].file_data: The PDF is damaged and cannot be read.",
        ),
        (
            json!([{ "type": "input_file", "file_url": "https://example.com/a.pdf" }]),
            "input[0].content[0].file_url is not fetched by file-parser: send the file as file_data, or set pdf.engine to native",
        ),
        (
            json!(vec![json!({ "type": "input_file", "filename": "paper.pdf", "file_data": paper() }); 33]),
            "input[0].content[32] is one PDF file more than 32",
        ),
    ];
    for (parts, expected) in cases {
        assert_eq!(parsed(parts), Err(expected.to_owned()));
    }
}

#[test]
fn all_files_share_one_limit_of_text() {
    let file = json!({ "type": "input_file", "filename": "p", "file_data": paper() });
    let after = run(&request(json!([file, file])), &json!({}), 5).unwrap().unwrap();
    let text = |place: usize| after["input"][0]["content"][place]["text"].as_str().unwrap();
    let rest = "[The rest of this file was left out because it is too long.]\n</file>";
    assert_eq!(text(0), format!("<file name=\"p\" title=\"A paper\">\nHello\n{rest}"));
    assert_eq!(text(1), format!("<file name=\"p\">\n\n{rest}"));
}

proptest! {
    #[test]
    fn no_bytes_break_the_hook(bytes in proptest::collection::vec(any::<u8>(), 0..300), name in "\\PC{0,10}(\\.pdf)?") {
        drop(handled(&bytes, b"{}", &Operator { chars_max: 100 }));
        let mut document = b"%PDF-1.7\n".to_vec();
        document.extend_from_slice(&bytes);
        for data in [STANDARD.encode(&bytes), STANDARD.encode(&document), String::from_utf8_lossy(&bytes).into_owned()] {
            drop(parsed(json!([{ "type": "input_file", "filename": name, "file_data": data }])));
        }
    }

    #[test]
    fn the_result_is_json_that_the_host_accepts(parts in proptest::collection::vec("\\PC{0,20}", 0..4), escape in any::<bool>()) {
        let mut list: Vec<Value> = parts.iter().map(|text| json!({ "type": "input_text", "text": text })).collect();
        list.push(json!({ "type": "input_file", "filename": "paper.pdf", "file_data": paper() }));
        let mut before = request(Value::Array(list.clone())).to_string();
        if escape {
            before = before.replace("input_file", "input\\u005ffile").replace("A", "\\u0041");
        }
        let Ok(Action::Replace(after)) = handled(before.as_bytes(), b"{}", &Operator { chars_max: 1000 }) else { panic!() };
        prop_assert!(after.len() <= before.len() * 2 + (1 << 20));
        let after: Value = serde_json::from_slice(&after).unwrap();
        let expected = json!({ "type": "input_text", "text": TEXT });
        prop_assert_eq!(after["input"][0]["content"].as_array().unwrap().last(), Some(&expected));
    }
}
