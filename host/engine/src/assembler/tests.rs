pub(super) mod any;
mod turns;

use super::*;
use crate::refusal::Refusal;
use cofferdam_runtime::wire::{ErrorKind, Finish, Image, ReasoningSeal, SummaryDelta, TextDelta};
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

fn served() -> Arc<Served> {
    let item = Arc::new(CallItem::own("service:clock".to_owned()));
    Arc::new(Served::new([("clock".to_owned(), item)]))
}

fn server_call(key: u32, call_id: &str) -> Event {
    let (call_id, name) = (call_id.to_owned(), "clock".to_owned());
    Event::FunctionCallStart(CallStart { key, call_id, name, namespace: None })
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
