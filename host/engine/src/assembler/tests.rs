use super::*;
use crate::refusal::Refusal;
use cofferdam_runtime::wire::{ErrorKind, Finish, Image, ReasoningSeal, SummaryDelta};
use proptest::prelude::*;
use serde_json::Value;
use std::sync::Arc;

pub(super) fn identity() -> Identity {
    Identity {
        hex: Arc::from("00112233445566778899aabbccddeeff"),
        created_at: 1_700_000_000,
        model: "local/demo".to_owned(),
        service_tier: "default".to_owned(),
        echo: Arc::from("\"temperature\":1.0"),
    }
}

fn text(text: &str) -> Event {
    Event::TextDelta(TextDelta { text: text.to_owned(), logprobs: Vec::new() })
}

fn call(key: u32) -> Event {
    Event::FunctionCallStart(CallStart {
        key,
        call_id: format!("call_{key}"),
        name: "f".to_owned(),
        namespace: None,
    })
}

fn arguments(key: u32, text: &str) -> Event {
    Event::FunctionArgumentsDelta(CallDelta { key, text: text.to_owned() })
}

fn finish(reason: FinishReason) -> Event {
    Event::Finish(Finish { reason, service_tier: None })
}

/// The events of a stream, after a check of their form: the name equals the type, and numbers count
/// from 0.
pub(super) fn parse_stream(stream: &str) -> Vec<Value> {
    let mut blocks: Vec<&str> = stream.split_terminator("\n\n").collect();
    assert_eq!(blocks.pop(), Some("data: [DONE]"));
    let parse = |(number, block): (usize, &str)| {
        let (name, data) = block.split_once('\n').unwrap();
        let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event["type"], name.strip_prefix("event: ").unwrap());
        assert_eq!(event["sequence_number"], number);
        event
    };
    blocks.into_iter().enumerate().map(parse).collect()
}

fn streamed(events: Vec<Event>, outcome: &Outcome) -> Vec<Value> {
    let mut assembler = Assembler::new(identity(), true);
    let mut stream = Vec::new();
    assembler.begin();
    for event in events {
        assembler.apply(event).unwrap();
        stream.extend(assembler.take_events());
    }
    stream.extend(assembler.complete(outcome, &Receipt::default()));
    parse_stream(std::str::from_utf8(&stream).unwrap())
}

fn whole(events: Vec<Event>, outcome: &Outcome) -> Value {
    let mut assembler = Assembler::new(identity(), false);
    for event in events {
        assembler.apply(event).unwrap();
    }
    serde_json::from_slice(&assembler.complete(outcome, &Receipt::default())).unwrap()
}

pub(super) fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap().strip_prefix("response.").unwrap()).collect()
}

#[test]
fn plain_text_streams_every_expected_event() {
    let events = streamed(vec![text("Hel"), text("lo"), finish(FinishReason::Stop)], &Outcome::Completed);
    assert_eq!(
        names(&events),
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
    );
    assert_eq!(events[4]["logprobs"], serde_json::json!([]));
    assert_eq!(events[6]["text"], "Hello");
    assert_eq!(events[8]["item"]["status"], "completed");
    assert_eq!(events[9]["response"]["output"][0], events[8]["item"]);
    assert_eq!(events[0]["response"]["output"], serde_json::json!([]));
    assert_eq!(events[0]["response"]["completed_at"], Value::Null);
}

#[test]
fn reasoning_ends_before_the_text_begins() {
    let seal = ReasoningSeal {
        signature: Some("sig".to_owned()),
        encrypted_content: None,
        format: Some("x-v1".to_owned()),
    };
    let events = streamed(
        vec![
            Event::ReasoningSummaryDelta(SummaryDelta { part: 0, text: "a".to_owned() }),
            Event::ReasoningSummaryDelta(SummaryDelta { part: 1, text: "b".to_owned() }),
            Event::ReasoningTextDelta("why".to_owned()),
            Event::ReasoningSeal(seal),
            text("so"),
        ],
        &Outcome::Completed,
    );
    let names = names(&events);
    let end = names.iter().position(|name| *name == "output_item.done").unwrap();
    let begin = names.iter().rposition(|name| *name == "output_item.added").unwrap();
    assert!(end < begin, "{names:?}");
    let item = &events[end]["item"];
    assert_eq!(item["summary"][1]["text"], "b");
    assert_eq!(item["content"][0]["text"], "why");
    assert_eq!((&item["signature"], &item["format"]), (&"sig".into(), &"x-v1".into()));
}

#[test]
fn parallel_calls_may_interleave_and_keep_their_indexes() {
    let events = vec![
        call(0),
        arguments(0, "{\"a\""),
        call(1),
        arguments(1, "{}"),
        arguments(0, ":1}"),
        Event::CallEnd(1),
        finish(FinishReason::ToolCalls),
    ];
    let events = streamed(events, &Outcome::Completed);
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!(output[0]["arguments"], "{\"a\":1}");
    assert_eq!(output[1]["call_id"], "call_1");
    let done: Vec<u64> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| event["output_index"].as_u64().unwrap())
        .collect();
    assert_eq!(done, [1, 0]);
}

#[test]
fn text_and_refusal_are_parts_of_one_message() {
    let response =
        whole(vec![text("a"), Event::RefusalDelta("no".to_owned()), text("b")], &Outcome::Completed);
    let content = response["output"][0]["content"].as_array().unwrap();
    let kinds: Vec<&str> = content.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["output_text", "refusal", "output_text"]);
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
}

#[test]
fn annotations_and_opaque_items_are_compacted_and_named() {
    let response = whole(
        vec![
            text("see"),
            Event::Annotation(b"{\n \"type\": \"url_citation\"}".to_vec()),
            Event::OpaqueItem(b"{\"type\":\"web_search_call\",\n\"status\":\"completed\"}".to_vec()),
        ],
        &Outcome::Completed,
    );
    assert_eq!(response["output"][0]["content"][0]["annotations"][0]["type"], "url_citation");
    assert!(response["output"][1]["id"].as_str().unwrap().starts_with("item_"));
}

#[test]
fn every_item_has_an_id_of_its_own_whatever_the_provider_calls_it() {
    let item = |id: &str| Event::OpaqueItem(format!("{{\"type\":\"x\",\"id\":\"{id}\"}}").into_bytes());
    let forged = identity().item_id("msg", 4);
    let events = streamed(
        vec![item("a"), item("a"), item("b"), item(&forged), text("the message")],
        &Outcome::Completed,
    );
    let output = events.last().unwrap()["response"]["output"].as_array().unwrap();
    let ids: Vec<&str> = output.iter().map(|item| item["id"].as_str().unwrap()).collect();
    let made = |index| identity().item_id("item", index);
    assert_eq!(ids, ["a", &made(1), "b", &made(3), &forged]);
}

#[test]
fn malformed_pieces_are_refused() {
    for (event, malformed) in [
        (Event::Annotation(b"[]".to_vec()), Malformed::InvalidJson),
        (Event::Annotation(b"{".to_vec()), Malformed::InvalidJson),
        (Event::OpaqueItem(b"{\"type\":1}".to_vec()), Malformed::InvalidJson),
        (Event::OpaqueItem(b"{\"type\":\"mcp_call\"}".to_vec()), Malformed::Forged),
        (arguments(7, "x"), Malformed::UnknownCall),
        (
            Event::TextDelta(TextDelta { text: "a".to_owned(), logprobs: b"{}".to_vec() }),
            Malformed::InvalidJson,
        ),
    ] {
        assert_eq!(Assembler::new(identity(), true).apply(event), Err(malformed));
    }
}

#[test]
fn a_failure_closes_open_items_and_carries_type_and_code() {
    let outcome = Outcome::Failed(Refusal::new(502, ErrorKind::RateLimitExceeded, "slow down"));
    let events = streamed(vec![text("a"), call(3)], &outcome);
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["status"], "failed");
    assert_eq!(last["error"], serde_json::json!({"code": "rate_limit_exceeded", "message": "slow down"}));
    assert_eq!(last["error_type"], "rate_limit_exceeded");
    assert_eq!(last["output"][1]["status"], "incomplete");
}

#[test]
fn reasoning_that_breaks_off_is_incomplete() {
    let reasoning = || Event::ReasoningTextDelta("because".to_owned());
    let failed = Outcome::Failed(Refusal::new(502, ErrorKind::Server, "broken"));
    for (events, outcome, status) in [
        (vec![reasoning()], failed.clone(), "incomplete"),
        (
            vec![reasoning(), finish(FinishReason::Length)],
            Outcome::Incomplete("max_output_tokens"),
            "incomplete",
        ),
        (vec![reasoning(), text("a")], failed, "completed"),
        (vec![reasoning(), finish(FinishReason::Stop)], Outcome::Completed, "completed"),
    ] {
        let events = streamed(events, &outcome);
        let output = &events.last().unwrap()["response"]["output"][0];
        assert_eq!((&output["type"], &output["status"]), (&"reasoning".into(), &status.into()));
        let done = events.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
        assert_eq!(done["item"]["status"], status);
    }
}

#[test]
fn only_tiers_of_the_api_are_reported() {
    for (reported, tier) in [
        (Some("flex"), "flex"),
        (Some("fast"), "priority"),
        (Some("standard"), "default"),
        (Some(""), "default"),
        (None, "default"),
    ] {
        let finish =
            Event::Finish(Finish { reason: FinishReason::Stop, service_tier: reported.map(str::to_owned) });
        let events = streamed(vec![text("a"), finish], &Outcome::Completed);
        assert_eq!(events.last().unwrap()["response"]["service_tier"], tier, "{reported:?}");
    }
}

#[test]
fn a_stream_without_content_has_first_and_terminal_events() {
    let outcome = Outcome::Incomplete("max_output_tokens");
    let events = streamed(vec![finish(FinishReason::Length)], &outcome);
    assert_eq!(names(&events), ["created", "in_progress", "incomplete"]);
    assert_eq!(events[2]["response"]["incomplete_details"]["reason"], "max_output_tokens");
}

fn served() -> Arc<Served> {
    let item = Arc::new(CallItem::own("service:clock".to_owned()));
    Arc::new(Served::new([("clock".to_owned(), item)]))
}

fn server_call(key: u32, call_id: &str) -> Event {
    let (call_id, name) = (call_id.to_owned(), "clock".to_owned());
    Event::FunctionCallStart(CallStart { key, call_id, name, namespace: None })
}

#[test]
fn a_server_tool_call_is_one_item_without_arguments() {
    let mut assembler = Assembler::new(identity(), true);
    assembler.serve(served());
    assembler.begin();
    for event in [server_call(0, "c"), arguments(0, "{\"a\""), arguments(0, ":1}"), Event::CallEnd(0)] {
        assembler.apply(event).unwrap();
    }
    let calls = assembler.end_turn().unwrap();
    let call = ServerCall {
        item: 0,
        call_id: "c".to_owned(),
        function: "clock".to_owned(),
        arguments: "{\"a\":1}".to_owned(),
    };
    assert_eq!(calls, [call]);
    assert!(!assembler.has_client_calls());
    let members = br#"{"type":"message","id":"x","status":"queued","time":"now"}"#;
    assembler.finish_call(0, ToolOutcome::Completed, members).unwrap();
    let items = assembler.turn_items();
    let item = r#"{"type":"function_call","call_id":"c","name":"clock","arguments":"{\"a\":1}"}"#;
    assert_eq!(items, [item]);
    assembler.next_turn("local/other", "flex");
    let mut stream = assembler.take_events();
    stream.extend(assembler.complete(&Outcome::Completed, &Receipt::default()));
    let events = parse_stream(std::str::from_utf8(&stream).unwrap());
    assert_eq!(
        names(&events),
        ["created", "in_progress", "output_item.added", "output_item.done", "completed"]
    );
    let id = &events[2]["item"]["id"];
    assert_eq!(
        events[2]["item"],
        serde_json::json!({"type": "service:clock", "id": id, "status": "in_progress", "content": []})
    );
    let done = serde_json::json!({"type": "service:clock", "id": id, "status": "completed", "time": "now",
        "content": []});
    assert_eq!(events[3]["item"], done);
    assert_eq!(events[4]["response"]["model"], "local/other");
}

#[test]
fn calls_in_namespaces_and_of_custom_tools_go_to_the_client() {
    let mut assembler = Assembler::new(identity(), false);
    assembler.serve(served());
    let start =
        |key, namespace| CallStart { key, call_id: format!("c{key}"), name: "clock".to_owned(), namespace };
    assembler.apply(Event::FunctionCallStart(start(0, Some("n".to_owned())))).unwrap();
    assembler.apply(Event::CustomCallStart(start(1, None))).unwrap();
    assert!(assembler.end_turn().unwrap().is_empty() && assembler.has_client_calls());
    for (item_type, is_client_call) in [("shell_call", true), ("web_search_call", false)] {
        let mut assembler = Assembler::new(identity(), false);
        let item = serde_json::json!({ "type": item_type }).to_string();
        assembler.apply(Event::OpaqueItem(item.into_bytes())).unwrap();
        assert_eq!(assembler.has_client_calls(), is_client_call, "{item_type}");
    }
}

#[test]
fn a_result_beyond_the_limit_of_a_held_answer_leaves_room_for_a_smaller_one() {
    let mut assembler = Assembler::new(identity(), false);
    assembler.serve(served());
    assembler.apply(server_call(0, "c")).unwrap();
    let [call] = assembler.end_turn().unwrap().try_into().unwrap();
    assembler.limit(1_000);
    let large = serde_json::json!({ "error": "e".repeat(2_000) }).to_string();
    let finished = assembler.finish_call(call.item, ToolOutcome::Failed, large.as_bytes());
    assert_eq!(finished, Err(Malformed::TooLarge));
    assert_eq!(assembler.finish_call(call.item, ToolOutcome::Failed, b"{\"error\":\"e\"}"), Ok(()));
}

#[test]
fn usage_is_summed_over_turns_and_annotations_wait_for_the_next_text() {
    let usage = |input_tokens| Event::Usage(Usage { input_tokens, output_tokens: 1, ..cost::no_usage() });
    let mut assembler = Assembler::new(identity(), false);
    assembler.serve(served());
    for event in [text("Wait."), server_call(0, "c"), usage(5)] {
        assembler.apply(event).unwrap();
    }
    let [call] = assembler.end_turn().unwrap().try_into().unwrap();
    assembler.annotate_next(vec![b"{\"type\":\"a\"}".to_vec(), b"[]".to_vec(), b"{".to_vec()]);
    assembler.finish_call(call.item, ToolOutcome::Failed, b"{\"error\":\"e\"}").unwrap();
    assert_eq!(assembler.finish_call(call.item, ToolOutcome::Failed, b"[]"), Err(Malformed::InvalidJson));
    assembler.next_turn("local/demo", "default");
    for event in [text("So"), text(" it is"), usage(7)] {
        assembler.apply(event).unwrap();
    }
    let receipt = Receipt { server_tools: Some(ServerToolUse::default()), ..Receipt::default() };
    let response: Value = serde_json::from_slice(&assembler.complete(&Outcome::Completed, &receipt)).unwrap();
    assert_eq!(response["usage"]["input_tokens"], 12);
    assert_eq!(response["usage"]["total_tokens"], 14);
    assert_eq!(response["usage"]["cost_details"]["server_tool_cost"], 0);
    assert_eq!(response["output"][0]["content"][0]["annotations"], serde_json::json!([]));
    assert_eq!(response["output"][1]["error"], "e");
    assert_eq!(response["output"][2]["content"][0]["annotations"], serde_json::json!([{"type": "a"}]));
}

/// The annotations of all texts of an answer whose first turn found `https://a.test/x`, and whose
/// second turn has these events.
fn cited(second_turn: Vec<Event>) -> Vec<Value> {
    let mut assembler = Assembler::new(identity(), true);
    assembler.serve(served());
    assembler.apply(server_call(0, "c")).unwrap();
    let [call] = assembler.end_turn().unwrap().try_into().unwrap();
    let citation = br#"{"type":"url_citation","url":"https://a.test/x","title":"A"}"#;
    assembler.annotate_next(vec![citation.to_vec()]);
    assembler.finish_call(call.item, ToolOutcome::Completed, b"{}").unwrap();
    assembler.next_turn("local/demo", "default");
    for event in second_turn {
        assembler.apply(event).unwrap();
    }
    assembler.end_turn().unwrap();
    let stream = assembler.complete(&Outcome::Completed, &Receipt::default());
    let events = parse_stream(std::str::from_utf8(&stream).unwrap());
    let output = events.last().unwrap()["response"]["output"].as_array().unwrap();
    let messages = output.iter().filter(|item| item["type"] == "message");
    messages.map(|message| message["content"][0]["annotations"].clone()).collect()
}

#[test]
fn sources_are_cited_in_the_last_text_before_a_picture_or_a_call_that_the_client_answers() {
    let citation = |start: usize, end: usize| {
        serde_json::json!([{"type": "url_citation", "url": "https://a.test/x", "title": "A",
            "start_index": start, "end_index": end}])
    };
    let shell = || Event::OpaqueItem(br#"{"type":"shell_call","call_id":"s"}"#.to_vec());
    let picture = || Event::OpaqueItem(br#"{"type":"image_generation_call","result":"AA=="}"#.to_vec());
    let version = || {
        let media_type = "image/png".to_owned();
        Event::ImagePartial(Image { key: 1, partial_index: 0, base64: "AA==".to_owned(), media_type })
    };
    let none = serde_json::json!([]);
    for (events, annotations) in [
        (vec![text("So it is"), call(0)], vec![citation(8, 8)]),
        (vec![text("So it is"), shell()], vec![citation(8, 8)]),
        (vec![text("So it is"), picture()], vec![citation(8, 8)]),
        (vec![text("So it is"), version(), picture()], vec![citation(8, 8)]),
        (vec![picture(), text("So it is")], vec![citation(8, 8)]),
        (vec![text("See https://a.test/x"), picture(), text("b")], vec![citation(4, 20), none.clone()]),
        (vec![text("So it is"), call(0), server_call(1, "d")], vec![citation(8, 8)]),
        (vec![call(0), server_call(1, "d"), text("So")], vec![citation(2, 2)]),
        (vec![text("a"), call(0), text("See https://a.test/x")], vec![citation(1, 1), none.clone()]),
        // Another text can follow the call of a tool that runs here.
        (vec![text("So it is"), server_call(1, "d")], vec![none]),
    ] {
        assert_eq!(cited(events.clone()), annotations, "{events:?}");
    }
}

pub(super) fn any_event() -> impl Strategy<Value = Event> {
    let words = "[a-z\"\\\\\n\u{0}é🦀]{0,6}";
    prop_oneof![
        words.prop_map(|word| text(&word)),
        words.prop_map(Event::RefusalDelta),
        words.prop_map(Event::ReasoningTextDelta),
        (0u32..3, words).prop_map(|(part, text)| Event::ReasoningSummaryDelta(SummaryDelta { part, text })),
        (0u32..3).prop_map(call),
        (0u32..3, words).prop_map(|(key, text)| arguments(key, &text)),
        (0u32..3).prop_map(Event::CallEnd),
        (0u32..2, any::<bool>()).prop_map(|(key, done)| {
            let image = Image {
                key,
                partial_index: 0,
                base64: "AA==".to_owned(),
                media_type: "image/png".to_owned(),
            };
            if done { Event::ImageDone(image) } else { Event::ImagePartial(image) }
        }),
        Just(Event::Annotation(b"{\"type\":\"file_path\"}".to_vec())),
        Just(Event::OpaqueItem(b"{\"type\":\"mcp_call\"}".to_vec())),
        prop_oneof![Just("web_search_call"), Just("image_generation_call"), Just("code_interpreter_call")]
            .prop_map(|kind| {
                let item =
                    serde_json::json!({"type": kind, "status": "completed", "result": "AA==", "code": "1"});
                Event::OpaqueItem(item.to_string().into_bytes())
            }),
        proptest::option::of("[a-z]{1,4}").prop_map(Event::MessageStart),
        Just(Event::ReasoningSeal(ReasoningSeal {
            signature: None,
            encrypted_content: Some("e".to_owned()),
            format: None
        })),
    ]
}

/// Events of a turn, including calls of functions that the host runs.
fn any_turn() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => any_event(),
        1 => (0u32..3, "[a-c]{0,1}").prop_map(|(key, id)| server_call(key, &id)),
        1 => (0u32..9).prop_map(|input_tokens| Event::Usage(Usage {
            input_tokens: u64::from(input_tokens), ..cost::no_usage()
        })),
    ];
    proptest::collection::vec(event, 0..12)
}

proptest! {
    /// For any turns the stream is well formed, every call of a server tool is one item, and the
    /// items for the next turn are complete.
    #[test]
    fn any_turns_make_one_well_formed_stream(
        turns in proptest::collection::vec(any_turn(), 1..4), finished in proptest::collection::vec(0u8..3, 60)
    ) {
        let mut assembler = Assembler::new(identity(), true);
        assembler.serve(served());
        assembler.begin();
        let mut finished = finished.into_iter();
        let mut call_ids = Vec::new();
        let mut tokens = 0;
        for turn in turns {
            for event in turn {
                // Events that do not fit are refused. A real turn would end here.
                let _fits = assembler.apply(event).is_ok();
            }
            tokens += assembler.usage().map_or(0, |usage| usage.input_tokens);
            for call in assembler.end_turn().unwrap() {
                match finished.next() {
                    Some(0) => assembler.finish_call(call.item, ToolOutcome::Completed, b"{\"x\":1}").unwrap(),
                    Some(1) => assembler.finish_call(call.item, ToolOutcome::Failed, b"{}").unwrap(),
                    _ => {}
                }
                call_ids.push(call.call_id);
            }
            for item in assembler.turn_items() {
                let item: Value = serde_json::from_slice(&item).unwrap();
                prop_assert!(item["type"].is_string() && item.get("status").is_none_or(|status| status == "completed"));
            }
            if finished.len() % 2 == 0 {
                break;
            }
            assembler.next_turn("local/demo", "default");
        }
        let mut stream = assembler.take_events();
        stream.extend(assembler.complete(&Outcome::Completed, &Receipt::default()));
        let events = parse_stream(std::str::from_utf8(&stream).unwrap());
        let response = &events.last().unwrap()["response"];
        prop_assert_eq!(&response["usage"]["input_tokens"], tokens);
        let output = response["output"].as_array().unwrap();
        let served = output.iter().filter(|item| item["type"] == "service:clock").count();
        prop_assert_eq!(served, call_ids.len());
        call_ids.sort();
        call_ids.dedup();
        prop_assert_eq!(served, call_ids.len());
        for (index, item) in output.iter().enumerate() {
            let about = |name: &str| events.iter().filter(|e| e["type"] == name && e["output_index"] == index).count();
            prop_assert_eq!(about("response.output_item.added"), 1);
            prop_assert_eq!(about("response.output_item.done"), 1);
            prop_assert_ne!(&item["status"], "in_progress");
            prop_assert!(item["name"] != "clock" || item["type"] == "custom_tool_call");
        }
    }

    /// For any events of a guest the client receives a well-formed stream, whose parts add up to
    /// the final response.
    #[test]
    fn any_events_make_a_well_formed_stream(events in proptest::collection::vec(any_event(), 0..40)) {
        let mut assembler = Assembler::new(identity(), true);
        let mut silent = Assembler::new(identity(), false);
        assembler.begin();
        for event in events {
            let copy = event.clone();
            prop_assert_eq!(assembler.apply(event), silent.apply(copy));
        }
        let stream = assembler.complete(&Outcome::Completed, &Receipt::default());
        let body = silent.complete(&Outcome::Completed, &Receipt::default());
        let events = parse_stream(std::str::from_utf8(&stream).unwrap());
        let last = events.last().unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        prop_assert_eq!(&last["response"], &body);
        let output = body["output"].as_array().unwrap();
        for (index, item) in output.iter().enumerate() {
            let about = |name: &str| events.iter().filter(|e| e["type"] == name && e["output_index"] == index).count();
            prop_assert_eq!(about("response.output_item.added"), 1);
            prop_assert_eq!(about("response.output_item.done"), 1);
            prop_assert_ne!(&item["status"], "in_progress");
            let deltas: String = events
                .iter()
                .filter(|e| e["output_index"] == index && e["type"] == "response.function_call_arguments.delta")
                .map(|e| e["delta"].as_str().unwrap())
                .collect();
            if item["type"] == "function_call" {
                prop_assert_eq!(&item["arguments"], &deltas);
            }
        }
        let ids: std::collections::BTreeSet<&str> = output.iter().map(|item| item["id"].as_str().unwrap()).collect();
        prop_assert_eq!(ids.len(), output.len());
    }
}
