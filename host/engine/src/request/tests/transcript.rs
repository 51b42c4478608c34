//! The items of an input, as the tools of a request distinguish them.

use super::accepted;
use crate::request::{PlainItem, ToolResult, TranscriptItem, read_transcript};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(items: &[Value], substituted: &[&str], declared: &[&str]) -> Vec<TranscriptItem> {
    let owned = |types: &[&str]| -> Vec<String> { types.iter().map(|&kind| kind.to_owned()).collect() };
    let request = accepted(&json!({"model": "a/b", "input": items}));
    read_transcript(&request.input_array(), &owned(substituted), &owned(declared)).unwrap()
}

#[test]
fn the_types_that_tools_handle_decide_what_an_item_is() {
    let items = [
        json!({"type": "function_call", "call_id": "own", "name": "f", "arguments": "{}"}),
        json!({"type": "web_search_call", "id": "ws", "action": {"query": "foxes"}}),
        json!({"type": "mcp_list_tools", "server_label": "s"}),
    ];
    let [call, search, listed] = read(&items, &[], &["mcp_list_tools"]).try_into().unwrap();
    let json = |item: &TranscriptItem| match item {
        TranscriptItem::Plain(item) => serde_json::from_slice::<Value>(item.json()).unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(&call, TranscriptItem::Plain(PlainItem::Call(_))));
    assert!(matches!(&search, TranscriptItem::Plain(PlainItem::Other(_))));
    assert!(matches!(&listed, TranscriptItem::Plain(PlainItem::Declared(_))));
    assert_eq!([json(&call), json(&search), json(&listed)], items);
    let [_, search, result, _] = read(&items, &["web_search_call"], &[]).try_into().unwrap();
    let TranscriptItem::ServerCall(call, Some(ToolResult::Text(text))) = search else { panic!("{search:?}") };
    assert_eq!((&*call.tool, &*call.call_id, &*call.arguments), ("web_search", "ws", "{}"));
    assert_eq!(text, r#"{"action":{"query":"foxes"}}"#);
    assert!(matches!(result, TranscriptItem::Result(1, _)));
}

#[test]
fn text_that_is_not_json_has_no_items() {
    assert!(read_transcript(&Bytes::from_static(b"[{]"), &[], &[]).is_none());
}

proptest! {
    #[test]
    fn a_call_has_the_next_result_with_its_id_that_no_earlier_call_has(
        items in prop::collection::vec((any::<bool>(), "[ab]"), 1..12),
    ) {
        let written: Vec<Value> = items.iter().map(|(is_call, id)| match is_call {
            true => json!({"type": "function_call", "call_id": id, "name": "service:x", "arguments": "{}"}),
            false => json!({"type": "function_call_output", "call_id": id, "output": "x"}),
        }).collect();
        let mut expected = vec![None; items.len()];
        for (place, (_, id)) in items.iter().enumerate().filter(|(_, (is_call, _))| *is_call) {
            let is_next = |at: &usize| items[*at] == (false, id.clone()) && expected[*at].is_none();
            if let Some(at) = (place..items.len()).find(is_next) {
                expected[at] = Some(place);
            }
        }
        let found: Vec<Option<usize>> = read(&written, &[], &[]).iter().map(|item| match item {
            TranscriptItem::Result(call, _) => Some(*call),
            _ => None,
        }).collect();
        prop_assert_eq!(found, expected);
    }
}
