use super::super::tests::{identity, parse_stream};
use super::super::{Assembler, CallItem, Malformed, OUTPUT_BYTES_MAX, Outcome, Receipt, Served, ToolOutcome};
use crate::assembler::question_progress::{Note, QuestionProgress};
use cofferdam_runtime::wire::{CallStart, Event};
use serde_json::{Value, json};
use std::sync::Arc;

/// An assembler with one call of a tool, whose events have this word in their names.
fn assembler(events: Option<&str>) -> Assembler {
    let named = |name: &str| events.map(|word| format!("response.{word}.{name}")).into_iter().collect();
    let item = CallItem {
        added: named("in_progress"),
        completed: named("completed"),
        questions: events.map(str::to_owned),
        ..CallItem::own("service:talk".to_owned())
    };
    let mut assembler = Assembler::new(identity(), true);
    assembler.serve(Arc::new(Served::new([("talk".to_owned(), Arc::new(item))])));
    let (call_id, name) = ("c".to_owned(), "talk".to_owned());
    assembler.apply(Event::FunctionCallStart(CallStart { key: 0, call_id, name, namespace: None })).unwrap();
    assembler.apply(Event::CallEnd(0)).unwrap();
    assembler.end_turn().unwrap();
    assembler
}

fn tell(assembler: &mut Assembler, in_panel: bool, model: &str, note: Note) {
    assembler.show_progress(0, &QuestionProgress { in_panel, model: model.to_owned(), note }).unwrap();
}

fn answered(text: &str, reasoning: &str) -> Note {
    Note::Answered { text: text.to_owned(), reasoning: reasoning.to_owned() }
}

/// All events except those that begin and end the response, without sequence numbers.
fn events(mut assembler: Assembler) -> Vec<Value> {
    let stream = assembler.complete(&Outcome::Completed, &Receipt::default());
    let mut events = parse_stream(std::str::from_utf8(&stream).unwrap());
    for (place, event) in events.iter_mut().enumerate() {
        assert_eq!(event["sequence_number"], place);
        event.as_object_mut().unwrap().remove("sequence_number");
    }
    events.retain(|event| event["response"].is_null());
    events
}

#[test]
fn panel_and_analysis_events_come_between_the_call_and_its_end() {
    let mut talk = assembler(Some("talk_call"));
    tell(&mut talk, true, "a/b", Note::Asked);
    tell(&mut talk, true, "c/d", Note::Asked);
    tell(&mut talk, true, "c/d", Note::Failed { message: "down".to_owned(), status: 502 });
    tell(&mut talk, true, "a/b", answered("Yes", "Hm"));
    tell(&mut talk, false, "j/k", Note::Asked);
    tell(&mut talk, false, "j/k", answered(r#"{"consensus":["yes"]}"#, ""));
    talk.finish_call(0, ToolOutcome::Completed, b"{}").unwrap();
    let events = events(talk);
    let id = events[0]["item"]["id"].clone();
    let event = |name: &str, members: Value| {
        let mut event =
            json!({"type": format!("response.talk_call.{name}"), "item_id": id, "output_index": 0});
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        event
    };
    let told = [
        event("in_progress", json!({})),
        event("panel.added", json!({"model": "a/b"})),
        event("panel.added", json!({"model": "c/d"})),
        event("panel.failed", json!({"model": "c/d", "error": "down", "status_code": 502})),
        event("panel.reasoning.delta", json!({"model": "a/b", "delta": "Hm"})),
        event("panel.delta", json!({"model": "a/b", "delta": "Yes"})),
        event("panel.completed", json!({"model": "a/b", "content": "Yes"})),
        event("analysis.in_progress", json!({"judge_model": "j/k"})),
        event("analysis.completed", json!({"analysis": {"consensus": ["yes"]}})),
        event("completed", json!({})),
    ];
    assert_eq!(events[1..11], told);
    assert_eq!(events[11]["type"], "response.output_item.done");
    assert_eq!(events.len(), 12);
}

#[test]
fn an_analysis_without_json_has_no_completed_event() {
    let mut talk = assembler(Some("talk_call"));
    tell(&mut talk, false, "j/k", Note::Asked);
    tell(&mut talk, false, "j/k", answered("no JSON", ""));
    talk.finish_call(0, ToolOutcome::Failed, b"{}").unwrap();
    let names: Vec<_> = events(talk).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    let told =
        ["output_item.added", "talk_call.in_progress", "talk_call.analysis.in_progress", "output_item.done"];
    assert_eq!(names, told.map(|name| format!("response.{name}")));
}

#[test]
fn tools_without_question_events_write_none() {
    let mut talk = assembler(None);
    tell(&mut talk, true, "a/b", Note::Asked);
    talk.finish_call(0, ToolOutcome::Completed, b"{}").unwrap();
    assert_eq!(events(talk).len(), 2);
}

#[test]
fn answers_of_a_panel_count_as_output() {
    let mut talk = assembler(Some("talk_call"));
    let note = answered(&"x".repeat(OUTPUT_BYTES_MAX / 2 + 1), "");
    let progress = QuestionProgress { in_panel: true, model: "a/b".to_owned(), note };
    assert_eq!(talk.show_progress(0, &progress), Ok(()));
    assert_eq!(talk.show_progress(0, &progress), Err(Malformed::TooLarge));
}
