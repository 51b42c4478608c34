use cofferdam_guest_kit::bindings::dialect::{Target, UpstreamRequest};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use proptest::prelude::{any, proptest};
use serde_json::{Value, json};

use super::translate;

fn target(model: &str) -> Target {
    Target {
        model: model.to_owned(),
        max_output: 0,
        supports: Vec::new(),
        tier: "default".to_owned(),
        options: b"{}".to_vec(),
    }
}

fn user(text: &str) -> Value {
    json!({"type":"message","role":"user","content":[{"type":"input_text","text":text}]})
}

/// A request for "Hi" with these additional fields.
fn request(fields: Value) -> Value {
    let mut request = json!({"model":"anthropic/claude","stream":false,"input":[user("Hi")]});
    let (Some(all), Value::Object(fields)) = (request.as_object_mut(), fields) else { panic!("an object") };
    all.extend(fields);
    request
}

fn upstream(request: &Value, target: &Target) -> Result<UpstreamRequest, Failure> {
    translate(request.to_string().as_bytes(), target).map(|translated| translated.upstream)
}

fn body(request: &Value, target: &Target) -> Value {
    let upstream = upstream(request, target).unwrap_or_else(|failure| panic!("{request}: {failure:?}"));
    serde_json::from_slice(&upstream.body).expect("JSON")
}

/// The fields of the body that the plain request for "Hi" does not have.
fn extra(fields: Value, target: &Target) -> Value {
    let mut body = body(&request(fields), target);
    let all = body.as_object_mut().expect("an object");
    assert_eq!(
        all.remove("messages"),
        Some(json!([{"role":"user","content":[{"type":"text","text":"Hi"}]}]))
    );
    assert_eq!(all.remove("model"), Some(json!(target.model)));
    body
}

#[test]
fn the_smallest_request() {
    let upstream = upstream(&request(json!({})), &target("claude-sonnet-4-5")).expect("a request");
    assert_eq!(upstream.path, "messages");
    assert!(!upstream.streamed);
    assert_eq!(upstream.headers, [("anthropic-version".to_owned(), "2023-06-01".to_owned())]);
    let expected = r#"{"model":"claude-sonnet-4-5","max_tokens":4096,"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}"#;
    assert_eq!(String::from_utf8(upstream.body).expect("UTF-8"), expected);
}

#[test]
fn plain_fields_have_their_counterparts() {
    let cases = [
        (json!({"stream":true}), json!({"max_tokens":4096,"stream":true})),
        (json!({"max_output_tokens":77}), json!({"max_tokens":77})),
        (json!({"instructions":"Be brief"}), json!({"max_tokens":4096,"system":"Be brief"})),
        (json!({"instructions":"  "}), json!({"max_tokens":4096})),
        (
            json!({"temperature":1.7,"top_p":0.5,"top_k":40}),
            json!({"max_tokens":4096,"temperature":1,"top_p":0.5,"top_k":40}),
        ),
        (json!({"temperature":0.0}), json!({"max_tokens":4096,"temperature":0.0})),
        (json!({"stop":"END"}), json!({"max_tokens":4096,"stop_sequences":["END"]})),
        (json!({"stop":["a","\n"]}), json!({"max_tokens":4096,"stop_sequences":["a"]})),
        (json!({"user":"u1"}), json!({"max_tokens":4096,"metadata":{"user_id":"u1"}})),
        (
            json!({"user":"u1","safety_identifier":"s1"}),
            json!({"max_tokens":4096,"metadata":{"user_id":"s1"}}),
        ),
        (json!({"user":"me@example.com"}), json!({"max_tokens":4096})),
        (json!({"service_tier":"default"}), json!({"max_tokens":4096,"service_tier":"standard_only"})),
        (json!({"service_tier":"auto"}), json!({"max_tokens":4096,"service_tier":"auto"})),
        (json!({"service_tier":"flex"}), json!({"max_tokens":4096})),
        (
            json!({"cache_control":{"type":"ephemeral","ttl":"1h"}}),
            json!({"max_tokens":4096,"cache_control":{"type":"ephemeral","ttl":"1h"}}),
        ),
        (
            json!({"metadata":{"k":"v"},"frequency_penalty":1,"top_logprobs":3,"truncation":"auto",
                   "include":["reasoning.encrypted_content"],"prompt_cache_key":"k","text":{"verbosity":"low"}}),
            json!({"max_tokens":4096}),
        ),
    ];
    for (fields, expected) in cases {
        assert_eq!(extra(fields.clone(), &target("house-model")), expected, "{fields}");
    }
}

#[test]
fn the_endpoint_decides_limits_and_tiers() {
    let limited = Target { max_output: 8192, ..target("m") };
    assert_eq!(extra(json!({}), &limited), json!({"max_tokens":8192}));
    assert_eq!(extra(json!({"max_output_tokens":9000}), &limited), json!({"max_tokens":8192}));
    let priority = Target { tier: "priority".to_owned(), ..target("m") };
    assert_eq!(
        extra(json!({"service_tier":"default"}), &priority),
        json!({"max_tokens":4096,"service_tier":"auto"})
    );
    let fast = Target { tier: "ultrafast".to_owned(), ..target("m") };
    assert_eq!(extra(json!({}), &fast), json!({"max_tokens":4096,"speed":"fast"}));
    let headers = upstream(&request(json!({})), &fast).expect("a request").headers;
    assert!(headers.contains(&("anthropic-beta".to_owned(), "fast-mode-2026-02-01".to_owned())));
    let options = Target { options: br#"{"inference_geo":"us"}"#.to_vec(), ..target("m") };
    assert_eq!(extra(json!({}), &options), json!({"max_tokens":4096,"inference_geo":"us"}));
}

#[test]
fn models_get_only_the_sampling_they_take() {
    let fields = json!({"temperature":0.5,"top_p":0.9,"top_k":5});
    assert_eq!(
        extra(fields.clone(), &target("claude-sonnet-4-5")),
        json!({"max_tokens":4096,"temperature":0.5,"top_k":5})
    );
    assert_eq!(
        extra(json!({"top_p":0.9}), &target("claude-sonnet-4-5")),
        json!({"max_tokens":4096,"top_p":0.9})
    );
    assert_eq!(extra(fields, &target("claude-opus-4-7")), json!({"max_tokens":4096}));
}

#[test]
fn thinking_excludes_sampling_and_forced_tools() {
    let tool = json!({"type":"function","name":"f","parameters":null});
    let fields = json!({"reasoning":{"effort":"high"},"max_output_tokens":10000,"temperature":0.2,"top_p":0.3,
        "top_k":4,"tools":[tool],"tool_choice":"required","parallel_tool_calls":false});
    let tools = json!([{"name":"f","input_schema":{"type":"object","properties":{}}}]);
    let choice = json!({"type":"auto","disable_parallel_tool_use":true});
    assert_eq!(
        extra(fields.clone(), &target("claude-sonnet-4-5")),
        json!({"max_tokens":10000,"tools":tools,"tool_choice":choice,
               "thinking":{"type":"enabled","budget_tokens":8000}})
    );
    assert_eq!(
        extra(fields, &target("claude-opus-4-7")),
        json!({"max_tokens":10000,"tools":tools,"tool_choice":choice,"output_config":{"effort":"high"},
               "thinking":{"type":"adaptive","display":"summarized"}})
    );
}

#[test]
fn an_answer_is_continued_only_by_models_that_can() {
    let mut asked = request(json!({"reasoning":{"effort":"low"}}));
    asked["input"] = json!([user("Hi"), {"type":"message","role":"assistant","content":[
        {"type":"output_text","text":"So far "}]}]);
    let old = body(&asked, &target("claude-sonnet-4-5"));
    assert_eq!(old["messages"][1]["content"], json!([{"type":"text","text":"So far"}]));
    assert_eq!(old.get("thinking"), None);
    let new = body(&asked, &target("claude-opus-4-7"));
    assert_eq!(new["messages"][2]["role"], "user");
    assert_eq!(new["thinking"]["type"], "adaptive");
}

#[test]
fn calls_in_the_history_are_covered_by_tools() {
    let mut asked = request(json!({}));
    asked["input"] = json!([user("Hi"), {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"c","output":"r"}]);
    let sent = body(&asked, &target("m"));
    assert_eq!(sent["tools"], json!([{"name":"f","input_schema":{"type":"object","properties":{}}}]));
    assert_eq!(sent["tool_choice"], json!({"type":"none"}));
    asked["tools"] = json!([{"type":"function","name":"g","parameters":{"type":"object"}}]);
    let sent = body(&asked, &target("m"));
    assert_eq!(sent["tools"], json!([{"name":"g","input_schema":{"type":"object"}}]));
    assert_eq!(sent.get("tool_choice"), None);
}

#[test]
fn tools_and_their_choice() {
    let tools = json!([
        {"type":"function","name":"a","description":"Does a","strict":true,
         "parameters":{"type":"object","properties":{"x":{"type":"integer"}}},"cache_control":{"type":"ephemeral"}},
        {"type":"function","name":"b","description":"","parameters":{"properties":{}}},
        {"type":"custom","name":"c"},
        {"type":"web_search_preview"}
    ]);
    let a = json!({"name":"a","description":"Does a",
        "input_schema":{"type":"object","properties":{"x":{"type":"integer"}}},"cache_control":{"type":"ephemeral"}});
    let b = json!({"name":"b","input_schema":{"type":"object","properties":{}}});
    let both = json!([a, b]);
    let cases = [
        (json!({}), both.clone(), Value::Null),
        (json!({"tool_choice":"auto"}), both.clone(), Value::Null),
        (json!({"tool_choice":"none","parallel_tool_calls":false}), both.clone(), json!({"type":"none"})),
        (json!({"tool_choice":"required"}), both.clone(), json!({"type":"any"})),
        (
            json!({"tool_choice":{"type":"function","name":"b"}}),
            both.clone(),
            json!({"type":"tool","name":"b"}),
        ),
        (
            json!({"parallel_tool_calls":false}),
            both.clone(),
            json!({"type":"auto","disable_parallel_tool_use":true}),
        ),
        (
            json!({"tool_choice":{"type":"allowed_tools","mode":"required","tools":[
                {"type":"function","name":"b"},{"type":"function","name":"z"}]},"parallel_tool_calls":false}),
            json!([b]),
            json!({"type":"any","disable_parallel_tool_use":true}),
        ),
        (
            json!({"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"a"}]}}),
            json!([a]),
            Value::Null,
        ),
        (json!({"tool_choice":{"type":"web_search_preview"}}), both, Value::Null),
    ];
    for (mut fields, expected_tools, expected_choice) in cases {
        let shown = fields.to_string();
        fields["tools"] = tools.clone();
        let mut expected = json!({"max_tokens":4096,"tools":expected_tools});
        if !expected_choice.is_null() {
            expected["tool_choice"] = expected_choice;
        }
        assert_eq!(extra(fields, &target("m")), expected, "{shown}");
    }
    let none_left = json!({"tools":tools,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}});
    assert_eq!(extra(none_left, &target("m")), json!({"max_tokens":4096}));
}

#[test]
fn a_choice_of_a_tool_that_is_not_there_is_refused() {
    for choice in [json!({"type":"function","name":"z"}), json!({"type":"custom","name":"c"})] {
        let refused = upstream(&request(json!({"tool_choice":choice})), &target("m")).expect_err("refused");
        assert_eq!(refused.kind, ErrorKind::InvalidRequest);
        assert!(refused.message.starts_with("tool_choice"), "{}", refused.message);
    }
}

#[test]
fn the_output_format_goes_to_structured_outputs() {
    let format = json!({"type":"json_schema","name":"n","strict":true,
        "schema":{"type":"object","properties":{"a":{"type":"string"}}}});
    let schema = json!({"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false});
    assert_eq!(
        extra(json!({"text":{"format":format}}), &target("m")),
        json!({"max_tokens":4096,"output_config":{"format":{"type":"json_schema","schema":schema}}})
    );
    let object =
        extra(json!({"text":{"format":{"type":"json_object"}},"instructions":"Be brief"}), &target("m"));
    assert_eq!(object["system"][0], json!({"type":"text","text":"Be brief"}));
    assert!(object["system"][1]["text"].as_str().is_some_and(|text| text.contains("JSON object")));
}

#[test]
fn cache_marks_of_parts_are_kept_up_to_four() {
    let part =
        |n: usize| json!({"type":"input_text","text":n.to_string(),"cache_control":{"type":"ephemeral"}});
    let parts: Vec<_> = (0..6).map(part).collect();
    let input = json!([{"type":"message","role":"user","content":parts}]);
    let marks = |fields: Value| -> Vec<bool> {
        let mut asked = request(fields);
        asked["input"] = input.clone();
        let sent = body(&asked, &target("m"));
        let blocks = sent["messages"][0]["content"].as_array().expect("blocks").clone();
        blocks.iter().map(|block| block.get("cache_control").is_some()).collect()
    };
    assert_eq!(marks(json!({})), [false, false, true, true, true, true]);
    let automatic = json!({"cache_control":{"type":"ephemeral"}});
    assert_eq!(marks(automatic), [false, false, false, true, true, true]);
}

#[test]
fn explicit_breakpoints_become_cache_marks() {
    let mut asked = request(json!({
        "prompt_cache_options":{"mode":"explicit","ttl":"30m"}, "cache_control":{"type":"ephemeral"}}));
    asked["input"] = json!([
        {"type":"message","role":"system","content":[
            {"type":"input_text","text":"S","prompt_cache_breakpoint":{"mode":"explicit","ttl":"5m"}}]},
        {"type":"message","role":"user","content":[
            {"type":"input_text","text":"A","prompt_cache_breakpoint":{"mode":"explicit"}},
            {"type":"input_text","text":"B","prompt_cache_breakpoint":null}]},
        {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"c","output":[
            {"type":"input_text","text":"R","prompt_cache_breakpoint":{"mode":"explicit"}}]}
    ]);
    let sent = body(&asked, &target("m"));
    assert_eq!(sent.get("cache_control"), None);
    assert_eq!(
        sent["system"],
        json!([
        {"type":"text","text":"S","cache_control":{"type":"ephemeral","ttl":"5m"}}])
    );
    let mark = json!({"type":"ephemeral","ttl":"1h"});
    assert_eq!(
        sent["messages"][0]["content"],
        json!([
        {"type":"text","text":"A","cache_control":mark},{"type":"text","text":"B"}])
    );
    assert_eq!(sent["messages"][2]["content"][0]["content"][0]["cache_control"], mark);
}

#[test]
fn the_cache_mode_is_translated() {
    let ephemeral = json!({"type":"ephemeral"});
    let long = json!({"type":"ephemeral","ttl":"1h"});
    let cases = [
        (json!({"prompt_cache_options":{"mode":"implicit"}}), Some(&ephemeral)),
        (json!({"prompt_cache_options":{"mode":"implicit","ttl":"12h"}}), Some(&long)),
        (json!({"prompt_cache_options":{"mode":"implicit"},"cache_control":long}), Some(&long)),
        (json!({"prompt_cache_options":{"mode":"explicit"},"cache_control":long}), None),
        (json!({"prompt_cache_options":{"ttl":"30m"}}), None),
        (json!({"prompt_cache_key":"k"}), None),
    ];
    for (fields, expected) in cases {
        assert_eq!(body(&request(fields.clone()), &target("m")).get("cache_control"), expected, "{fields}");
    }
    // A breakpoint is a mark in every mode, and takes precedence over `cache_control`.
    let mut asked = request(json!({}));
    asked["input"][0]["content"][0]["prompt_cache_breakpoint"] = json!({"mode":"explicit","ttl":"30m"});
    asked["input"][0]["content"][0]["cache_control"] = ephemeral.clone();
    let sent = body(&asked, &target("m"));
    assert_eq!(sent["messages"][0]["content"][0]["cache_control"], long);
}

#[test]
fn summaries_are_remembered_for_the_answer() {
    let summaries = |fields: Value| {
        let request = request(fields).to_string();
        translate(request.as_bytes(), &target("m")).expect("a request").summaries
    };
    assert!(summaries(json!({"reasoning":{"effort":"low","summary":"auto"}})));
    assert!(!summaries(json!({"reasoning":{"effort":"low"}})));
    assert!(!summaries(json!({})));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_without_panic(bytes in any::<Vec<u8>>()) {
        assert!(translate(&bytes, &target("m")).is_err());
    }

    #[test]
    fn arbitrary_text_and_options_never_panic(
        text in any::<String>(), arguments in any::<String>(), url in any::<String>(), options in any::<Vec<u8>>(),
    ) {
        let mut asked = request(json!({}));
        asked["input"] = json!([
            user(&text),
            {"type":"function_call","call_id":text,"name":text,"arguments":arguments},
            {"type":"function_call_output","call_id":text,"output":arguments},
            {"type":"message","role":"user","content":[{"type":"input_file","file_data":url,"filename":text}]},
            {"type":"message","role":"user","content":[{"type":"input_image","image_url":url}]}
        ]);
        let target = Target { options, ..target(&text) };
        if let Ok(upstream) = upstream(&asked, &target) {
            assert!(serde_json::from_slice::<Value>(&upstream.body).is_ok());
        }
    }
}
