use cofferdam_guest_kit::bindings::dialect::Target;
use proptest::prelude::{any, proptest};

mod results;

use super::prepare;
use crate::thought::Thought;

fn target(supports: &[&str]) -> Target {
    Target {
        model: "up-1".into(),
        max_output: 0,
        supports: supports.iter().map(|ability| (*ability).to_owned()).collect(),
        tier: "default".into(),
        options: b"{}".to_vec(),
    }
}

fn sent_to(target: &Target, request: &str) -> String {
    let upstream = prepare(request.as_bytes(), target).unwrap();
    assert_eq!((&*upstream.path, upstream.headers.len()), ("chat/completions", 0));
    String::from_utf8(upstream.body).unwrap()
}

fn messages_with(supports: &[&str], items: &str) -> String {
    let body = sent_to(&target(supports), &format!(r#"{{"model":"m","stream":false,"input":[{items}]}}"#));
    let messages = body.strip_prefix(r#"{"model":"up-1","messages":["#).unwrap();
    messages.strip_suffix(r#"],"stream":false}"#).unwrap().to_owned()
}

fn messages(items: &str) -> String {
    messages_with(&[], items)
}

fn text(role: &str, text: &str) -> String {
    format!(r#"{{"type":"message","role":"{role}","content":[{{"type":"input_text","text":"{text}"}}]}}"#)
}

#[test]
fn the_smallest_request_gains_only_the_usage_option() {
    let request = format!(r#"{{"model":"m","stream":true,"input":[{}]}}"#, text("user", "hi"));
    let expected = r#"{"model":"up-1","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#;
    assert_eq!(sent_to(&target(&[]), &request), expected);
}

const EVERYTHING: &str = r#"{"model":"m","stream":false,"input":[],"instructions":"be\nkind","max_output_tokens":100,
    "temperature":0.5,"top_p":1,"top_k":4,"frequency_penalty":1,"presence_penalty":2,"top_logprobs":3,"parallel_tool_calls":false,
    "include":["reasoning.encrypted_content"],"service_tier":"priority","prompt_cache_key":"k","prompt_cache_options":{"mode":"explicit"},
    "cache_control":{"type":"ephemeral"},"safety_identifier":"s","user":"u","metadata":{"a":"b"},"truncation":"auto",
    "modalities":["text","image"],"image_config":{},"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true},"verbosity":"low"},
    "reasoning":{"effort":"high","summary":"auto"},"tool_choice":"required",
    "tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":false},{"type":"function","name":"g"}]}"#;

#[test]
fn a_plain_server_gets_common_fields_only() {
    let expected = r#"{"model":"up-1","messages":[{"role":"system","content":"be\nkind"}],"stream":false,"max_tokens":100,"temperature":0.5,"top_p":1,"frequency_penalty":1,"presence_penalty":2,"logprobs":true,"top_logprobs":3,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":false}},{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}],"tool_choice":"required","parallel_tool_calls":false,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}},"reasoning_effort":"high","verbosity":"low","service_tier":"default","user":"u"}"#;
    assert_eq!(sent_to(&target(&[]), EVERYTHING), expected);
}

#[test]
fn an_endpoint_gets_the_fields_it_supports() {
    let able = Target {
        max_output: 50,
        tier: "priority".into(),
        ..target(&["max_completion_tokens", "top_k", "prompt_cache_key", "safety_identifier", "image_output"])
    };
    let body = sent_to(&able, EVERYTHING);
    for part in [
        r#""max_completion_tokens":50,"#,
        r#""top_k":4,"#,
        r#""service_tier":"priority","#,
        r#""prompt_cache_key":"k","safety_identifier":"s","modalities":["text","image"]}"#,
    ] {
        assert!(body.contains(part), "{part} in {body}");
    }
    assert!(!body.contains("max_tokens"));
}

#[test]
fn unsupported_settings_become_the_nearest_supported_ones() {
    let body = |fields: &str| sent_to(&target(&[]), &format!(r#"{{"stream":false,"input":[],{fields}}}"#));
    let cases = [
        (r#""reasoning":{"enabled":true}"#, r#""reasoning_effort":"medium"}"#),
        (r#""reasoning":{"effort":"high","enabled":false}"#, r#""reasoning_effort":"none"}"#),
        (r#""reasoning":{"max_tokens":9},"max_output_tokens":10"#, r#""reasoning_effort":"high"}"#),
        (r#""reasoning":{"summary":"auto"}"#, r#""stream":false}"#),
        (r#""text":{"verbosity":"max"}"#, r#""verbosity":"high"}"#),
        (r#""text":{"verbosity":"medium"}"#, r#""verbosity":"medium"}"#),
    ];
    for (fields, end) in cases {
        let body = body(fields);
        assert!(body.ends_with(end), "{fields}: {body}");
    }
    let pictures = sent_to(
        &target(&["image_output"]),
        r#"{"stream":false,"input":[],"modalities":["image"],"image_config":{"aspect_ratio":"1:1"}}"#,
    );
    assert!(
        pictures.ends_with(r#""modalities":["image"],"image_config":{"aspect_ratio":"1:1"}}"#),
        "{pictures}"
    );
}

const MARKED: &str = r#"{"stream":false,"prompt_cache_options":{"mode":"explicit"},"input":[
    {"type":"message","role":"system","content":[{"type":"input_text","text":"S","cache_control":{"type":"ephemeral"}},{"type":"input_text","text":"T"}]},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"A","prompt_cache_breakpoint":{"mode":"explicit"}}]},
    {"type":"message","role":"user","content":[{"type":"input_image","image_url":"u","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}"#;

#[test]
fn marks_for_caches_go_to_servers_that_take_them() {
    let plain = sent_to(&target(&[]), MARKED);
    let expected = r#"{"model":"up-1","messages":[{"role":"system","content":"ST"},{"role":"user","content":"A"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}],"stream":false}"#;
    assert_eq!(plain, expected);
    let controls = sent_to(&target(&["cache_control"]), MARKED);
    let expected = r#"{"model":"up-1","messages":[{"role":"system","content":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}},{"type":"text","text":"T"}]},{"role":"user","content":"A"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"},"cache_control":{"type":"ephemeral","ttl":"1h"}}]}],"stream":false}"#;
    assert_eq!(controls, expected);
    let breakpoints = sent_to(&target(&["prompt_cache_options"]), MARKED);
    let expected = r#"{"model":"up-1","messages":[{"role":"system","content":"ST"},{"role":"user","content":[{"type":"text","text":"A","prompt_cache_breakpoint":{"mode":"explicit"}}]},{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}],"stream":false,"prompt_cache_options":{"mode":"explicit"}}"#;
    assert_eq!(breakpoints, expected);
}

/// DeepSeek and Moonshot refuse calls whose reasoning is missing. All other servers refuse
/// reasoning that they did not write. Other clients have many bug reports about both.
#[test]
fn reasoning_goes_back_with_the_calls_it_led_to_and_only_to_its_model() {
    let sealed = |model: &str| {
        let thought = Thought { text: Some("So.".into()), extra: None };
        let seal = crate::thought::seal(model, thought).encrypted_content.unwrap();
        serde_json::json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": seal})
            .to_string()
    };
    let call = |id: &str| {
        format!(
            r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":"{{}}"}},{{"type":"function_call_output","call_id":"{id}","output":"r"}}"#
        )
    };
    let called = |id: &str, thought: &str| {
        format!(
            r#"{{"role":"assistant","content":null{thought},"tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}},{{"role":"tool","content":"r","tool_call_id":"{id}"}}"#
        )
    };
    let with = r#","reasoning_content":"So.""#;
    let own = sealed("up-1");
    assert_eq!(messages(&format!("{own},{}", call("a"))), called("a", with));
    let both = format!("{own},{},{}", call("a"), call("b"));
    assert_eq!(
        messages(&both),
        format!("{},{}", called("a", with), called("b", r#","reasoning_content":"""#))
    );
    // Reasoning of another model, without a seal, or without a call is not sent.
    assert_eq!(messages(&format!("{},{}", sealed("up-2"), call("a"))), called("a", ""));
    let plain = r#"{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"So."}]}"#;
    assert_eq!(messages(&format!("{plain},{}", call("a"))), called("a", ""));
    let spoken = format!("{own},{},{},{}", text("assistant", "A"), text("user", "B"), call("a"));
    let said = r#"{"role":"assistant","content":"A"},{"role":"user","content":"B"}"#;
    assert_eq!(messages(&spoken), format!("{said},{}", called("a", "")));
}

/// Google signs only the first of several parallel calls, and refuses it without the signature.
#[test]
fn a_signature_goes_back_with_its_call() {
    let signature = r#"{"google":{"thought_signature":"c2ln"}}"#;
    let extra = serde_json::from_str(signature).unwrap();
    let seal = crate::thought::seal("up-1", Thought { text: None, extra: Some(extra) });
    let seal =
        serde_json::json!({"type": "reasoning", "summary": [], "encrypted_content": seal.encrypted_content});
    let call =
        |id: &str| format!(r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":"{{}}"}}"#);
    let made = |id: &str, extra: &str| {
        format!(r#"{{"id":"{id}","type":"function","function":{{"name":"f","arguments":"{{}}"}}{extra}}}"#)
    };
    let signed = made("a", &format!(r#","extra_content":{signature}"#));
    let sent = messages(&format!("{seal},{},{}", call("a"), call("b")));
    let calls =
        format!(r#"{{"role":"assistant","content":null,"tool_calls":[{signed},{}]}},"#, made("b", ""));
    assert!(sent.starts_with(&calls), "{sent}");
}

#[test]
fn a_mark_of_the_request_is_put_on_the_last_block() {
    let items = format!("{},{},{}", text("system", "S"), text("user", "A"), text("assistant", "B"));
    let request = |items: &str| {
        format!(r#"{{"stream":false,"cache_control":{{"type":"ephemeral"}},"input":[{items}]}}"#)
    };
    let marked = sent_to(&target(&["cache_control"]), &request(&items));
    let expected = r#"{"model":"up-1","messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"A","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":"B"}],"stream":false}"#;
    assert_eq!(marked, expected);
    assert!(!sent_to(&target(&[]), &request(&items)).contains("cache_control"));
    assert!(!sent_to(&target(&["cache_control"]), &request("")).contains("cache_control"));
}

#[test]
fn settings_that_need_others_stay_behind_without_them() {
    let body = |fields: &str| sent_to(&target(&[]), &format!(r#"{{"stream":false,"input":[],{fields}}}"#));
    let nothing = r#"{"model":"up-1","messages":[],"stream":false}"#;
    assert_eq!(body(r#""tool_choice":"auto","parallel_tool_calls":true,"tools":[]"#), nothing);
    assert_eq!(body(r#""text":{"format":{"type":"text"}},"top_logprobs":0,"image_config":{}"#), nothing);
    assert!(body(r#""reasoning":{"enabled":false}"#).ends_with(r#","reasoning_effort":"none"}"#));
    assert!(
        body(r#""text":{"format":{"type":"json_object"}}"#)
            .ends_with(r#","response_format":{"type":"json_object"}}"#)
    );
    assert!(body(r#""include":["message.output_text.logprobs"]"#).ends_with(r#","logprobs":true}"#));
}

#[test]
fn choices_are_translated() {
    let tools = r#""tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]"#;
    let function = |name: &str| {
        format!(
            r#"{{"type":"function","function":{{"name":"{name}","parameters":{{"type":"object","properties":{{}}}}}}}}"#
        )
    };
    let both = format!("{},{}", function("f"), function("g"));
    let cases = [
        (r#""none""#, &*both, r#""none""#),
        (r#"{"type":"function","name":"g"}"#, &both, r#"{"type":"function","function":{"name":"g"}}"#),
        (
            r#"{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]}"#,
            &function("g"),
            r#""required""#,
        ),
        (
            r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"},{"type":"shell"}]}"#,
            &function("f"),
            r#""auto""#,
        ),
    ];
    for (choice, tools_expected, choice_expected) in cases {
        let request = format!(r#"{{"stream":false,"input":[],{tools},"tool_choice":{choice}}}"#);
        let expected = format!(r#""tools":[{tools_expected}],"tool_choice":{choice_expected}}}"#);
        assert!(sent_to(&target(&[]), &request).ends_with(&expected), "{choice}");
    }
}

#[test]
fn custom_tools_go_where_they_are_supported() {
    let request = r#"{"stream":false,"input":[],"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"x"}}],"tool_choice":{"type":"custom","name":"c"}}"#;
    let expected = r#""tools":[{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}}}],"tool_choice":{"type":"custom","custom":{"name":"c"}}}"#;
    assert!(sent_to(&target(&["custom_tools"]), request).ends_with(expected));
    assert!(prepare(request.as_bytes(), &target(&[])).is_err());
    let call = r#"{"type":"custom_tool_call","call_id":"c1","name":"c","input":"a\"b"},{"type":"custom_tool_call_output","call_id":"c1","output":"r"}"#;
    assert_eq!(
        messages_with(&["custom_tools"], call),
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"c","input":"a\"b"}}]},{"role":"tool","content":"r","tool_call_id":"c1"}"#
    );
    assert_eq!(
        messages(call),
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"c","arguments":"{\"input\":\"a\\\"b\"}"}}]},{"role":"tool","content":"r","tool_call_id":"c1"}"#
    );
}

#[test]
fn one_turn_of_the_model_is_one_message() {
    let items = [
        &*text("user", "q"),
        r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}"#,
        r#"{"type":"message","role":"assistant","id":"msg_1","content":[{"type":"output_text","text":"Let me "},{"type":"output_text","text":"look."}]}"#,
        r#"{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{\"x\":1}"}"#,
        r#"{"type":"reasoning","id":"rs_2","summary":[]}"#,
        r#"{"type":"function_call","call_id":"b","name":"g","arguments":""}"#,
        r#"{"type":"function_call_output","call_id":"a","output":"1"}"#,
        r#"{"type":"function_call_output","call_id":"b","output":[{"type":"input_text","text":"2"},{"type":"input_image","image_url":"u"}]}"#,
        r#"{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"No."}]}"#,
    ];
    let expected = [
        r#"{"role":"user","content":"q"}"#,
        r#"{"role":"assistant","content":"Let me look.","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}"#,
        r#"{"role":"tool","content":"1","tool_call_id":"a"}"#,
        r#"{"role":"tool","content":"2\n[A result that is not text was left out: this model takes only text from tools.]","tool_call_id":"b"}"#,
        r#"{"role":"assistant","content":"No."}"#,
    ];
    assert_eq!(messages(&items.join(",")), expected.join(","));
}

#[test]
fn system_messages_at_the_start_are_one() {
    let request = format!(
        r#"{{"stream":false,"instructions":"a","input":[{},{},{},{}]}}"#,
        text("developer", "b"),
        text("system", "c"),
        text("user", "d"),
        text("developer", "e")
    );
    let expected = r#"{"model":"up-1","messages":[{"role":"system","content":"a\n\nb\n\nc"},{"role":"user","content":"d"},{"role":"system","content":"e"}],"stream":false}"#;
    assert_eq!(sent_to(&target(&[]), &request), expected);
}

#[test]
fn parts_are_translated() {
    let message = |parts: &str| format!(r#"{{"type":"message","role":"user","content":[{parts}]}}"#);
    let parts = r#"{"type":"input_text","text":"t","cache_control":{}},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"original"},{"type":"input_image","image_url":"https://u","detail":"low"},{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="},{"type":"input_file","file_id":"file_1"},{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}},{"type":"input_video","video_url":"https://v"}"#;
    let expected = r#"{"role":"user","content":[{"type":"text","text":"t"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},{"type":"image_url","image_url":{"url":"https://u","detail":"low"}},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="}},{"type":"file","file":{"file_id":"file_1"}},{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}},{"type":"video_url","video_url":{"url":"https://v"}}]}"#;
    assert_eq!(messages(&message(parts)), expected);
    for part in [
        r#"{"type":"input_image","file_id":"file_1"}"#,
        r#"{"type":"input_file","file_url":"https://f"}"#,
        r#"{"type":"hologram"}"#,
    ] {
        let request =
            format!(r#"{{"input":[{}]}}"#, message(&format!(r#"{{"type":"input_text","text":"t"}},{part}"#)));
        let failure = prepare(request.as_bytes(), &target(&[])).unwrap_err();
        assert!(failure.message.starts_with("input[0].content[1]: "), "{}", failure.message);
    }
}

#[test]
fn a_message_of_nothing_is_empty_text() {
    let nothing = r#"{"type":"message","role":"user","content":[]}"#;
    assert_eq!(messages(nothing), r#"{"role":"user","content":""}"#);
}

#[test]
fn tools_of_other_dialects_become_functions_in_the_history() {
    let items = [
        r#"{"type":"shell_call","id":"sh_1","call_id":"a","action":{"commands":["ls"]}}"#,
        r#"{"type":"shell_call_output","call_id":"a","output":[{"stdout":"x"}]}"#,
        r#"{"type":"apply_patch_call","call_id":"b","operation":{"type":"delete_file"}}"#,
        r#"{"type":"apply_patch_call_output","call_id":"b","status":"completed","output":"done"}"#,
        r#"{"type":"web_search_call","id":"ws_1","action":{}}"#,
        r#"{"type":"service:datetime","id":"x","datetime":"now"}"#,
    ];
    let expected = [
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"shell","arguments":"{\"commands\":[\"ls\"]}"}}]}"#,
        r#"{"role":"tool","content":"[{\"stdout\":\"x\"}]","tool_call_id":"a"}"#,
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"b","type":"function","function":{"name":"apply_patch","arguments":"{\"type\":\"delete_file\"}"}}]}"#,
        r#"{"role":"tool","content":"done","tool_call_id":"b"}"#,
    ];
    assert_eq!(messages(&items.join(",")), expected.join(","));
}

#[test]
fn tools_the_dialect_lacks_are_named() {
    for (tools, path) in [
        (r#"{"type":"function","name":"f"},{"type":"web_search"}"#, "tools[1].type: "),
        (r#"{"type":"namespace","name":"n","tools":[]}"#, "tools[0].type: "),
    ] {
        let request = format!(r#"{{"input":[],"tools":[{tools}]}}"#);
        let failure = prepare(request.as_bytes(), &target(&[])).unwrap_err();
        assert!(failure.message.starts_with(path), "{}", failure.message);
    }
}

proptest! {
    #[test]
    fn any_request_is_translated_or_refused(bytes in any::<Vec<u8>>(), json in "[\\[\\]{}\",:a-c0-9]{0,40}", kind in 0..5usize) {
        let _ = prepare(&bytes, &target(&[]));
        let field = ["input", "tools", "text", "reasoning", "tool_choice"][kind];
        let _ = prepare(format!("{{\"{field}\":{json}}}").as_bytes(), &target(&[]));
        let item = format!("{{\"input\":[{{\"type\":\"message\",\"role\":\"user\",\"content\":{json}}}]}}");
        let _ = prepare(item.as_bytes(), &target(&[]));
    }

    #[test]
    fn the_upstream_body_is_json(text in any::<String>()) {
        let request = serde_json::json!({"instructions": text, "input": [
            {"type": "function_call", "call_id": text, "name": text, "arguments": text},
            {"type": "function_call_output", "call_id": text, "output": text}]});
        let body = sent_to(&target(&[]), &request.to_string());
        assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok());
    }
}

#[test]
fn provider_options_override_translated_fields() {
    let options = br#"{"min_p":0.1,"temperature":0.2}"#;
    let target = Target { options: options.to_vec(), ..target(&[]) };
    let request =
        format!(r#"{{"model":"m","stream":false,"temperature":1,"input":[{}]}}"#, text("user", "hi"));
    let expected = r#"{"model":"up-1","messages":[{"role":"user","content":"hi"}],"stream":false,"temperature":0.2,"min_p":0.1}"#;
    assert_eq!(sent_to(&target, &request), expected);
}
