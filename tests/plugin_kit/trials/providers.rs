//! Cases of providers: recorded answers and streams, however they are cut.

use super::{project, report};

const STREAM: &str = r#"data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"Good "}}]}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"morning ☀"}}]}

data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}

data: [DONE]

"#;

const CHAT_CASE: &str = r#"
[[case]]
name = "a stream"
request = { model = "m", input = [{ type = "message", role = "user", content = [{ type = "input_text", text = "Hello" }] }], stream = true }
target = { model = "there" }
upstream = "streams/answer.sse"
[case.expect]
path = "chat/completions"
streamed = true
body = { model = "there", messages = [{ role = "user" }] }
items = [{ type = "message", content = [{ type = "output_text" }] }]
text = "Good morning ☀"
usage = { input_tokens = 3, output_tokens = 4 }
finish = "stop"
"#;

#[test]
fn a_provider_reads_recorded_streams_however_they_arrive() {
    let cases = [
        CHAT_CASE,
        r#"
[[case]]
name = "one body"
request = { model = "m", input = [] }
answer = { json = { choices = [{ message = { role = "assistant", content = "Hi" }, finish_reason = "length" }] } }
expect = { text = "Hi", finish = "length", streamed = false }

[[case]]
name = "an error"
request = { model = "m", input = [] }
answer = { status = 429, headers = { retry-after = "2" }, json = { error = { message = "slow down" } } }
expect = { failure = { kind = "rate_limit_exceeded", retry_after_ms = 2000 } }

[[case]]
name = "embeddings"
embeddings = { model = "m", input = ["a"] }
answer = { json = { data = [{ index = 0, embedding = [0.5, -1] }], usage = { prompt_tokens = 2, total_tokens = 2 } } }
expect = { path = "embeddings", vectors = [[0.5, -1]], usage = { prompt_tokens = 2 } }
"#,
    ]
    .concat();
    let workshop = project("plugins", "provider-openai-chat", &cases);
    std::fs::write(workshop.path("provider-openai-chat/cases/streams/answer.sse"), STREAM).unwrap();
    let tested = report(&workshop, "provider-openai-chat");
    assert_eq!(tested["failed"], 0, "{tested}");
    let checks: Vec<&str> =
        tested["suite"].as_array().unwrap().iter().map(|check| check["check"].as_str().unwrap()).collect();
    assert!(checks.ends_with(&["answers cut anywhere", "answers split anywhere"]), "{checks:?}");
}

#[test]
fn a_stream_without_its_end_is_a_failure() {
    let workshop = project("plugins", "provider-openai-chat", CHAT_CASE);
    let cut = &STREAM[..STREAM.find("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},").unwrap()];
    std::fs::write(workshop.path("provider-openai-chat/cases/streams/answer.sse"), cut).unwrap();
    let tested = report(&workshop, "provider-openai-chat");
    let problem = tested["cases"][0]["problems"][0].as_str().unwrap();
    assert!(problem.starts_with("it failed: {\"kind\":\"provider_unavailable\""), "{tested}");
}

#[test]
fn answers_to_a_short_request_are_cut_and_split_too() {
    let parts =
        "[{ type = \"message\", role = \"user\", content = [{ type = \"input_text\", text = \"Hello\" }] }]";
    let (long, rest) = CHAT_CASE.split_once(parts).unwrap();
    let case = [long, "\"Hello\"", rest].concat();
    let workshop = project("plugins", "provider-openai-chat", &case);
    std::fs::write(workshop.path("provider-openai-chat/cases/streams/answer.sse"), STREAM).unwrap();
    let tested = report(&workshop, "provider-openai-chat");
    assert_eq!(tested["failed"], 0, "{tested}");
}

#[test]
fn an_answer_to_a_request_that_is_not_written_is_told() {
    let case = CHAT_CASE.replace("input = [{ type", "input = 5, tools = [{ type");
    let workshop = project("plugins", "provider-openai-chat", &case);
    std::fs::write(workshop.path("provider-openai-chat/cases/streams/answer.sse"), STREAM).unwrap();
    let tested = report(&workshop, "provider-openai-chat");
    let told = "`prepare` writes no request of whose answer this could be";
    assert!(tested["suite"].to_string().contains(told), "{tested}");
}
