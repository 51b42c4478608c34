use cofferdam_guest_kit::bindings::dialect::Target;
use proptest::prelude::{any, proptest};

use super::prepare;
use crate::seal::seal;

fn target() -> Target {
    Target {
        model: "up-1".into(),
        max_output: 0,
        supports: Vec::new(),
        tier: "default".into(),
        options: b"{}".to_vec(),
    }
}

fn sent_to(target: &Target, request: &str) -> String {
    let upstream = prepare(request.as_bytes(), target).unwrap();
    assert_eq!((&*upstream.path, upstream.headers.len()), ("responses", 0));
    String::from_utf8(upstream.body).unwrap()
}

fn sent(request: &str) -> String {
    sent_to(&target(), request)
}

/// The input items as they are sent upstream.
fn items(items: &str) -> String {
    let body = sent(&format!(r#"{{"model":"m","stream":false,"input":[{items}]}}"#));
    let input = body.strip_prefix(r#"{"model":"up-1","input":["#).unwrap();
    input.strip_suffix(r#"],"stream":false,"store":false}"#).unwrap().to_owned()
}

#[test]
fn the_smallest_request_gains_nothing() {
    let request = r#"{"model":"openai/x","stream":true,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]}"#;
    let expected = r#"{"model":"up-1","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],"stream":true,"store":false}"#;
    assert_eq!(sent(request), expected);
}

#[test]
fn every_field_of_the_dialect_goes_upstream_and_no_other() {
    let request = r#"{"model":"m","stream":false,"input":[],"instructions":"be\nkind","max_output_tokens":100,
        "temperature":0.50,"top_p":1,"top_k":4,"frequency_penalty":1,"presence_penalty":2,"top_logprobs":3,"parallel_tool_calls":false,
        "include":["reasoning.encrypted_content"],"service_tier":"fast","prompt_cache_key":"k","prompt_cache_options":{"mode":"explicit"},
        "cache_control":{"type":"ephemeral"},"safety_identifier":"s","user":"u","metadata":{"a":"b"},"truncation":"auto",
        "modalities":["text"],"image_config":{},"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true,"x":1},"verbosity":"max"},
        "reasoning":{"effort":"max","summary":"auto","max_tokens":9,"enabled":true},"other":1,"tool_choice":"required",
        "tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":false,"defer_loading":true,"cache_control":{}}]}"#;
    let expected = r#"{"model":"up-1","input":[],"instructions":"be\nkind","stream":false,"store":false,"max_output_tokens":100,"temperature":0.50,"top_p":1,"top_logprobs":3,"parallel_tool_calls":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","prompt_cache_options":{"mode":"explicit"},"safety_identifier":"s","user":"u","metadata":{"a":"b"},"truncation":"auto","tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":false}],"tool_choice":"required","text":{"format":{"type":"json_schema","name":"n","description":null,"schema":{"type":"object"},"strict":true},"verbosity":"high"},"reasoning":{"effort":"max","summary":"auto"},"service_tier":"default"}"#;
    assert_eq!(sent(request), expected.replace(r#""description":null,"#, ""));
}

#[test]
fn the_endpoint_limits_and_extends() {
    let request = r#"{"model":"m","stream":false,"input":[],"max_output_tokens":5000,"top_k":4,"presence_penalty":0.5}"#;
    let wide = Target { max_output: 1000, supports: vec!["top_k".into()], tier: "flex".into(), ..target() };
    let expected = r#"{"model":"up-1","input":[],"stream":false,"store":false,"max_output_tokens":1000,"top_k":4,"service_tier":"flex"}"#;
    assert_eq!(sent_to(&wide, request), expected);
}

#[test]
fn reasoning_is_switched_off_by_effort() {
    let body = |reasoning: &str| sent(&format!(r#"{{"input":[],"reasoning":{reasoning}}}"#));
    assert!(body(r#"{"enabled":false}"#).ends_with(r#","reasoning":{"effort":"none"}}"#));
    assert!(body(r#"{"effort":"high","enabled":false}"#).ends_with(r#"{"effort":"none"}}"#));
    assert!(body(r#"{"enabled":null,"effort":null}"#).ends_with(r#""store":false}"#));
}

#[test]
fn a_switch_and_a_budget_become_an_effort() {
    let body = |fields: &str| sent(&format!(r#"{{"input":[],{fields}}}"#));
    for (fields, reasoning) in [
        (r#""reasoning":{"enabled":true}"#, r#"{"effort":"medium"}"#),
        (r#""reasoning":{"max_tokens":100},"max_output_tokens":1000"#, r#"{"effort":"low"}"#),
        (
            r#""reasoning":{"max_tokens":900,"summary":"auto"},"max_output_tokens":1000"#,
            r#"{"effort":"high","summary":"auto"}"#,
        ),
        (
            r#""reasoning":{"effort":"minimal","context":"all_turns","mode":"pro"}"#,
            r#"{"effort":"minimal","context":"all_turns","mode":"pro"}"#,
        ),
    ] {
        let body = body(fields);
        assert!(body.ends_with(&format!(r#""reasoning":{reasoning}}}"#)), "{fields}: {body}");
    }
    let narrow = Target { max_output: 1000, ..target() };
    let body = sent_to(&narrow, r#"{"input":[],"reasoning":{"max_tokens":500}}"#);
    assert!(body.ends_with(r#""reasoning":{"effort":"medium"}}"#), "{body}");
}

#[test]
fn breakpoints_of_every_kind_of_part_are_sent() {
    let mark = r#""prompt_cache_breakpoint":{"mode":"explicit","ttl":"30m"}"#;
    let parts = format!(
        r#"{{"type":"input_text","text":"t",{mark}}},{{"type":"input_image","image_url":"u",{mark}}},{{"type":"input_file","file_id":"f",{mark}}}"#
    );
    let item = format!(r#"{{"type":"message","role":"user","content":[{parts}]}}"#);
    assert_eq!(items(&item), item);
}

#[test]
fn client_tools_are_sent() {
    let tools = r#"{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"x"}},{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"g","parameters":null}]},{"type":"apply_patch"},{"type":"local_shell"},{"type":"shell"},{"type":"computer_use_preview","display_width":1,"display_height":2,"environment":"browser"},{"type":"web_search","search_context_size":"low"}"#;
    let request = format!(
        r#"{{"input":[],"tools":[{tools}],"tool_choice":{{"type":"allowed_tools","mode":"auto","tools":[{{"type":"function","name":"g"}}],"x":1}}}}"#
    );
    let expected = format!(
        r#""tools":[{}],"tool_choice":{{"type":"allowed_tools","mode":"auto","tools":[{{"type":"function","name":"g"}}]}}}}"#,
        tools.replace(r#","parameters":null"#, "")
    );
    assert!(sent(&request).ends_with(&expected), "{}", sent(&request));
}

#[test]
fn unsupported_tools_and_parts_are_named() {
    let cases = [
        (r#"{"input":[],"tools":[{"type":"service:web_search"}]}"#, "tools[0].type: "),
        (
            r#"{"input":[],"tools":[{"type":"namespace","name":"a","tools":[{"type":"namespace","name":"b"}]}]}"#,
            "tools[0].tools[0].type: ",
        ),
        (
            r#"{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":""},{"type":"input_video","video_url":"v"}]}]}"#,
            "input[0].content[1].type: ",
        ),
    ];
    for (request, path) in cases {
        let failure = prepare(request.as_bytes(), &target()).unwrap_err();
        assert!(failure.message.starts_with(path), "{}", failure.message);
    }
}

#[test]
fn items_lose_foreign_ids_and_extensions() {
    let cases = [
        (
            r#"{"type":"message","id":"msg_1","role":"assistant","status":"completed","phase":"final_answer","content":[{"type":"output_text","text":"a","annotations":[{"type":"url_citation","content":"x"}],"logprobs":[]},{"type":"refusal","refusal":"no"}],"model":"m"}"#,
            r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]},{"type":"refusal","refusal":"no"}],"phase":"final_answer","status":"completed"}"#,
        ),
        (
            r#"{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto","cache_control":{}},{"type":"input_file","filename":"a","file_data":"d"},{"type":"input_audio","input_audio":{"data":"d","format":"wav"}}]}"#,
            r#"{"type":"message","role":"user","content":[{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,AA=="},{"type":"input_file","filename":"a","file_data":"d"},{"type":"input_audio","input_audio":{"data":"d","format":"wav"}}]}"#,
        ),
        (
            r#"{"type":"function_call","id":"fc_9","call_id":"c","name":"f","arguments":"{}","status":"completed","namespace":"n"}"#,
            r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}","namespace":"n","status":"completed"}"#,
        ),
        (
            r#"{"type":"function_call_output","id":"x","call_id":"c","output":[{"type":"input_text","text":"t","y":1}]}"#,
            r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"t"}]}"#,
        ),
        (
            r#"{"type":"custom_tool_call_output","call_id":"c","output":"o"}"#,
            r#"{"type":"custom_tool_call_output","call_id":"c","output":"o"}"#,
        ),
        (
            r#"{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"},"x":1}"#,
            r#"{"type":"web_search_call","id":"ws_1","action":{"type":"search"},"status":"completed"}"#,
        ),
        (r#"{"type":"web_search_call","id":"foreign","status":"completed","action":{"type":"search"}}"#, ""),
        (r#"{"type":"file_search_call","id":"fs_é","queries":[]}"#, ""),
        (r#"{"type":"service:datetime","id":"x","datetime":"now"}"#, ""),
        (r#"{"type":"item_reference","id":"rs_1"}"#, ""),
        (
            r#"{"type":"shell_call_output","call_id":"c","output":[{"stdout":"","stderr":"","outcome":{"type":"exit","exit_code":0}}]}"#,
            r#"{"type":"shell_call_output","call_id":"c","output":[{"stdout":"","stderr":"","outcome":{"type":"exit","exit_code":0}}]}"#,
        ),
        (r#"{"type":"agent_message","id":"a","z":1,"y":2}"#, r#"{"type":"agent_message","z":1,"y":2}"#),
    ];
    for (item, expected) in cases {
        assert_eq!(items(item), expected);
    }
}

#[test]
fn outputs_that_were_not_asked_for_stay_null() {
    let ran = r#"{"type":"code_interpreter_call","id":"ci_1","code":"1","container_id":"c""#;
    let expected = format!(r#"{ran},"outputs":null,"status":"completed"}}"#);
    assert_eq!(items(&format!(r#"{ran},"status":"completed"}}"#)), expected);
}

#[test]
fn only_reasoning_that_upstream_sealed_goes_back() {
    let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
    let sealed = seal("rs_68af", "gAAA.B==");
    let own = format!(
        r#"{{"type":"reasoning","id":"rs_ours","summary":[{{"type":"summary_text","text":"s"}}],"content":null,"encrypted_content":"{sealed}","format":"openai-responses-v1","signature":null}}"#
    );
    let restored = r#"{"type":"reasoning","id":"rs_68af","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"gAAA.B=="}"#;
    assert_eq!(items(&format!("{own},{call}")), format!("{restored},{call}"));
    for foreign in [
        r#"{"type":"reasoning","id":"rs_1","summary":[]}"#,
        r#"{"type":"reasoning","id":"rs_1","summary":null,"encrypted_content":"gAAAAB"}"#,
        r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"anthropic-claude-v1.abc.def","signature":"s"}"#,
    ] {
        assert_eq!(items(&format!("{foreign},{call}")), call);
    }
}

#[test]
fn reasoning_without_output_is_dropped() {
    let own = format!(
        r#"{{"type":"reasoning","id":"r","summary":[],"encrypted_content":"{}"}}"#,
        seal("rs_1", "p")
    );
    let user = r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}"#;
    assert_eq!(items(&own), "");
    assert_eq!(items(&format!("{own},{user}")), user);
    assert_eq!(items(&format!(r#"{own},{{"type":"service:datetime"}},{user}"#)), user);
}

proptest! {
    #[test]
    fn any_request_is_translated_or_refused(bytes in any::<Vec<u8>>(), json in "[\\[\\]{}\",:a-c0-9]{0,40}", kind in 0..5usize) {
        let _ = prepare(&bytes, &target());
        let field = ["input", "tools", "text", "reasoning", "tool_choice"][kind];
        let _ = prepare(format!("{{\"{field}\":{json}}}").as_bytes(), &target());
        let _ = prepare(format!("{{\"{field}\":[{{\"type\":\"message\",\"content\":{json}}}]}}").as_bytes(), &target());
    }

    #[test]
    fn the_upstream_body_is_json(text in any::<String>(), name in any::<String>()) {
        let request = serde_json::json!({"model": "m", "input": [{"type": "agent_message", "role": "user", name: text}]});
        let body = sent(&request.to_string());
        assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok());
    }
}

#[test]
fn provider_options_override_translated_fields() {
    let options = br#"{"seed":7,"top_p":0.2}"#;
    let target = Target { options: options.to_vec(), ..target() };
    let expected = r#"{"model":"up-1","input":[],"stream":false,"store":false,"top_p":0.2,"seed":7}"#;
    assert_eq!(sent_to(&target, r#"{"model":"m","stream":false,"input":[],"top_p":1}"#), expected);
}

#[test]
fn members_of_functions_and_hosted_tools_go_as_they_are() {
    let tools = r#"[{"type":"function","name":"f","parameters":{},"strict":null,"defer_loading":true,"allowed_callers":["direct"],"x":[1]},
        {"type":"web_search","engine":"native","external_web_access":false,"search_content_types":["text"]},
        {"type":"mcp","server_label":"l","server_url":"u","allowed_callers":["c"]},{"type":"custom","name":"c","x":1}]"#;
    let body = sent(&format!(r#"{{"model":"m","input":[],"tools":{tools}}}"#));
    let expected = r#""tools":[{"type":"function","name":"f","parameters":{},"allowed_callers":["direct"],"x":[1]},{"type":"web_search","external_web_access":false,"search_content_types":["text"]},{"type":"mcp","server_label":"l","server_url":"u","allowed_callers":["c"]},{"type":"custom","name":"c"}]"#;
    assert!(body.contains(expected), "{body}");
}

#[test]
fn tools_stay_deferred_where_a_search_may_find_them() {
    let function = r#"{"type":"function","name":"f","defer_loading":true}"#;
    let custom = r#"{"type":"custom","name":"c","defer_loading":true}"#;
    let deferred = format!(
        r#"{function},{custom},{{"type":"namespace","name":"n","tools":[{function},{custom}]}},{{"type":"computer"}},{{"type":"programmatic_tool_calling"}}"#
    );
    let search = r#",{"type":"tool_search","execution":"client","description":"d","parameters":{}}"#;
    let body = |search| sent(&format!(r#"{{"input":[],"tools":[{deferred}{search}]}}"#));
    assert!(body(search).contains(&format!(r#""tools":[{deferred}{search}]"#)), "{}", body(search));
    let loaded = deferred.replace(r#","defer_loading":true"#, "");
    assert!(body("").contains(&format!(r#""tools":[{loaded}]"#)), "{}", body(""));
}

#[test]
fn the_limit_of_calls_goes_with_tools_that_the_server_runs() {
    let body = |tools: &str| sent(&format!(r#"{{"input":[],"max_tool_calls":3,"tools":[{tools}]}}"#));
    let function = r#"{"type":"function","name":"f"}"#;
    assert!(!body(function).contains("max_tool_calls"), "{}", body(function));
    let hosted = body(&format!(r#"{function},{{"type":"web_search"}}"#));
    assert!(hosted.contains(r#","max_tool_calls":3,"tools":["#), "{hosted}");
}
