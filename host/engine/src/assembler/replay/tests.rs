use super::super::tests::any::any_event;
use super::super::tests::{identity, names, parse_stream};
use super::super::{Outcome, Receipt, Served, ToolOutcome};
use super::*;
use cofferdam_runtime::wire::{CallDelta, CallStart, Event, ReasoningSeal, SummaryDelta, TextDelta};
use proptest::prelude::*;
use serde_json::json;

fn made(events: Vec<Event>) -> (Assembler, Vec<u8>) {
    let mut assembler = Assembler::new(identity(), false);
    for event in events {
        // Events that do not fit are refused, and the answer goes on without them.
        let _fits = assembler.apply(event).is_ok();
    }
    let body = assembler.complete(&Outcome::Completed, &Receipt::default());
    (assembler, body)
}

fn told(made: &Assembler, response: &[u8]) -> Vec<Value> {
    let mut replay = ResponseReplay::new(made, response).unwrap();
    let mut stream = Vec::new();
    while let Some(events) = replay.next_events() {
        stream.extend(events);
    }
    parse_stream(std::str::from_utf8(&stream).unwrap())
}

fn text_delta(text: &str) -> Event {
    Event::TextDelta(TextDelta { text: text.to_owned(), logprobs: Vec::new() })
}

fn hosted(item: &Value) -> Event {
    Event::OpaqueItem(item.to_string().into_bytes())
}

fn start(key: u32, name: &str) -> CallStart {
    CallStart { key, call_id: format!("call_{key}"), name: name.to_owned(), namespace: None }
}

#[test]
fn a_replayed_stream_equals_a_live_stream_with_single_deltas() {
    let events = vec![
        Event::ReasoningSummaryDelta(SummaryDelta { part: 0, text: "Hm".to_owned() }),
        Event::ReasoningSeal(ReasoningSeal {
            encrypted_content: Some("x".to_owned()),
            signature: None,
            format: None,
        }),
        Event::ReasoningTextDelta("thinking".to_owned()),
        text_delta("words"),
        Event::Annotation(br#"{"type":"file_path"}"#.to_vec()),
        Event::RefusalDelta("no".to_owned()),
        Event::FunctionCallStart(start(0, "f")),
        Event::FunctionArgumentsDelta(CallDelta { key: 0, text: "{}".to_owned() }),
        Event::CallEnd(0),
        Event::CustomCallStart(start(1, "g")),
        Event::CustomInputDelta(CallDelta { key: 1, text: "in".to_owned() }),
        Event::CallEnd(1),
        hosted(
            &json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}}),
        ),
        hosted(&json!({"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1",
            "container_id": "c", "outputs": []})),
        hosted(
            &json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AA==",
            "revised_prompt": "a cat"}),
        ),
        hosted(&json!({"type": "hologram_call", "id": "h_1", "status": "completed"})),
    ];
    let mut live = Assembler::new(identity(), true);
    live.begin();
    for event in events.clone() {
        live.apply(event).unwrap();
    }
    let stream = live.complete(&Outcome::Completed, &Receipt::default());
    let live = parse_stream(std::str::from_utf8(&stream).unwrap());
    let (assembler, body) = made(events);
    assert_eq!(told(&assembler, &body), live);
}

#[test]
fn ids_from_a_hook_are_escaped_in_replayed_events() {
    let (assembler, mut body) = made(vec![text_delta("words")]);
    let mut response: Value = serde_json::from_slice(&body).unwrap();
    let id = "a\"},\"x\":\"\n\ndata: b";
    let image =
        json!({"type": "image_generation_call", "status": "completed", "id": "c\"d", "result": "aGk="});
    response["output"][0]["id"] = json!(id);
    response["output"].as_array_mut().unwrap().push(image);
    body = response.to_string().into_bytes();
    let events = told(&assembler, &body);
    let added: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "response.output_item.added").collect();
    assert_eq!((&added[0]["item"]["id"], &added[1]["item"]["id"]), (&json!(id), &json!("c\"d")));
}

#[test]
fn replayed_server_tool_calls_have_the_events_of_their_manifest() {
    let call = CallItem {
        item_type: "mcp_call".to_owned(),
        id_prefix: "mcp".to_owned(),
        shows_arguments: true,
        streams_arguments: true,
        added: vec!["response.mcp_call.in_progress".to_owned()],
        completed: vec!["response.mcp_call.completed".to_owned()],
        failed: vec!["response.mcp_call.failed".to_owned()],
        ..CallItem::default()
    };
    for (outcome, last) in [(ToolOutcome::Completed, "completed"), (ToolOutcome::Failed, "failed")] {
        let mut assembler = Assembler::new(identity(), false);
        assembler.serve(Arc::new(Served::new([("find".to_owned(), Arc::new(call.clone()))])));
        assembler.apply(Event::FunctionCallStart(start(0, "find"))).unwrap();
        let arguments = CallDelta { key: 0, text: "{\"a\":1}".to_owned() };
        assembler.apply(Event::FunctionArgumentsDelta(arguments)).unwrap();
        let [call] = assembler.end_turn().unwrap().try_into().unwrap();
        assembler.finish_call(call.item, outcome, b"{\"output\":\"o\"}").unwrap();
        let body = assembler.complete(&Outcome::Completed, &Receipt::default());
        let events = told(&assembler, &body);
        let ended = format!("mcp_call.{last}");
        assert_eq!(
            names(&events),
            [
                "created",
                "in_progress",
                "output_item.added",
                "mcp_call.in_progress",
                "mcp_call_arguments.delta",
                "mcp_call_arguments.done",
                ended.as_str(),
                "output_item.done",
                "completed"
            ]
        );
        assert_eq!(events[2]["item"]["arguments"], "");
        assert_eq!(events[7]["item"]["output"], "o");
    }
}

#[test]
fn response_ids_are_kept_and_unfinished_responses_are_refused() {
    let (assembler, _) = made(Vec::new());
    let item = json!({"type": "message", "id": "twice", "role": "assistant", "content": "odd"});
    let response = json!({"id": "mine", "status": "incomplete", "output": [item, item, {"type": "x"}]});
    let events = told(&assembler, response.to_string().as_bytes());
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["id"], identity().response_id());
    let ids = last["response"]["output"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap());
    assert_eq!(ids.collect::<BTreeSet<_>>().len(), 3);
    for odd in [
        "[]",
        "{}",
        r#"{"status":"in_progress","output":[]}"#,
        r#"{"status":"completed"}"#,
        r#"{"status":"completed","output":[{}]}"#,
        r#"{"status":"completed","output":["x"]}"#,
    ] {
        assert_eq!(check_finished(odd.as_bytes()), Err(Malformed::InvalidJson), "{odd}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        "[a-z\n\"]{0,6}".prop_map(Value::from),
        prop_oneof![
            Just("message"),
            Just("reasoning"),
            Just("function_call"),
            Just("image_generation_call"),
            Just("output_text"),
            Just("summary_text")
        ]
        .prop_map(Value::from),
    ];
    let key = || {
        let known = prop_oneof![
            Just("type"),
            Just("id"),
            Just("text"),
            Just("content"),
            Just("summary"),
            Just("annotations"),
            Just("logprobs"),
            Just("arguments"),
            Just("status")
        ];
        known.prop_map(str::to_owned)
    };
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(key(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn assert_told(events: &[Value], output: &[Value]) {
    for (index, item) in output.iter().enumerate() {
        let about = |name: &str| -> Vec<&Value> {
            events.iter().filter(|event| event["type"] == name && event["output_index"] == index).collect()
        };
        assert_eq!(about("response.output_item.added").len(), 1);
        let done = about("response.output_item.done");
        assert_eq!(done.len(), 1);
        assert_eq!(&done[0]["item"], item);
        let parts: Vec<&Value> =
            about("response.output_text.delta").into_iter().map(|event| &event["content_index"]).collect();
        assert!(parts.iter().enumerate().all(|(place, part)| !parts[..place].contains(part)), "{parts:?}");
    }
}

proptest! {
    /// For any events of a guest, a held answer is replayed completely, with one delta for each
    /// part.
    #[test]
    fn any_held_answer_is_replayed_completely(events in proptest::collection::vec(any_event(), 0..40)) {
        let (assembler, body) = made(events);
        let events = told(&assembler, &body);
        let response: Value = serde_json::from_slice(&body).unwrap();
        let last = &events.last().unwrap()["response"];
        prop_assert_eq!(&last["status"], &response["status"]);
        let output = last["output"].as_array().unwrap();
        prop_assert_eq!(output.len(), response["output"].as_array().unwrap().len());
        assert_told(&events, output);
    }

    /// Any response of a hook is replayed as a well-formed stream or refused.
    #[test]
    fn any_response_of_a_hook_is_replayed_well_formed_or_refused(items in proptest::collection::vec(any_json(), 0..5)) {
        let (assembler, _) = made(Vec::new());
        let response = json!({"status": "completed", "output": items}).to_string();
        if check_finished(response.as_bytes()).is_ok() {
            let events = told(&assembler, response.as_bytes());
            assert_told(&events, events.last().unwrap()["response"]["output"].as_array().unwrap());
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(response in proptest::collection::vec(any::<u8>(), 0..60)) {
        prop_assert!(check_finished(&response).is_err());
    }
}
