//! Conversations before and after compression. Items are written as words, such as `u1` for the first
//! message of the user. Each item repeats its word a hundred times: 50 tokens, and 54 with the
//! structure around it.

use cofferdam_guest_kit::bindings::hooks::Action;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop, proptest};
use proptest::prop_assert;
use serde_json::{Value, json};

use super::count;
use super::handled;

fn message(role: &str, name: &str) -> Value {
    json!({ "role": role, "content": name.repeat(100) })
}

/// Makes an item from a word. `u` and `a` are messages of user and assistant, `s` and `d`
/// instructions, `r` reasoning, `c` and `o` a call and its output. A digit distinguishes the calls.
fn item(word: &str) -> Value {
    let (kind, name) = word.split_at(1);
    match kind {
        "u" => message("user", word),
        "a" => {
            json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": word.repeat(100) }] })
        }
        "s" => message("system", word),
        "d" => message("developer", word),
        "r" => {
            json!({ "type": "reasoning", "id": word, "summary": [{ "type": "summary_text", "text": word.repeat(100) }] })
        }
        "c" => {
            json!({ "type": "function_call", "call_id": name, "name": "", "arguments": word.repeat(100) })
        }
        "o" => json!({ "type": "function_call_output", "call_id": name, "output": word.repeat(100) }),
        _ => {
            json!({ "type": "mcp_approval_request", "id": name, "name": "", "arguments": word.repeat(100) })
        }
    }
}

fn request(conversation: &str) -> Value {
    let items: Vec<Value> = conversation.split_whitespace().map(item).collect();
    json!({ "model": "m", "input": items, "instructions": null, "temperature": 0.5 })
}

/// The words of the conversation after compression to `context_length` tokens.
fn compressed(request: &Value, context_length: u64) -> String {
    let settings = json!({ "context_length": context_length }).to_string();
    let before = request.to_string();
    let after = match handled(before.as_bytes(), settings.as_bytes(), b"{}") {
        Ok(Action::Pass) => request.clone(),
        Ok(Action::Replace(after)) => serde_json::from_slice(&after).unwrap(),
        _ => panic!("rejected"),
    };
    let mut other = after.clone();
    other["input"] = request["input"].clone();
    assert_eq!(&other, request, "more than the input changed");
    let words = after["input"].as_array().unwrap().iter().map(word);
    words.collect::<Vec<_>>().join(" ")
}

fn word(item: &Value) -> String {
    let text = item["content"].as_str().or(item["content"][0]["text"].as_str());
    let text = text.or(item["summary"][0]["text"].as_str()).or(item["arguments"].as_str());
    let text = text.or(item["output"].as_str()).unwrap();
    text[..text.len() / 100].to_owned()
}

#[test]
fn the_middle_goes_first_and_the_ends_stay() {
    let conversation = "u1 a1 u2 a2 u3 a3 u4";
    let cases = [
        (1000, "u1 a1 u2 a2 u3 a3 u4"),
        (7 * 54, "u1 a1 u2 a2 u3 a3 u4"),
        (7 * 54 - 1, "u1 a1 u2 u3 a3 u4"),
        (5 * 54, "u1 a1 u3 a3 u4"),
        (4 * 54, "u1 a1 a3 u4"),
        (3 * 54, "u1 a3 u4"),
        (2 * 54, "u1 u4"),
        // What must stay does stay, even if it does not fit.
        (10, "u1 u4"),
    ];
    for (context_length, expected) in cases {
        assert_eq!(compressed(&request(conversation), context_length), expected, "{context_length}");
    }
}

#[test]
fn instructions_stay_wherever_they_stand() {
    assert_eq!(compressed(&request("s1 d1 u1 a1 s2 u2 a2 d2 u3"), 1), "s1 d1 u1 s2 d2 u3");
    assert_eq!(compressed(&request("s1 u1"), 1), "s1 u1");
    assert_eq!(compressed(&request("a1"), 1), "a1");
    assert_eq!(compressed(&request("a1 a2 a3"), 1), "a1 a3");
}

#[test]
fn calls_and_outputs_are_not_parted() {
    let cases = [
        // The last turn begins with the last user message.
        ("u1 a1 u2 c1 o1 c2 o2", 1, "u1 u2 c1 o1 c2 o2"),
        ("u1 c1 o1 a1 u2", 1, "u1 u2"),
        ("u1 a1 c1 o1 u2", 4 * 54, "u1 c1 o1 u2"),
        // Parallel calls, nested calls, and calls with reasoning before them.
        ("u1 c1 c2 o2 o1 a1 u2", 4 * 54, "u1 a1 u2"),
        ("u1 c1 c2 o1 o2 a1 u2", 4 * 54, "u1 a1 u2"),
        ("u1 r1 c1 o1 a1 u2", 4 * 54, "u1 a1 u2"),
        ("u1 r2 a2 a1 u2", 3 * 54, "u1 a1 u2"),
        // An output after the last user message keeps its call.
        ("u1 a1 c1 u2 o1", 1, "u1 c1 u2 o1"),
    ];
    for (conversation, context_length, expected) in cases {
        assert_eq!(compressed(&request(conversation), context_length), expected, "{conversation}");
    }
}

#[test]
fn tools_and_output_reduce_the_room_for_input() {
    let mut long = request("u1 a1 u2 a2 u3");
    assert_eq!(compressed(&long, 5 * 54), "u1 a1 u2 a2 u3");
    long["max_output_tokens"] = json!(54);
    assert_eq!(compressed(&long, 5 * 54), "u1 a1 a2 u3");
    long["instructions"] = json!("i".repeat(4 * 54));
    assert_eq!(compressed(&long, 5 * 54), "u1 a2 u3");
    long["tools"] =
        json!([{ "type": "function", "name": "f", "parameters": { "description": "x".repeat(200) } }]);
    assert_eq!(compressed(&long, 5 * 54), "u1 u3");
}

#[test]
fn media_do_not_count_as_text() {
    let mut request = request("u1 a1 u2");
    request["input"][1]["content"] = json!([
        { "type": "input_image", "image_url": format!("data:image/png;base64,{}", "A".repeat(9000)) },
        { "type": "output_text", "text": "a1".repeat(100) },
    ]);
    assert_eq!(count::item(&request["input"][1]), 54);
}

#[test]
fn requests_without_need_for_compression_pass() {
    let long = request("u1 a1 u2").to_string();
    for settings in ["{}", r#"{"enabled":false,"context_length":10}"#, r#"{"context_length":0}"#] {
        let verdict = handled(long.as_bytes(), settings.as_bytes(), b"{}");
        assert!(matches!(verdict, Ok(Action::Pass)), "{settings}");
    }
    let text = json!({ "model": "m", "input": "x".repeat(1000) }).to_string();
    for odd in [text.as_str(), "", "[]", r#"{"input":7}"#] {
        assert!(matches!(handled(odd.as_bytes(), br#"{"context_length":10}"#, b"{}"), Ok(Action::Pass)));
    }
    let verdict = handled(long.as_bytes(), b"{}", br#"{"context_length":60}"#);
    assert!(matches!(verdict, Ok(Action::Replace(_))));
    let verdict = handled(long.as_bytes(), br#"{"engine":"zip"}"#, b"{}");
    assert!(matches!(verdict, Err(failure) if failure.message.contains("engine")));
}

fn conversation() -> impl Strategy<Value = Vec<String>> {
    let words = ["u", "a", "s", "r", "c1", "o1", "c2", "o2", "c3", "o3"];
    vec(prop::sample::select(words.to_vec()), 0..14)
        .prop_map(|words| words.into_iter().map(str::to_owned).collect())
}

proptest! {
    #[test]
    fn remaining_items_keep_their_order_and_pairs(words in conversation(), context_length in 1..500_u64) {
        let before = words.join(" ");
        let after = compressed(&request(&before), context_length);
        let mut rest = before.split_whitespace();
        for word in after.split_whitespace() {
            prop_assert!(rest.any(|other| other == word), "{before} became {after}");
        }
        let count = |text: &str, word: &str| text.split_whitespace().filter(|other| *other == word).count();
        for call in 1..=3 {
            let (one, other) = (format!("c{call}"), format!("o{call}"));
            let halves = |text: &str| (count(text, &one), count(text, &other));
            prop_assert!([halves(&before), (0, 0)].contains(&halves(&after)), "{before} became {after}");
        }
        prop_assert!(count(&before, "s") == count(&after, "s"));
    }

    #[test]
    fn any_bytes_are_read_or_refused(request in vec(any::<u8>(), 0..200), settings in vec(any::<u8>(), 0..50)) {
        let _verdict = handled(&request, &settings, &settings);
        let _verdict = handled(&request, br#"{"context_length":1}"#, b"{}");
    }
}
