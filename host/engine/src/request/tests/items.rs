//! Input items: every kind, the normal form, and output that clients send back.

use super::{accepted, body_of_item, body_with, guest, refused};
use serde_json::{Value, json};

fn written(item: &Value) -> Value {
    guest(&accepted(&body_of_item(item)))["input"][0].clone()
}

#[test]
fn messages_are_written_in_normal_form() {
    let table = [
        (
            json!({"role": "user", "content": "Hi"}),
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}),
        ),
        (
            json!({"role": "assistant", "content": "Yes", "phase": "final_answer"}),
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}],
                "phase": "final_answer"}),
        ),
        (
            json!({"type": "message", "role": "system", "content": "S", "id": "msg_1", "status": null}),
            json!({"type": "message", "role": "system", "content": [{"type": "input_text", "text": "S"}],
                "id": "msg_1", "status": null}),
        ),
        (
            json!({"type": null, "role": "developer", "content": null}),
            json!({"type": "message", "role": "developer", "content": []}),
        ),
        (
            json!({"role": "user", "content": [{"type": "input_text", "text": "a"}]}),
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}),
        ),
    ];
    for (item, expected) in table {
        assert_eq!(written(&item), expected, "{item}");
    }
}

#[test]
fn every_content_part_is_accepted() {
    let parts = json!([
        {"type": "input_text", "text": "t", "prompt_cache_breakpoint": {"mode": "explicit"}},
        {"type": "input_text", "text": "t", "cache_control": {"type": "ephemeral"}},
        {"type": "input_image", "image_url": "https://a/b.png"},
        {"type": "input_image", "detail": "original", "file_id": "file_1", "image_url": null},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
        {"type": "input_file", "file_url": "https://a/b.pdf"},
        {"type": "input_file", "file_id": "file_1"},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
        {"type": "input_video", "video_url": "https://a/b.mp4", "processing": {"fps": 1}},
    ]);
    let item = json!({"type": "message", "role": "user", "content": parts});
    assert_eq!(written(&item), item);
    let item = json!({"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [
        {"type": "output_text", "text": "t", "annotations": [{"type": "url_citation", "url": "u"}], "logprobs": []},
        {"type": "output_text", "text": "t", "annotations": null, "logprobs": null},
        {"type": "refusal", "refusal": "no"},
        {"type": "input_text", "text": "t"},
    ]});
    assert_eq!(written(&item), item);
}

/// One item of each kind, with all members.
fn items() -> Vec<Value> {
    let list = json!([
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_1", "status": "completed",
            "namespace": null},
        {"type": "function_call_output", "call_id": "c", "output": "42", "id": null, "status": null},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": "data:,"}, {"type": "input_file", "file_id": "f"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "e", "status": "completed",
            "format": "anthropic-claude-v1", "signature": "sig"},
        {"type": "reasoning", "summary": null, "content": null, "encrypted_content": null},
        {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "o"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed",
            "action": {"type": "search", "query": "q", "sources": [{"type": "url", "url": "u"}]}},
        {"type": "file_search_call", "id": "fs", "status": "searching", "queries": ["q"], "results": null},
        {"type": "computer_call", "id": "cc", "call_id": "c", "action": {"type": "click"}, "pending_safety_checks": [],
            "status": "completed"},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "u"}},
        {"type": "code_interpreter_call", "id": "ci", "status": "interpreting", "code": "1", "container_id": "x",
            "outputs": null},
        {"type": "image_generation_call", "id": "ig", "status": "generating", "result": null},
        {"type": "local_shell_call", "id": "ls", "call_id": "c", "action": {"type": "exec", "command": ["ls"]},
            "status": "completed"},
        {"type": "local_shell_call_output", "id": "ls", "output": "{}"},
        {"type": "shell_call", "id": "sh", "call_id": "c", "status": "completed", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "stderr": "",
            "outcome": {"type": "exit", "exit_code": 0}}], "max_output_length": 10},
        {"type": "apply_patch_call", "id": "ap", "call_id": "c", "status": "completed",
            "operation": {"type": "delete_file", "path": "p"}},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": null},
        {"type": "mcp_call", "id": "m", "server_label": "s", "name": "n", "arguments": "{}", "output": "o",
            "error": null},
        {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": [{"name": "n", "input_schema": {}}]},
        {"type": "mcp_approval_request", "id": "m", "server_label": "s", "name": "n", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "m", "approve": true},
        {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"q": 1},
            "status": "completed"},
        {"type": "tool_search_output", "call_id": null, "tools": [{"type": "function", "name": "f"}]},
        {"type": "additional_tools", "tools": [{"type": "function", "name": "f"}]},
        {"type": "agent_message", "id": "a", "anything": 1},
        {"type": "compaction", "id": "c", "encrypted_content": "e"},
        {"type": "context_compaction", "encrypted_content": "e"},
        {"type": "configuration_update", "id": "c"},
    ]);
    list.as_array().unwrap().clone()
}

fn server_items() -> Vec<Value> {
    let list = json!([
        {"type": "datetime", "status": "completed", "datetime": "2026-01-01T00:00:00.000+00:00", "timezone": "UTC"},
        {"type": "web_search", "status": "completed", "action": {"type": "search", "query": "q"}, "id": "ws"},
        {"type": "web_fetch", "status": "failed", "url": "u", "title": "t", "content": "c", "http_status": 404,
            "error": "e"},
        {"type": "image_generation", "status": "completed", "prompt": "p", "result": null, "image_b64": "AA=="},
        {"type": "tool_search", "status": "completed", "query": "q", "matches": ["f"]},
        {"type": "experimental__search_models", "status": "completed", "query": "q", "arguments": "{}"},
        {"type": "files", "status": "completed", "operation": "list", "file_id": "f", "filename": "n"},
        {"type": "advisor", "status": "completed", "model": "m", "prompt": "p", "advice": "a"},
        {"type": "subagent", "status": "incomplete", "call_id": "c", "task_name": "t", "outcome": "o"},
        {"type": "fusion", "status": "completed", "responses": [{"model": "m", "content": "c"}], "analysis": null},
        {"type": "apply_patch", "status": "completed", "call_id": "c", "operation": {"type": "delete_file"}},
        {"type": "bash", "status": "completed", "command": "ls", "stdout": "", "exit_code": 0},
        {"type": "shell", "status": "completed", "action": {"commands": []}, "output": [{"stdout": "x"}]},
        {"type": "browser_use", "status": "completed"},
        {"type": "code_interpreter", "status": "completed", "code": "1"},
        {"type": "file_search", "status": "completed", "queries": []},
        {"type": "mcp", "status": "completed", "error": {"message": "m"}},
        {"type": "memory", "status": "completed"},
        {"type": "text_editor", "status": "completed"},
        {"type": "armor_blocked", "status": "completed"},
        {"type": "a_third_partys", "status": "completed", "own": [1, 2]},
    ]);
    list.as_array().unwrap().clone()
}

#[test]
fn every_item_is_accepted_and_copied() {
    for item in items() {
        assert_eq!(written(&item), item);
    }
    accepted(&json!({"model": "a/b", "input": items()}));
}

#[test]
fn items_of_server_tools_become_function_calls_with_results() {
    for item in server_items() {
        let name = item["type"].as_str().unwrap().to_owned();
        for prefix in ["service:", "openrouter:"] {
            let mut item = item.clone();
            item["type"] = format!("{prefix}{name}").into();
            let input = guest(&accepted(&body_of_item(&item)))["input"].clone();
            let [call, result] = input.as_array().unwrap().as_slice() else { panic!("{input}") };
            let function = format!("service:{name}");
            assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!(function)));
            assert_eq!(result["type"], "function_call_output");
            assert_eq!(call["call_id"], result["call_id"]);
            let told: Value = serde_json::from_str(result["output"].as_str().unwrap()).unwrap();
            assert!(told.is_object() && told.get("type").is_none() && told.get("id").is_none(), "{told}");
        }
    }
}

#[test]
fn results_of_server_tools_follow_all_adjacent_calls() {
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let result = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "1"});
    let input = json!([
        call("c1"),
        {"type": "openrouter:datetime", "id": "st_1", "status": "completed", "datetime": "2026", "timezone": "UTC",
            "content": []},
        {"type": "service:web_fetch", "id": "st_2", "status": "failed", "error": "unreachable", "content": []},
        {"type": "service:files", "call_id": "own", "arguments": "{\"operation\":\"list\"}", "result": null},
        {"type": "service:image_generation", "result": "AA==", "image_url": "data:image/png;base64,AA==",
            "prompt": "a cat"},
        result("c1"),
    ]);
    let told = guest(&accepted(&json!({"model": "a/b", "input": input})))["input"].clone();
    let called = |id: &str, name: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": format!("service:{name}"), "arguments": arguments});
    let said =
        |id: &str, output: &str| json!({"type": "function_call_output", "call_id": id, "output": output});
    let expected = json!([
        call("c1"),
        called("st_1", "datetime", "{}"),
        called("st_2", "web_fetch", "{}"),
        called("own", "files", "{\"operation\":\"list\"}"),
        called("call_4", "image_generation", "{}"),
        said("st_1", "{\"datetime\":\"2026\",\"timezone\":\"UTC\"}"),
        said("st_2", "{\"status\":\"failed\",\"error\":\"unreachable\"}"),
        said("own", "{}"),
        said("call_4", "{\"prompt\":\"a cat\"}"),
        result("c1"),
    ]);
    assert_eq!(told, expected);
}

#[test]
fn references_are_refused_because_nothing_is_stored() {
    let words = "refers to a stored item (item_reference), but this service is stateless and stores none: \
                 set store to false in the client, so that it sends the item itself";
    let table = [
        (json!({"type": "item_reference", "id": "msg_1"}), "input[0].type"),
        (json!({"id": "msg_1"}), "input[0]"),
        (json!({"type": null, "id": "rs_1"}), "input[0].type is required: only messages may leave it out"),
    ];
    for (item, start) in table {
        let message = refused(&body_of_item(&item));
        assert!(message.starts_with(start), "{message}");
        assert!(message.ends_with(words) || start.contains("required"), "{message}");
    }
}

#[test]
fn unknown_items_are_refused_by_path() {
    let long = "x".repeat(100);
    let table = [
        (
            json!({"type": "telepathy"}),
            "input[0].type names an unknown input item type: \"telepathy\"".to_owned(),
        ),
        (
            json!({"type": format!("a\n{long}")}),
            format!("input[0].type names an unknown input item type: \"a\\n{}…\"", "x".repeat(62)),
        ),
        (
            json!({"type": "service:"}),
            "input[0].type names an unknown input item type: \"service:\"".to_owned(),
        ),
        (json!({"type": 7}), "input[0].type must be a string, not a number".to_owned()),
        (json!("text"), "input[0] must be an object, not a string".to_owned()),
        (json!(null), "input[0] must be an object, not null".to_owned()),
        (json!({"content": "x"}), "input[0].type is required: only messages may leave it out".to_owned()),
        (json!({"type": "message", "content": "x"}), "input[0].role is required".to_owned()),
        (json!({"role": "user"}), "input[0].content is required".to_owned()),
        (
            json!({"role": "tool", "content": "x"}),
            "input[0].role must be one of user, assistant, system, developer".to_owned(),
        ),
    ];
    for (item, message) in table {
        assert_eq!(refused(&body_of_item(&item)), message);
    }
}

#[test]
fn faulty_parts_and_calls_are_refused_by_path() {
    let table = [
        (
            json!({"role": "user", "content": 1}),
            "input[0].content must be a string or an array, not a number",
        ),
        (json!({"role": "user", "content": ["x"]}), "input[0].content[0] must be an object, not a string"),
        (
            json!({"role": "user", "content": [{"type": "text", "text": "x"}]}),
            "input[0].content[0].type names an unknown content part type: \"text\"",
        ),
        (
            json!({"role": "user", "content": [{"type": "output_text", "text": "x"}]}),
            "input[0].content[0].type names an unknown content part type: \"output_text\"",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_image", "image_url": {"url": "u"}}]}),
            "input[0].content[0].image_url must be a string, not an object",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_image", "detail": "auto"}]}),
            "input[0].content[0] needs image_url or file_id",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "huge"}]}),
            "input[0].content[0].detail must be one of auto, low, high, original",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_file", "filename": "f"}]}),
            "input[0].content[0] needs file_data, file_url or file_id",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "A", "format": "ogg"}}]}),
            "input[0].content[0].input_audio.format must be one of mp3, wav",
        ),
        (json!({"type": "function_call", "name": "f", "arguments": "{}"}), "input[0].call_id is required"),
        (
            json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}),
            "input[0].arguments must be a string, not an object",
        ),
        (
            json!({"type": "function_call_output", "call_id": "c", "output": {"a": 1}}),
            "input[0].output must be a string or an array, not an object",
        ),
        (
            json!({"type": "reasoning", "summary": [{"type": "text", "text": "s"}]}),
            "input[0].summary[0].type names an unknown summary part type: \"text\"",
        ),
        (
            json!({"type": "openrouter:datetime", "datetime": 5}),
            "input[0].datetime must be a string, not a number",
        ),
    ];
    for (item, message) in table {
        assert_eq!(refused(&body_of_item(&item)), message);
    }
}

#[test]
fn facts_count_only_text() {
    let request = accepted(&body_with(&json!({
        "instructions": "12345",
        "input": [
            {"role": "system", "content": "abc"},
            {"role": "user", "content": "What? Why?"},
            {"role": "assistant", "model": "a/b", "content": [{"type": "output_text", "text": "1+1=2 é"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "```\ncode\n```"},
            {"role": "user", "content": [{"type": "input_text", "text": "How?"},
                {"type": "input_image", "image_url": format!("data:image/png;base64,{}", "A".repeat(1000))}]},
        ],
    })));
    let facts = &request.facts;
    assert_eq!((facts.last_user_chars, facts.questions, facts.turns, facts.code_blocks), (4, 1, 4, 1));
    assert_eq!(facts.all_chars, 5 + 3 + 10 + 7 + 2 + 12 + 4);
    assert_eq!(facts.last_model.as_deref(), Some("a/b"));
    assert!((facts.math_share - 10.0 / 43.0).abs() < 1e-9, "{}", facts.math_share);
    assert_eq!(request.input_tokens, 11);
}
