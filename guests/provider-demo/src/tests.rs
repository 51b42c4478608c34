//! Tests of whole requests and their answers.

mod documents;
mod vectors;

use cofferdam_guest_kit::bindings::dialect::Target;
use cofferdam_guest_kit::bindings::generation::{Event, FinishReason, Guest, Prepared};
use cofferdam_guest_kit::bindings::types::{CallContext, Usage};
use serde_json::{Value, json};

use super::Demo;

fn context() -> CallContext {
    CallContext { request_id: "resp_1".into(), workspace: "w".into(), now_ms: 0 }
}

fn target(model: &str) -> Target {
    Target {
        model: model.into(),
        max_output: 0,
        supports: Vec::new(),
        tier: "default".into(),
        options: b"{}".to_vec(),
    }
}

fn events(request: &Value) -> Vec<Event> {
    let json = request.to_string().into_bytes();
    match Demo::prepare(json, target("demo"), context()).expect("a prepared answer") {
        Prepared::Answer(events) => events,
        Prepared::Upstream(_) => panic!("there is no upstream"),
    }
}

/// An answer assembled from events, as the host does it.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    text: String,
    reasoning: String,
    summary: String,
    /// Name and arguments or input.
    calls: Vec<(String, String)>,
    finish: String,
    pieces: usize,
    usage: (u64, u64, u64),
}

fn answer(request: &Value) -> Answer {
    let mut answer = Answer::default();
    for event in events(request) {
        match event {
            Event::TextDelta(delta) => {
                answer.pieces += 1;
                answer.text.push_str(&delta.text);
            }
            Event::ReasoningTextDelta(text) => answer.reasoning.push_str(&text),
            Event::ReasoningSummaryDelta(delta) => answer.summary.push_str(&delta.text),
            Event::FunctionCallStart(start) | Event::CustomCallStart(start) => {
                assert_eq!(start.key as usize, answer.calls.len());
                answer.calls.push((start.name, String::new()));
            }
            Event::FunctionArgumentsDelta(delta) | Event::CustomInputDelta(delta) => {
                answer.calls[delta.key as usize].1.push_str(&delta.text);
            }
            Event::Usage(Usage { input_tokens, output_tokens, reasoning_tokens, .. }) => {
                answer.usage = (input_tokens, output_tokens, reasoning_tokens);
            }
            Event::Finish(finish) => {
                answer.finish = match finish.reason {
                    FinishReason::Stop => "stop",
                    FinishReason::Length => "length",
                    FinishReason::ToolCalls => "tool-calls",
                    _ => "other",
                }
                .into();
            }
            Event::CallEnd(_) | Event::ReasoningSeal(_) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
    answer
}

fn user(text: &str) -> Value {
    json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] })
}

fn request(text: &str, more: Value) -> Value {
    let mut request = json!({ "model": "local/demo", "stream": true, "input": [user(text)] });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn function(name: &str, description: &str, properties: Value, required: Value) -> Value {
    let parameters = json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    json!({ "type": "function", "name": name, "description": description, "parameters": parameters, "strict": true })
}

fn weather() -> Value {
    let unit = json!({ "type": "string", "enum": ["celsius", "fahrenheit"] });
    let properties = json!({ "city": { "type": "string" }, "unit": unit });
    function("get_weather", "The current weather of a place", properties, json!(["city"]))
}

fn add() -> Value {
    let number = json!({ "type": "number" });
    function("add_numbers", "Adds two numbers", json!({ "a": number, "b": number }), json!(["a", "b"]))
}

fn calls(text: &str, more: Value) -> Vec<(String, String)> {
    answer(&request(text, more)).calls
}

fn call(name: &str, arguments: &str) -> (String, String) {
    (name.to_owned(), arguments.to_owned())
}

#[test]
fn text_names_the_model_and_quotes_the_message() {
    let answer = answer(&request("Hello there, friend!", json!({ "instructions": "Be brief." })));
    for part in ["demonstration model", "not an AI", "Hello there, friend!", "Be brief."] {
        assert!(answer.text.contains(part), "{} lacks {part}", answer.text);
    }
    assert_eq!((answer.finish.as_str(), answer.calls.len()), ("stop", 0));
    assert!(answer.pieces > 10, "{} pieces", answer.pieces);
    assert_eq!(answer.usage.0, 5 + 3, "words and marks of message and instructions");
    assert!(answer.usage.1 > 20 && answer.usage.2 == 0, "{:?}", answer.usage);
}

#[test]
fn the_same_request_has_the_same_answer_streamed_or_not() {
    let streamed = request("Say \"a  b\"\nplease", json!({}));
    let whole = request("Say \"a  b\"\nplease", json!({ "stream": false }));
    assert_eq!(answer(&streamed), answer(&streamed));
    assert_eq!((answer(&streamed).text, answer(&whole).pieces), (answer(&whole).text, 1));
}

#[test]
fn earlier_messages_and_instructions_are_quoted_separately() {
    let mut request = request("x", json!({}));
    request["input"] = json!([
        { "type": "message", "role": "system", "content": [{ "type": "input_text", "text": "Speak Dutch." }] },
        user("I am Ada."),
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Fine." }] },
        { "type": "message", "role": "user", "content": [
            { "type": "input_text", "text": "Who am I?" },
            { "type": "input_image", "image_url": "data:image/png;base64,AA" }] },
        { "type": "reasoning", "id": "rs_1", "summary": [] },
    ]);
    let text = answer(&request).text;
    for part in ["“Who am I?”", "“I am Ada.”", "“Speak Dutch.”", "With it came: image."] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    request["input"] = json!([]);
    assert!(answer(&request).text.contains("You said nothing."));
}

#[test]
fn the_output_limit_cuts_and_says_length() {
    for limit in [1, 5, 16] {
        let cut = answer(&request("Hello there", json!({ "max_output_tokens": limit })));
        assert_eq!((cut.finish.as_str(), cut.usage.1), ("length", limit));
        assert!(answer(&request("Hello there", json!({}))).text.starts_with(&cut.text));
    }
    let roomy = answer(&request("Hello there", json!({ "max_output_tokens": 1000 })));
    assert_eq!(roomy.finish, "stop");
    let call = answer(&request("weather in Rome", json!({ "tools": [weather()], "max_output_tokens": 3 })));
    assert_eq!((call.finish.as_str(), call.calls.len()), ("length", 1));
}

#[test]
fn the_best_function_is_called_with_arguments_from_the_message() {
    let tools = json!({ "tools": [weather(), add()] });
    let cases = [
        ("What's the weather in New York?", vec![call("get_weather", r#"{"city":"New York"}"#)]),
        (
            "weather for \"st. ives\" in Celsius",
            vec![call("get_weather", r#"{"city":"st. ives","unit":"celsius"}"#)],
        ),
        ("please tell me the weather in paris", vec![call("get_weather", r#"{"city":"paris"}"#)]),
        ("Add 2 and 3.5", vec![call("add_numbers", r#"{"a":2,"b":3.5}"#)]),
        ("Use add_numbers", vec![call("add_numbers", r#"{"a":0,"b":0}"#)]),
        ("Tell me a joke", vec![]),
        ("", vec![]),
    ];
    for (text, expected) in cases {
        assert_eq!(calls(text, tools.clone()), expected, "{text}");
    }
}

#[test]
fn several_functions_are_called_when_clearly_asked_for() {
    let time =
        function("get_time", "The time of a place", json!({ "city": { "type": "string" } }), json!(["city"]));
    let tools = json!([weather(), time]);
    let both = [call("get_weather", r#"{"city":"Paris"}"#), call("get_time", r#"{"city":"Tokyo"}"#)];
    let text = "What is the weather in Paris and the time in Tokyo?";
    assert_eq!(calls(text, json!({ "tools": tools })), both);
    assert_eq!(calls(text, json!({ "tools": tools, "parallel_tool_calls": false })), both[..1]);
    let twice = [call("get_weather", r#"{"city":"Paris"}"#), call("get_weather", r#"{"city":"New York"}"#)];
    assert_eq!(calls("What is the weather in Paris and New York?", json!({ "tools": tools })), twice);
    assert_eq!(calls("Get the weather in Paris and tell me about it", json!({ "tools": tools })).len(), 1);
}

#[test]
fn the_tool_choice_is_obeyed() {
    let cases = [
        (json!("none"), "weather in Rome", None),
        (json!("auto"), "Hello", None),
        (json!("required"), "Hello", Some("get_weather")),
        (json!("required"), "add 1 and 2", Some("add_numbers")),
        (json!({ "type": "function", "name": "add_numbers" }), "weather in Rome", Some("add_numbers")),
        (
            json!({ "type": "allowed_tools", "mode": "auto", "tools": [{ "type": "function", "name": "add_numbers" }] }),
            "weather in Rome",
            None,
        ),
        (
            json!({ "type": "allowed_tools", "mode": "required", "tools": [{ "type": "function", "name": "add_numbers" }] }),
            "weather in Rome",
            Some("add_numbers"),
        ),
    ];
    for (choice, text, expected) in cases {
        let calls = calls(text, json!({ "tools": [weather(), add()], "tool_choice": choice }));
        assert_eq!(calls.first().map(|(name, _)| name.as_str()), expected, "{choice} {text}");
    }
}

/// The request that sends back the results of the calls for `text`.
fn answered(text: &str, results: &[(&str, &str)], more: Value) -> Value {
    let mut request = request(text, more);
    let items = request["input"].as_array_mut().unwrap();
    for (index, (name, output)) in results.iter().enumerate() {
        let id = format!("call_{index}");
        items.push(json!({ "type": "function_call", "call_id": id, "name": name, "arguments": "{}" }));
        items.push(json!({ "type": "function_call_output", "call_id": id, "output": output }));
    }
    request
}

#[test]
fn a_result_ends_the_turn_and_is_quoted() {
    for choice in [json!("auto"), json!("required"), json!({ "type": "function", "name": "get_weather" })] {
        let more = json!({ "tools": [weather()], "tool_choice": choice });
        let answer = answer(&answered("weather in Rome", &[("get_weather", "{\"sky\":\"clear\"}")], more));
        assert_eq!((answer.finish.as_str(), answer.calls.len()), ("stop", 0), "{choice}");
        assert!(answer.text.contains("get_weather answered: {\"sky\":\"clear\"}"), "{}", answer.text);
    }
}

#[test]
fn without_parallel_calls_one_follows_the_other() {
    let more = json!({ "tools": [weather(), add()], "parallel_tool_calls": false });
    let text = "Get the weather in Rome and add 1 to 2";
    let second = answer(&answered(text, &[("get_weather", "fine")], more.clone()));
    assert_eq!(second.calls, [call("add_numbers", r#"{"a":1,"b":2}"#)]);
    let last = answer(&answered(text, &[("get_weather", "fine"), ("add_numbers", "3")], more));
    assert_eq!((last.calls.len(), last.finish.as_str()), (0, "stop"));
}

#[test]
fn a_new_question_after_a_result_is_a_new_turn() {
    let mut request =
        answered("weather in Rome", &[("get_weather", "fine")], json!({ "tools": [weather()] }));
    request["input"].as_array_mut().unwrap().push(user("and the weather in Oslo?"));
    assert_eq!(answer(&request).calls, [call("get_weather", r#"{"city":"Oslo"}"#)]);
}

#[test]
fn custom_tools_and_namespaces_are_called() {
    let custom = json!({ "type": "custom", "name": "run_code", "description": "Runs code" });
    assert_eq!(calls("run `1+1`", json!({ "tools": [custom] })), [call("run_code", "1+1")]);
    let namespace = json!({ "type": "namespace", "name": "sky", "description": "d", "tools": [weather()] });
    let events = events(&request("weather in Rome", json!({ "tools": [namespace] })));
    let start = events.iter().find_map(|event| match event {
        Event::FunctionCallStart(start) => Some((start.name.as_str(), start.namespace.as_deref())),
        _ => None,
    });
    assert_eq!(start, Some(("get_weather", Some("sky"))));
}

#[test]
fn calls_have_ids_of_their_own_and_end() {
    let events = events(&request("weather in Paris and London", json!({ "tools": [weather()] })));
    let ids: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::FunctionCallStart(start) => Some(start.call_id.as_str()),
            _ => None,
        })
        .collect();
    assert!(ids.len() == 2 && ids[0] != ids[1] && ids[0].starts_with("call_"), "{ids:?}");
    assert_eq!(events.iter().filter(|event| matches!(event, Event::CallEnd(_))).count(), 2);
}

#[test]
fn reasoning_comes_when_asked_for() {
    let cases = [
        (json!({ "effort": "high" }), true, false),
        (json!({ "effort": "low", "summary": "auto" }), false, true),
        (json!({ "summary": "detailed" }), false, true),
        (json!({ "effort": "none", "summary": "auto" }), false, false),
        (json!({ "enabled": true }), true, false),
        (json!({ "enabled": false, "effort": "high" }), false, false),
        (json!({}), false, false),
    ];
    for (settings, text, summary) in cases {
        let answer = answer(&request("Hi", json!({ "reasoning": settings })));
        assert_eq!((!answer.reasoning.is_empty(), !answer.summary.is_empty()), (text, summary), "{settings}");
        assert_eq!(answer.usage.2 > 0, text || summary, "{settings}");
        assert!(answer.usage.1 > answer.usage.2 && answer.text.contains("“Hi”"));
    }
}

#[test]
fn sealed_reasoning_and_probabilities_come_when_included() {
    let more = json!({ "reasoning": { "effort": "low" }, "include": ["reasoning.encrypted_content", "message.output_text.logprobs"] });
    let events = events(&request("Hi", more));
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::ReasoningSeal(seal) if seal.encrypted_content.is_some()))
    );
    let probabilities = events.iter().find_map(|event| match event {
        Event::TextDelta(delta) => Some(serde_json::from_slice::<Value>(&delta.logprobs).unwrap()),
        _ => None,
    });
    assert_eq!(probabilities.unwrap()[0]["token"], "I");
}

#[test]
fn malformed_requests_are_failures() {
    for json in ["", "[]", "{", "{\"input\":7}"] {
        assert!(
            Demo::prepare(json.as_bytes().to_vec(), target("demo"), context()).is_err() || json == "[]",
            "{json}"
        );
    }
}

#[test]
fn a_brief_answer_leaves_out_earlier_messages() {
    let ask = |verbosity: &str| {
        let message = |text: &str| json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        answer(&json!({
            "model": "local/demo", "stream": false, "instructions": "Be kind.", "text": {"verbosity": verbosity},
            "input": [message("First."), message("Last.")],
        }))
        .text
    };
    assert!(ask("medium").contains("First.") && ask("medium").contains("Be kind."), "{}", ask("medium"));
    assert!(!ask("low").contains("First.") && !ask("low").contains("Be kind."), "{}", ask("low"));
    assert!(ask("low").contains("“Last.”"), "{}", ask("low"));
}
