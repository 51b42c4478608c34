//! Any events in any order make a well-formed answer.

use super::*;

pub(in crate::assembler) fn any_event() -> impl Strategy<Value = Event> {
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
