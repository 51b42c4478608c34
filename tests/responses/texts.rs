//! Texts that providers' plugins read in blocks of many bytes arrive unchanged, wherever a block ends.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::host::Setup;
use crate::kit::script;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

/// Longer than two of the largest blocks.
const LENGTH: usize = 140;

/// Texts of every length, and texts with a character that JSON escapes or that has several bytes at every place.
fn texts() -> Vec<String> {
    let plain = (1..LENGTH).map(|length| "a".repeat(length));
    let marked = ["\"", "\\", "\n", "\u{1}", "ä", "😀", "\u{2028}"].into_iter().flat_map(|mark| {
        (0..LENGTH).map(move |place| format!("{}{mark}{}", "a".repeat(place), "b".repeat(LENGTH - place)))
    });
    plain.chain(marked).collect()
}

#[tokio::test]
async fn texts_with_a_mark_at_every_place_reach_the_provider_and_the_client() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-responses", &upstream.base)).start();
    let client = Client::new(&host);
    let texts = texts();
    let parts: Vec<Value> = texts
        .iter()
        .map(|text| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}))
        .collect();
    let answer = json!([{"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": parts}]);
    upstream.reply(script::response(&answer));
    let input: Vec<Value> = texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
    let answered = client.post("/responses", &json!({"model": MODEL, "input": input})).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    // The parts of a message are one text for the client.
    assert_eq!(answered.output_text(), texts.concat());
    let asked = upstream.asked_once();
    let sent: Vec<&str> = asked.body["input"].as_array().unwrap().iter().map(text_of).collect();
    assert_eq!(sent, texts);
}

/// The text of an item, whether it is sent as a string or as a list of one part.
fn text_of(item: &Value) -> &str {
    let content = &item["content"];
    content.as_str().or_else(|| content[0]["text"].as_str()).unwrap()
}
