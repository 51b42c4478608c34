//! How long a request body takes to parse and check.

use cofferdam_engine::request::ResponsesRequest;
use divan::Bencher;
use divan::counter::BytesCount;

const SHORT: &str = r#"{"model":"openai/gpt-4.1-mini","input":"Say hello.","stream":true,"store":false}"#;

fn main() {
    divan::main();
}

#[divan::bench]
fn short(bencher: Bencher<'_, '_>) {
    parse(bencher, SHORT);
}

#[divan::bench]
fn one_kilobyte(bencher: Bencher<'_, '_>) {
    parse(bencher, &turns(4));
}

#[divan::bench]
fn agent_of_100_kilobytes(bencher: Bencher<'_, '_>) {
    parse(bencher, &agent());
}

fn parse(bencher: Bencher<'_, '_>, body: &str) {
    bencher.counter(BytesCount::of_str(body)).bench(|| ResponsesRequest::parse(body.as_bytes(), &[]).is_ok());
}

/// A conversation with a tool, as the official clients send it.
fn turns(count: usize) -> String {
    let turn = r#"{"role":"user","content":[{"type":"input_text","text":"What is the weather in Paris today?\nBe brief."}]},{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"It is 21 degrees.","annotations":[]}]}"#;
    let turns = vec![turn; count.div_ceil(2)].join(",");
    let tool = r#"{"type":"function","name":"get_weather","description":"Current weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]},"strict":true}"#;
    format!(
        r#"{{"model":"openai/gpt-4.1","instructions":"You are a helpful assistant.","input":[{turns}],"tools":[{tool}],"temperature":0.7,"stream":true,"max_output_tokens":512,"metadata":{{"app":"demo"}}}}"#
    )
}

/// A long coding session: many tools, long texts full of escapes.
fn agent() -> String {
    let output = "fn main() {\\n    println!(\\\"{}\\\", 1 + 1);\\n}\\n".repeat(40);
    let pair = format!(
        r#"{{"type":"function_call","call_id":"call_1","name":"shell","arguments":"{{\"command\":[\"cat\",\"a.rs\"]}}"}},{{"type":"function_call_output","call_id":"call_1","output":"{output}"}}"#
    );
    let tool = r#"{"type":"function","name":"tool","description":"Does one thing and does it well, says its author.","parameters":{"type":"object","properties":{"a":{"type":"string","description":"first"},"b":{"type":"integer"}},"required":["a"]},"strict":false}"#;
    format!(
        r#"{{"model":"openai/gpt-5-codex","input":[{}],"tools":[{}],"stream":true,"store":false}}"#,
        vec![pair; 45].join(","),
        vec![tool; 30].join(",")
    )
}
