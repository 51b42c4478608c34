use cofferdam_guest_kit::bindings::tools::Guest;
use cofferdam_guest_kit::bindings::types::CallContext;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fields, SingleFunction, ToolError, ToolSearch, output, search};

fn max_of(settings: &[u8]) -> Result<usize, ToolError> {
    ToolSearch::settings(&Fields::settings(settings)?)
}

fn tools() -> Vec<u8> {
    let tool = |name: &str, description: &str, parameter: &str| {
        json!({
            "type": "function", "name": name, "description": description, "defer_loading": true,
            "parameters": { "type": "object", "properties": { parameter: { "type": "string", "description": "where" } } }
        })
    };
    let list = json!([
        tool("get_weather", "Current weather at a place", "city"),
        tool("weather_history", "Past temperatures", "city"),
        tool("github_create_issue", "Opens an issue in a repository", "repository"),
        tool("github_list_issues", "Lists issues", "repository"),
        tool("send_mail", "Sends a message. Never about weathering.", "recipient"),
        { "type": "function", "name": "bare", "parameters": null },
        { "type": "function" },
        7
    ]);
    list.to_string().into_bytes()
}

fn found(query: &str) -> Vec<String> {
    search(query, &tools(), 50).unwrap().into_iter().map(|tool| tool.name).collect()
}

fn refused(query: &str) -> String {
    match search(query, &tools(), 5) {
        Err(ToolError::InvalidArguments(message)) => message,
        other => panic!("{query:?}: {other:?}"),
    }
}

#[test]
fn names_come_before_descriptions_and_whole_words_before_parts() {
    assert_eq!(found("weather"), ["get_weather", "weather_history", "send_mail"]);
    assert_eq!(found("get weather"), ["get_weather", "weather_history", "send_mail"]);
    assert_eq!(found("CREATE an ISSUE")[0], "github_create_issue");
    assert_eq!(found("city"), ["get_weather", "weather_history"]);
    assert_eq!(found("bare"), ["bare"]);
    assert!(found("nothing like it").is_empty());
}

#[test]
fn patterns_are_regular_expressions_without_letter_case() {
    assert_eq!(found("^GITHUB_.*issue"), ["github_create_issue", "github_list_issues"]);
    assert_eq!(found("mail|history"), ["weather_history", "send_mail"]);
    assert_eq!(found(".*").len(), 6);
}

#[test]
fn a_malformed_or_oversized_pattern_gives_a_message() {
    assert!(refused("github_[").contains("not a regular expression"));
    assert!(refused("(a{1000}){1000}{1000}").contains("not a regular expression"));
    assert!(refused(&"(".repeat(150)).contains("not a regular expression"));
    assert!(refused(&"a*".repeat(101)).contains("more than 200 characters"));
    assert!(refused(" ... ").contains("at least one word"));
}

#[test]
fn results_are_limited_by_the_settings() {
    assert_eq!(max_of(b"").unwrap(), 5);
    assert_eq!(max_of(br#"{"max_results":50}"#).unwrap(), 50);
    for settings in [r#"{"max_results":0}"#, r#"{"max_results":51}"#, r#"{"max_results":"5"}"#, "[]"] {
        assert!(
            matches!(max_of(settings.as_bytes()), Err(ToolError::InvalidSettings(message))
                if message.starts_with("parameters")),
            "{settings}"
        );
    }
    assert_eq!(search("github", &tools(), 1).unwrap().len(), 1);
}

#[test]
fn the_item_names_query_and_matches() {
    let output = output("github", &search("github", &tools(), 5).unwrap());
    let item: Value = serde_json::from_slice(&output.item).unwrap();
    assert_eq!(item, json!({ "query": "github", "matches": ["github_create_issue", "github_list_issues"] }));
    assert!(output.for_model.contains("Opens an issue") && output.for_model.contains("next turn"));
}

#[test]
fn offers_one_function_with_the_same_bytes_each_time() {
    let offer = |settings: &str| {
        let context = CallContext { request_id: "r".into(), workspace: "w".into(), now_ms: 1 };
        let functions = ToolSearch::functions(settings.as_bytes().to_vec(), context).unwrap();
        let [function] = functions.as_slice() else { panic!() };
        (function.name.clone(), serde_json::from_slice::<Value>(&function.parameters).unwrap())
    };
    assert_eq!(offer("{}"), offer(r#"{"max_results":7}"#));
    let (name, schema) = offer("{}");
    assert_eq!((name.as_str(), &schema["required"]), ("tool_search", &json!(["query"])));
}

proptest! {
    #[test]
    fn no_query_and_no_list_breaks_the_search(
        query in "\\PC{0,40}|[\\\\(\\[{a*+?.|^$)\\]}0-9,]{0,40}",
        list in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        if let Ok(found) = search(&query, &tools(), 3) {
            prop_assert!(found.len() <= 3);
        }
        drop(search(&query, &list, 3));
    }
}
