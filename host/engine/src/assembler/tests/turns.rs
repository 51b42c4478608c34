//! Answers of several turns, with calls of server tools between them.

use super::*;

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
