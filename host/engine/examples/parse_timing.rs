//! Prints how long a request body takes to parse, check and write for guests.
//!
//! Run it with `cargo run --release -p cofferdam-engine --example parse_timing`. Nothing is
//! asserted: the numbers are for a person who compares two revisions on one machine.
#![expect(clippy::print_stdout, reason = "printing is all this example does")]

use cofferdam_engine::request::ResponsesRequest;
use std::hint::black_box;
use std::time::Instant;

const SHORT: &str = r#"{"model":"openai/gpt-4.1-mini","input":"Say hello.","stream":true,"store":false}"#;

fn main() {
    println!("{:<24}{:>10}{:>14}{:>12}", "body", "bytes", "microseconds", "MB/s");
    for (name, body) in [("short", SHORT.to_owned()), ("one KB", turns(4)), ("agent, 100 KB", agent())] {
        let rounds = 20_000_000 / (body.len() + 400);
        let start = Instant::now();
        for _ in 0..rounds {
            let request = ResponsesRequest::parse(black_box(body.as_bytes()), &[]);
            black_box(request.is_ok());
        }
        let micros = start.elapsed().as_secs_f64() * 1e6 / rounds as f64;
        println!("{name:<24}{:>10}{micros:>14.2}{:>12.0}", body.len(), body.len() as f64 / micros);
    }
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
