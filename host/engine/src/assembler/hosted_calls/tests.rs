use super::super::tests::{identity, names, parse_stream};
use super::super::{Assembler, Outcome, Permits, Receipt};
use cofferdam_runtime::wire::{Event, Image};
use serde_json::{Value, json};

fn streamed(events: Vec<Event>) -> Vec<Value> {
    let mut assembler = Assembler::new(identity(), true);
    assembler.permit(Permits { mcp: true });
    assembler.begin();
    for event in events {
        assembler.apply(event).unwrap();
    }
    let stream = assembler.complete(&Outcome::Completed, &Receipt::default());
    let events = parse_stream(std::str::from_utf8(&stream).unwrap());
    let last = events.last().unwrap();
    for done in events.iter().filter(|event| event["type"] == "response.output_item.done") {
        let index = done["output_index"].as_u64().unwrap() as usize;
        assert_eq!(last["response"]["output"][index], done["item"]);
    }
    events
}

fn whole(item: &Value) -> Event {
    Event::OpaqueItem(item.to_string().into_bytes())
}

fn picture(index: u32) -> Image {
    Image { key: 0, partial_index: index, base64: "UEFSVA==".to_owned(), media_type: "image/png".to_owned() }
}

/// The events about one whole item, without those of the response. Each is about this item.
fn told(item: &Value) -> Vec<Value> {
    let mut events = streamed(vec![whole(item)]);
    events.retain(|event| event["response"].is_null());
    for event in &events {
        assert_eq!(event["output_index"], 0);
        let id = event.get("item_id").unwrap_or_else(|| &event["item"]["id"]);
        assert_eq!(id, &item["id"], "{event}");
    }
    assert_eq!(&events.last().unwrap()["item"], item);
    events
}

#[track_caller]
fn assert_told(item: &Value, added: &Value, between: &[&str]) -> Vec<Value> {
    let events = told(item);
    assert_eq!(&events[0]["item"], added);
    let names = names(&events);
    assert_eq!((names[0], names[names.len() - 1]), ("output_item.added", "output_item.done"));
    assert_eq!(names[1..names.len() - 1], *between);
    events
}

#[test]
fn searches_of_a_provider_are_added_without_results_and_stream_their_states() {
    for (item, added) in [
        (
            json!({"type": "web_search_call", "id": "ws_1", "status": "completed",
                "action": {"type": "search", "query": "q", "sources": []}}),
            json!({"type": "web_search_call", "id": "ws_1", "status": "in_progress"}),
        ),
        (
            json!({"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["q"],
                "results": [{"file_id": "f"}]}),
            json!({"type": "file_search_call", "id": "fs_1", "status": "in_progress", "queries": [],
                "results": null}),
        ),
    ] {
        let kind = item["type"].as_str().unwrap();
        let states = ["in_progress", "searching", "completed"].map(|state| format!("{kind}.{state}"));
        assert_told(&item, &added, &states.each_ref().map(String::as_str));
    }
}

#[test]
fn code_that_a_provider_ran_is_streamed_before_its_outputs() {
    let item = json!({"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "print(1)",
        "container_id": "cntr_1", "outputs": [{"type": "logs", "logs": "1"}]});
    let added = json!({"type": "code_interpreter_call", "id": "ci_1", "status": "in_progress", "code": "",
        "container_id": "cntr_1", "outputs": null});
    let between = [
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
    ];
    let events = assert_told(&item, &added, &between);
    assert_eq!((&events[2]["delta"], &events[3]["code"]), (&json!("print(1)"), &json!("print(1)")));
}

#[test]
fn calls_of_a_providers_mcp_server_stream_their_arguments_and_end_by_their_error() {
    for (error, last) in [(Value::Null, "mcp_call.completed"), (json!("down"), "mcp_call.failed")] {
        let item = json!({"type": "mcp_call", "id": "mcp_1", "server_label": "docs", "name": "find",
            "arguments": "{\"q\":1}", "output": "o", "error": error});
        let added = json!({"type": "mcp_call", "id": "mcp_1", "status": "in_progress", "server_label": "docs",
            "name": "find", "arguments": "", "output": null, "error": null});
        let between = ["mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done", last];
        let events = assert_told(&item, &added, &between);
        assert_eq!((&events[2]["delta"], &events[3]["arguments"]), (&item["arguments"], &item["arguments"]));
    }
    let item = json!({"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "docs", "tools": [{"name": "find"}]});
    let added = json!({"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "docs", "tools": []});
    assert_told(&item, &added, &["mcp_list_tools.in_progress", "mcp_list_tools.completed"]);
}

#[test]
fn calls_that_did_not_complete_do_not_stream_that_they_did() {
    for (item_type, status, between) in [
        ("mcp_call", "failed", &["mcp_call.in_progress", "mcp_call_arguments.done", "mcp_call.failed"][..]),
        ("web_search_call", "incomplete", &["web_search_call.in_progress"]),
        (
            "code_interpreter_call",
            "failed",
            &["code_interpreter_call.in_progress", "code_interpreter_call.interpreting"],
        ),
    ] {
        let item = json!({"type": item_type, "id": "i", "status": status});
        let events = told(&item);
        assert_eq!(names(&events)[1..events.len() - 1], *between, "{item}");
    }
}

#[test]
fn items_without_events_of_their_own_are_added_whole() {
    let item = json!({"type": "hologram_call", "id": "h_1", "status": "completed", "x": [1]});
    assert_told(&item, &item, &[]);
}

fn image(members: &Value) -> Value {
    let mut item = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed"});
    item.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    item
}

#[test]
fn a_picture_keeps_all_members_of_its_item() {
    let item = image(&json!({"result": "RE9ORQ==", "revised_prompt": "a cat", "size": "1024x1024"}));
    let added =
        json!({"type": "image_generation_call", "id": "ig_1", "status": "in_progress", "result": null});
    let states =
        ["in_progress", "generating", "completed"].map(|state| format!("image_generation_call.{state}"));
    assert_told(&item, &added, &states.each_ref().map(String::as_str));
}

#[test]
fn a_picture_takes_the_place_of_its_partial_versions() {
    for (members, last) in [
        (json!({"result": "RE9ORQ==", "revised_prompt": "a cat"}), Some("image_generation_call.completed")),
        (json!({"result": null, "status": "failed"}), None),
    ] {
        let item = image(&members);
        let events =
            streamed(vec![Event::ImagePartial(picture(0)), Event::ImagePartial(picture(1)), whole(&item)]);
        let mut expected = vec![
            "created",
            "in_progress",
            "output_item.added",
            "image_generation_call.in_progress",
            "image_generation_call.generating",
            "image_generation_call.partial_image",
            "image_generation_call.partial_image",
        ];
        expected.extend(last);
        expected.extend(["output_item.done", "completed"]);
        assert_eq!(names(&events), expected);
        let output = events.last().unwrap()["response"]["output"].as_array().unwrap();
        let id = &events[2]["item"]["id"];
        let mut done = item.clone();
        done["id"] = id.clone();
        assert_eq!((output.len(), &output[0]), (1, &done));
        assert!(events[3..events.len() - 2].iter().all(|event| &event["item_id"] == id), "{events:?}");
    }
}

#[test]
fn a_picture_that_never_finished_is_incomplete() {
    let events = streamed(vec![Event::ImagePartial(picture(0))]);
    assert_eq!(events.last().unwrap()["response"]["output"][0]["status"], "incomplete");
}
