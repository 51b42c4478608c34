//! Bodies as real clients send them. All must be accepted, and guests receive one form.

use super::{accepted, guest, parse_text};
use serde_json::{Value, json};

fn guest_of(body: &str) -> Value {
    guest(&parse_text(body).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn openai_python() {
    // responses.create with compact JSON, without arguments that were not set.
    let guest =
        guest_of(r#"{"input":"Say hello.","model":"openai/gpt-4.1-mini","stream":true,"store":false}"#);
    assert_eq!(guest["input"][0]["content"][0], json!({"type": "input_text", "text": "Say hello."}));
    // responses.parse with a pydantic model.
    let guest = guest_of(
        r#"{"input":[{"role":"system","content":"Extract."},{"role":"user","content":"Alice, Friday."}],"model":"openai/gpt-4.1","text":{"format":{"type":"json_schema","strict":true,"name":"Event","schema":{"properties":{"name":{"title":"Name","type":"string"}},"required":["name"],"title":"Event","type":"object","additionalProperties":false}}},"tools":[]}"#,
    );
    assert_eq!(guest["text"]["format"]["name"], "Event");
    assert_eq!(guest["tools"], json!([]));
}

#[test]
fn openai_python_replays_its_own_output() {
    // The second turn of `input + response.output`; items are dumped with their nulls.
    let body = r#"{"model":"openai/gpt-5","input":[{"role":"user","content":"Weather?"},{"id":"rs_1","summary":[],"type":"reasoning","content":null,"encrypted_content":"gAAAA","status":null},{"arguments":"{\"city\":\"Paris\"}","call_id":"call_1","name":"get_weather","type":"function_call","id":"fc_1","async_":null,"caller":null,"status":"completed","namespace":null},{"type":"function_call_output","call_id":"call_1","output":"{\"t\":21}"},{"id":"msg_1","content":[{"annotations":[],"text":"21 degrees.","type":"output_text","logprobs":null,"parsed":{"t":21}}],"role":"assistant","status":"completed","type":"message","phase":null},{"role":"user","content":[{"type":"input_text","text":"And tomorrow?"}]}],"include":["reasoning.encrypted_content"],"tools":[{"type":"function","name":"get_weather","description":"Weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false},"strict":true}]}"#;
    let guest = guest_of(body);
    let types: Vec<_> = guest["input"].as_array().unwrap().iter().map(|item| item["type"].clone()).collect();
    assert_eq!(
        types,
        ["message", "reasoning", "function_call", "function_call_output", "message", "message"]
    );
    assert_eq!(guest["input"][4]["content"][0]["logprobs"], Value::Null);
}

#[test]
fn openai_node() {
    let guest = guest_of(
        r#"{"model":"openai/gpt-4.1","instructions":"Talk like a pirate.","input":[{"role":"user","content":[{"type":"input_text","text":"What is in it?"},{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo=","detail":"auto"}]}],"stream":true,"stream_options":{"include_obfuscation":false},"temperature":1,"metadata":{"trace":"1"}}"#,
    );
    assert_eq!(guest["instructions"], "Talk like a pirate.");
    assert!(guest.get("stream_options").is_none());
}

#[test]
fn openai_agents() {
    // Messages without type, an empty include, assistant history as a plain string, no ids.
    let guest = guest_of(
        r#"{"include":[],"input":[{"content":"What time is it?","role":"user"},{"content":"Let me look.","role":"assistant"},{"arguments":"{}","call_id":"call_1","name":"now","type":"function_call","id":"__fake_id__","status":"completed"},{"call_id":"call_1","output":"12:00","type":"function_call_output"}],"instructions":"Be brief.","model":"local/demo","parallel_tool_calls":true,"prompt_cache_key":"agents-1","tools":[{"name":"now","parameters":{"properties":{},"title":"now_args","type":"object","additionalProperties":false,"required":[]},"strict":true,"type":"function","description":"The time."}],"tool_choice":"auto","reasoning":{"effort":null},"text":{"verbosity":null}}"#,
    );
    assert_eq!(guest["input"][1]["content"], json!([{"type": "output_text", "text": "Let me look."}]));
    assert!(guest.get("reasoning").is_none() && guest.get("text").is_none());
}

#[test]
fn codex() {
    let request = parse_text(
        r#"{"model":"openai/gpt-5-codex","instructions":"You are a coding agent.","input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"<permissions/>"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"Fix it."}]},{"type":"reasoning","summary":[{"type":"summary_text","text":"**Looking**"}],"content":null,"encrypted_content":"gAAA"},{"type":"local_shell_call","call_id":"c1","status":"completed","action":{"type":"exec","command":["bash","-lc","ls"],"timeout_ms":1000,"working_directory":null,"env":null,"user":null}},{"type":"function_call_output","call_id":"c1","output":"a.rs\n"},{"type":"custom_tool_call","status":"completed","call_id":"c2","name":"apply_patch","input":"*** Begin Patch"},{"type":"custom_tool_call_output","call_id":"c2","output":"Done"},{"type":"compaction","encrypted_content":"gAAA"}],"tools":[{"type":"function","name":"shell","description":"Runs a command.","strict":false,"parameters":{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"}}},"required":["command"],"additionalProperties":false}},{"type":"custom","name":"apply_patch","description":"Edits files.","format":{"type":"grammar","syntax":"lark","definition":"start: \"x\""}},{"type":"web_search","external_web_access":true},{"type":"namespace","name":"mcp","description":"","tools":[{"type":"function","name":"t","description":"d","strict":false,"parameters":{"type":"object"}}]},{"type":"local_shell"}],"tool_choice":"auto","parallel_tool_calls":false,"reasoning":{"effort":"medium","summary":"auto"},"store":false,"stream":true,"include":["reasoning.encrypted_content"],"prompt_cache_key":"0199","client_metadata":{"x":"y"},"text":{"verbosity":"low"}}"#,
    )
    .unwrap();
    assert_eq!(request.tools.len(), 5);
    assert_eq!(request.tools[3].name.as_deref(), Some("mcp"));
    assert!(guest(&request).get("client_metadata").is_none());
}

#[test]
fn ai_sdk() {
    let request = accepted(&json!({
        "model": "openai/gpt-4o",
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Time?"},
                {"type": "input_file", "filename": "part-1.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Calling."}], "id": "msg_1"},
            {"type": "function_call", "call_id": "call_1", "name": "time", "arguments": "{}", "id": "fc_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": "\"12:00\""},
        ],
        "temperature": 0,
        "max_output_tokens": 100,
        "text": {"format": {"type": "json_object"}},
        "tools": [{"type": "function", "name": "time", "description": "Time",
            "parameters": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}}],
        "tool_choice": {"type": "function", "name": "time"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 5,
        "stream": true,
    }));
    assert_eq!(guest(&request)["input"][2]["type"], "message");
}

#[test]
fn our_own_output_verbatim() {
    let output = json!([
        {"type": "reasoning", "id": "rs_1", "summary": [], "status": "completed"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "incomplete", "content": [
            {"type": "output_text", "text": "Half", "annotations": [], "logprobs": []}]},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AA=="},
    ]);
    assert_eq!(guest(&accepted(&json!({"model": "a/b", "input": output})))["input"], output);
}

#[test]
fn pretty_printed_bodies() {
    let body = json!({"model": "a/b", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]});
    let pretty = parse_text(&serde_json::to_string_pretty(&body).unwrap()).unwrap();
    let compact = parse_text(&body.to_string()).unwrap();
    assert_eq!(pretty.guest_json, compact.guest_json);
    assert_eq!(pretty.echo, compact.echo);
    assert_eq!(pretty.tools, compact.tools);
}
