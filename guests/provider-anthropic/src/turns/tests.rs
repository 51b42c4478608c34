use cofferdam_guest_kit::Item;
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use serde_json::{Value, json};

use super::{Conversation, NO_RESULT, OPENING};
use crate::cache::Marking;

fn with<T>(input: &Value, then: impl Fn(Conversation<'_>) -> T) -> Result<T, Failure> {
    let text = input.to_string();
    let items: Vec<Item<'_>> = serde_json::from_str(&text).expect("items");
    Conversation::read(None, &items, Marking::default()).map(then)
}

fn turns(input: &Value) -> Value {
    let read = with(input, |c| serde_json::to_value(&c.turns).expect("JSON"));
    read.unwrap_or_else(|failure| panic!("{input}: {}", failure.message))
}

fn message(role: &str, text: &str) -> Value {
    let kind = if role == "assistant" { "output_text" } else { "input_text" };
    json!({"type":"message","role":role,"content":[{"type":kind,"text":text}]})
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type":"function_call","call_id":id,"name":name,"arguments":arguments})
}

fn output(id: &str, output: &str) -> Value {
    json!({"type":"function_call_output","call_id":id,"output":output})
}

fn text(text: &str) -> Value {
    json!({"type":"text","text":text})
}

fn tool_use(id: &str, name: &str, input: Value) -> Value {
    json!({"type":"tool_use","id":id,"name":name,"input":input})
}

fn result(id: &str, said: &str) -> Value {
    json!({"type":"tool_result","tool_use_id":id,"content":[text(said)]})
}

fn missing(id: &str) -> Value {
    json!({"type":"tool_result","tool_use_id":id,"content":[text(NO_RESULT)],"is_error":true})
}

fn turn(role: &str, content: Vec<Value>) -> Value {
    json!({"role":role,"content":content})
}

fn sealed(signature: &str) -> Value {
    json!({"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],
           "signature":signature,"format":"anthropic-claude-v1"})
}

fn thinking(signature: &str) -> Value {
    json!({"type":"thinking","thinking":"hm","signature":signature})
}

#[test]
fn consecutive_items_of_a_side_are_one_turn() {
    let input = json!([
        message("user", "a"), message("user", " "), message("user", "b"),
        message("assistant", "c"), {"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"d"}]},
        message("user", "e")
    ]);
    let expected = json!([
        turn("user", vec![text("a"), text("b")]),
        turn("assistant", vec![text("c"), text("d")]),
        turn("user", vec![text("e")])
    ]);
    assert_eq!(turns(&input), expected);
}

#[test]
fn leading_instructions_are_the_system_prompt_and_later_ones_stay() {
    let input = json!([
        message("system", "s1"),
        message("developer", "s2"),
        message("user", "a"),
        message("developer", "later"),
        message("user", "b")
    ]);
    let system = with(&input, |c| serde_json::to_value(&c.system).expect("JSON")).expect("a conversation");
    assert_eq!(system, json!([text("s1"), text("s2")]));
    let later = text("<system>\nlater\n</system>");
    assert_eq!(turns(&input), json!([turn("user", vec![text("a"), later, text("b")])]));
    let alone = json!([message("developer", "Say hi")]);
    assert_eq!(turns(&alone), json!([turn("user", vec![text("Say hi")])]));
}

#[test]
fn calls_are_answered_at_the_start_of_the_next_turn() {
    let round = json!([
        message("user", "q"),
        call("c1", "f", "{\"x\": 1}"),
        call("c2", "g", ""),
        output("c2", "two"),
        output("c1", "one"),
        message("user", "and?"),
        call("c3", "f", "{}"),
        output("c3", ""),
        message("assistant", "done ")
    ]);
    let expected = json!([
        turn("user", vec![text("q")]),
        turn("assistant", vec![tool_use("c1", "f", json!({"x":1})), tool_use("c2", "g", json!({}))]),
        turn("user", vec![result("c1", "one"), result("c2", "two"), text("and?")]),
        turn("assistant", vec![tool_use("c3", "f", json!({}))]),
        turn("user", vec![json!({"type":"tool_result","tool_use_id":"c3"})]),
        turn("assistant", vec![text("done")])
    ]);
    assert_eq!(turns(&round), expected);
}

#[test]
fn results_may_stand_anywhere_or_be_missing() {
    let late = json!([message("user", "q"), call("c", "f", "{}"), message("user", "wait"), output("c", "r")]);
    let expected = json!([
        turn("user", vec![text("q")]),
        turn("assistant", vec![tool_use("c", "f", json!({}))]),
        turn("user", vec![result("c", "r"), text("wait")])
    ]);
    assert_eq!(turns(&late), expected);
    let never = json!([message("user", "q"), call("c", "f", "{}")]);
    assert_eq!(turns(&never)[2], turn("user", vec![missing("c")]));
    let stray = json!([message("user", "q"), output("gone", "r")]);
    let told = vec![text("q"), text("Result of an earlier tool call:"), text("r")];
    assert_eq!(turns(&stray), json!([turn("user", told)]));
}

#[test]
fn ids_that_repeat_belong_to_the_nearest_result() {
    let input = json!([
        message("user", "q"),
        call("0", "a.b", "{}"),
        output("0", "r1"),
        call("0", "f", "{}"),
        output("0", "r2")
    ]);
    let expected = json!([
        turn("user", vec![text("q")]),
        turn("assistant", vec![tool_use("0", "a_b", json!({}))]),
        turn("user", vec![result("0", "r1")]),
        turn("assistant", vec![tool_use("0_2", "f", json!({}))]),
        turn("user", vec![result("0_2", "r2")])
    ]);
    assert_eq!(turns(&input), expected);
}

#[test]
fn broken_arguments_become_an_empty_object() {
    for arguments in ["", " ", "{\"x\":", "[1]", "null", "\"{}\"", "{} {}"] {
        let input = json!([message("user", "q"), call("c", "f", arguments)]);
        assert_eq!(turns(&input)[1], turn("assistant", vec![tool_use("c", "f", json!({}))]), "{arguments}");
    }
}

#[test]
fn custom_calls_of_other_dialects_stay_readable() {
    let input = json!([
        message("user", "q"), {"type":"custom_tool_call","call_id":"c","name":"run","input":"ls \"x\""},
        {"type":"custom_tool_call_output","call_id":"c","output":"ok"},
        {"type":"web_search_call","id":"ws_1","status":"completed"}
    ]);
    let expected = json!([
        turn("user", vec![text("q")]),
        turn("assistant", vec![tool_use("c", "run", json!({"input":"ls \"x\""}))]),
        turn("user", vec![result("c", "ok")])
    ]);
    assert_eq!(turns(&input), expected);
}

/// A conversation that began at a provider with the client's tool types continues without a gap.
#[test]
fn calls_of_client_tools_stay_readable() {
    let input = json!([
        message("user", "Go."),
        {"type": "local_shell_call", "id": "l", "call_id": "a", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "a", "output": "x"},
        {"type": "shell_call", "call_id": "b", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "b", "output": [{"stdout": "y"}]},
        {"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": "https://a.example/p.png"}},
        {"type": "apply_patch_call", "call_id": "d", "operation": {"type": "delete_file"}},
        {"type": "apply_patch_call_output", "call_id": "d", "status": "completed"}
    ]);
    let picture = json!({"type": "tool_result", "tool_use_id": "c",
        "content": [{"type": "image", "source": {"type": "url", "url": "https://a.example/p.png"}}]});
    let expected = [
        turn("user", vec![text("Go.")]),
        turn("assistant", vec![tool_use("a", "local_shell", json!({"command": ["ls"]}))]),
        turn("user", vec![result("a", "x")]),
        turn("assistant", vec![tool_use("b", "shell", json!({"commands": ["ls"]}))]),
        turn("user", vec![result("b", "[{\"stdout\":\"y\"}]")]),
        turn("assistant", vec![tool_use("c", "computer", json!({"type": "screenshot"}))]),
        turn("user", vec![picture]),
        turn("assistant", vec![tool_use("d", "apply_patch", json!({"type": "delete_file"}))]),
        turn("user", vec![json!({"type": "tool_result", "tool_use_id": "d"})]),
    ];
    assert_eq!(turns(&input), json!(expected));
}

#[test]
fn parts_become_blocks() {
    let input = json!([
        {"type":"message","role":"user","content":[
            {"type":"input_text","text":"see"},
            {"type":"input_image","detail":"auto","image_url":"data:image/jpg;base64,AAAA"},
            {"type":"input_image","image_url":"https://x.example/a.png","cache_control":{"type":"ephemeral"}},
            {"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="},
            {"type":"input_file","file_url":"https://x.example/a.pdf"}
        ]},
        call("c", "shot", "{}"),
        {"type":"function_call_output","call_id":"c","output":[
            {"type":"input_text","text":"here"},{"type":"input_image","image_url":"data:image/png;base64,BBBB"}]}
    ]);
    let read = turns(&input);
    assert_eq!(
        read[0]["content"],
        json!([
            text("see"),
            {"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"AAAA"}},
            {"type":"image","source":{"type":"url","url":"https://x.example/a.png"},"cache_control":{"type":"ephemeral"}},
            {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="},"title":"a.pdf"},
            {"type":"document","source":{"type":"url","url":"https://x.example/a.pdf"}}
        ])
    );
    assert_eq!(
        read[2]["content"][0]["content"],
        json!([
            text("here"), {"type":"image","source":{"type":"base64","media_type":"image/png","data":"BBBB"}}
        ])
    );
}

#[test]
fn unsupported_parts_are_refused() {
    let user = |part: Value| json!([{"type":"message","role":"user","content":[part]}]);
    let cases = [
        json!([]),
        json!([message("user", "  ")]),
        user(json!({"type":"input_audio","input_audio":{"data":"AA","format":"wav"}})),
        user(json!({"type":"input_video","video_url":"https://x.example/v"})),
        user(json!({"type":"input_image","file_id":"file-1"})),
        user(json!({"type":"input_file","file_id":"file-1"})),
        user(json!({"type":"input_hologram"})),
    ];
    for input in cases {
        let refused = with(&input, |_| ()).expect_err("refused");
        assert_eq!(refused.kind, ErrorKind::InvalidRequest, "{input}");
    }
}

#[test]
fn a_refused_part_is_named_by_its_path() {
    let audio = json!({"type":"input_audio","input_audio":{"data":"AA","format":"wav"}});
    let said = |part: Value| json!([message("user", "q"), {"type":"message","role":"user","content":[{"type":"input_text","text":"t"}, part]}]);
    let result = |part: Value| json!([{"type":"function_call_output","call_id":"c","output":[part]}]);
    let picture = json!({"type":"input_image","file_id":"file-1"});
    let file = json!({"type":"input_file","file_data":"data:application/zip;base64,UEsDBA=="});
    for (input, start) in [
        (said(audio.clone()), "input[1].content[1].type: "),
        (said(json!({"type":"input_hologram"})), "input[1].content[1].type: "),
        (said(picture), "input[1].content[1].file_id: "),
        (said(file.clone()), "input[1].content[1].file_data: "),
        (result(audio), "input[0].output[0].type: "),
        (result(file), "input[0].output[0].file_data: "),
    ] {
        let refused = with(&input, |_| ()).expect_err("refused");
        assert!(refused.message.starts_with(start), "{}", refused.message);
    }
}

#[test]
fn reasoning_returns_to_its_place() {
    let foreign = json!({"type":"reasoning","summary":[],"encrypted_content":"gAAA"});
    let input = json!([
        message("user", "q"),
        foreign,
        sealed("s1"),
        message("assistant", "let me"),
        call("c", "f", "{}"),
        output("c", "r"),
        sealed("s2"),
        message("user", "more")
    ]);
    let expected = json!([
        turn("user", vec![text("q")]),
        turn("assistant", vec![thinking("s1"), text("let me"), tool_use("c", "f", json!({}))]),
        // Thinking that led to no output would be refused, so it is left out.
        turn("user", vec![result("c", "r"), text("more")])
    ]);
    assert_eq!(turns(&input), expected);
}

#[test]
fn a_history_that_begins_with_an_answer_gets_an_opening() {
    let input = json!([message("assistant", "Welcome"), message("user", "hi")]);
    assert_eq!(turns(&input)[0], turn("user", vec![text(OPENING)]));
}

#[test]
fn a_budget_needs_thinking_at_the_start_of_an_interrupted_answer() {
    let forbids = |input: &Value| with(input, |c| c.forbids_budget()).expect("a conversation");
    let start = |rest: Vec<Value>| {
        let mut items = vec![message("user", "q")];
        items.extend(rest);
        Value::Array(items)
    };
    let cases = [
        (start(vec![]), false),
        (start(vec![call("c", "f", "{}"), output("c", "r")]), true),
        (start(vec![sealed("s"), call("c", "f", "{}"), output("c", "r")]), false),
        (
            start(vec![
                sealed("s"),
                call("c", "f", "{}"),
                output("c", "r"),
                call("d", "f", "{}"),
                output("d", "r"),
            ]),
            false,
        ),
        (
            start(vec![
                call("c", "f", "{}"),
                output("c", "r"),
                message("assistant", "a"),
                message("user", "b"),
            ]),
            false,
        ),
        (start(vec![message("assistant", "so far")]), true),
    ];
    for (input, expected) in cases {
        assert_eq!(forbids(&input), expected, "{input}");
    }
}

fn any_item() -> impl Strategy<Value = Value> {
    let id = prop_oneof![Just("a"), Just("b"), Just("c.d")];
    prop_oneof![
        (prop_oneof![Just("user"), Just("assistant"), Just("system")], any::<bool>())
            .prop_map(|(role, empty)| message(role, if empty { "" } else { "t" })),
        id.clone().prop_map(|id| call(id, "f", "{}")),
        id.prop_map(|id| output(id, "r")),
        Just(sealed("s")),
        Just(json!({"type":"item_of_tomorrow"})),
    ]
}

proptest! {
    /// The provider's requirements, checked for arbitrary histories.
    #[test]
    fn turns_alternate_and_every_call_is_answered_next(items in proptest::collection::vec(any_item(), 0..16)) {
        let Ok(turns) = with(&Value::Array(items), |c| serde_json::to_value(&c.turns).expect("JSON")) else {
            return Ok(());
        };
        let turns = turns.as_array().expect("turns").clone();
        for (index, turn) in turns.iter().enumerate() {
            assert_eq!(turn["role"], if index % 2 == 0 { "user" } else { "assistant" });
            let blocks = turn["content"].as_array().expect("blocks");
            assert!(!blocks.is_empty() && blocks.last().is_some_and(|block| block["type"] != "thinking"));
            let ids = |blocks: &[Value], kind: &str, field: &str| -> Vec<Value> {
                blocks.iter().filter(|b| b["type"] == kind).map(|b| b[field].clone()).collect()
            };
            let calls = ids(blocks, "tool_use", "id");
            let next = turns.get(index + 1).and_then(|turn| turn["content"].as_array()).cloned().unwrap_or_default();
            if turn["role"] == "assistant" {
                let answered = ids(next.get(..calls.len()).expect("results first"), "tool_result", "tool_use_id");
                assert_eq!(answered, calls);
            }
        }
    }
}
