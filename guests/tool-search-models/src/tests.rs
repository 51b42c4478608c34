use cofferdam_guest_kit::bindings::tools::Guest;
use cofferdam_guest_kit::bindings::types::CallContext;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fields, Output, SearchModels, SingleFunction, ToolError, render};

fn max_of(settings: &[u8]) -> Result<usize, ToolError> {
    SearchModels::settings(&Fields::settings(settings)?)
}

fn catalog() -> Vec<u8> {
    let model = |id: &str, kind: &str, context: Value, endpoints: Value| {
        json!({
            "id": id, "object": "model", "created": 0, "owned_by": "x", "kind": kind,
            "context_length": context, "endpoints": endpoints
        })
    };
    let endpoint = |provider: &str, supports: Value, input: f64, output: f64| {
        json!({
            "provider": provider, "tier": "default", "context_length": null, "supports": supports,
            "pricing": { "input": input, "output": output, "cached_input": 0.0, "image": 0.0 }
        })
    };
    json!([
        model("anthropic/claude-large", "responses", json!(200_000), json!([
            endpoint("anthropic", json!(["tools", "images"]), 3.0, 15.0),
            endpoint("cloud", json!(["tools"]), 2.0, 14.0),
        ])),
        model("openai/gpt-small", "responses", json!(128_000), json!([endpoint("openai", json!(["tools"]), 0.1, 0.4)])),
        model("meta/llama", "responses", Value::Null, json!([endpoint("ollama", json!([]), 0.0, 0.0)])),
        model("openai/embed", "embeddings", json!(8_192), json!([endpoint("openai", json!([]), 0.02, 0.0)])),
        { "name": "without id" },
        7
    ])
    .to_string()
    .into_bytes()
}

fn rendered(arguments: &str) -> Output {
    render(arguments.as_bytes(), &catalog(), 20).unwrap()
}

fn ids(arguments: &str) -> Vec<String> {
    let rendered: Value = serde_json::from_str(&rendered(arguments).for_model).unwrap();
    rendered["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn words_are_found_in_ids_kinds_providers_and_abilities() {
    assert_eq!(ids(r#"{"query":"Claude"}"#), ["anthropic/claude-large"]);
    assert_eq!(ids(r#"{"query":"embeddings"}"#), ["openai/embed"]);
    assert_eq!(ids(r#"{"query":"ollama"}"#), ["meta/llama"]);
    assert_eq!(ids(r#"{"query":"openai"}"#), ["openai/gpt-small", "openai/embed"]);
    assert_eq!(ids(r#"{"query":"openai embed"}"#)[0], "openai/embed");
    assert_eq!(ids(r#"{"query":"images"}"#), ["anthropic/claude-large"]);
    assert!(ids(r#"{"query":"zebra"}"#).is_empty());
    assert_eq!(ids("").len(), 4);
}

#[test]
fn context_price_and_abilities_narrow_the_list() {
    assert_eq!(ids(r#"{"min_context_length":100000}"#), ["anthropic/claude-large", "openai/gpt-small"]);
    assert_eq!(ids(r#"{"supports":["TOOLS"],"max_input_price":1}"#), ["openai/gpt-small"]);
    assert_eq!(ids(r#"{"supports":["tools","images"],"max_input_price":2.5}"#), Vec::<String>::new());
    assert_eq!(ids(r#"{"max_output_price":14,"query":"claude"}"#), ["anthropic/claude-large"]);
    assert_eq!(
        ids(r#"{"sort":"price"}"#),
        ["meta/llama", "openai/embed", "openai/gpt-small", "anthropic/claude-large"]
    );
    assert_eq!(ids(r#"{"sort":"context_length"}"#)[0], "anthropic/claude-large");
}

#[test]
fn a_model_has_its_cheapest_price_and_all_abilities() {
    let rendered: Value = serde_json::from_str(&rendered(r#"{"query":"claude"}"#).for_model).unwrap();
    assert_eq!(
        rendered["models"][0],
        json!({
            "id": "anthropic/claude-large", "kind": "responses", "context_length": 200_000,
            "supports": ["images", "tools"], "providers": ["anthropic", "cloud"],
            "input_price": 2.0, "output_price": 14.0
        })
    );
    assert_eq!((&rendered["found"], &rendered["offered"]), (&json!(1), &json!(4)));
}

#[test]
fn the_item_repeats_query_and_arguments() {
    let item: Value = serde_json::from_slice(&rendered(r#"{"query":" Claude "}"#).item).unwrap();
    assert_eq!(item, json!({ "query": "Claude", "arguments": r#"{"query":" Claude "}"# }));
    let long = rendered(&json!({"query": "é".repeat(5_000)}).to_string());
    let item: Value = serde_json::from_slice(&long.item).unwrap();
    assert_eq!(item, json!({"query": "é".repeat(1_000), "arguments": ""}));
}

#[test]
fn wrong_fields_are_named() {
    for (arguments, field) in [
        (r#"{"query":7}"#, "query"),
        (r#"{"supports":"tools"}"#, "supports"),
        (r#"{"min_context_length":-1}"#, "min_context_length"),
        (r#"{"max_input_price":"1"}"#, "max_input_price"),
        (r#"{"sort":"random"}"#, "sort"),
    ] {
        let error = render(arguments.as_bytes(), &catalog(), 5).unwrap_err();
        assert!(
            matches!(error, ToolError::InvalidArguments(message) if message.starts_with(field)),
            "{arguments}"
        );
    }
    for settings in [r#"{"max_results":21}"#, r#"{"max_results":0}"#, "7"] {
        assert!(matches!(max_of(settings.as_bytes()), Err(ToolError::InvalidSettings(_))), "{settings}");
    }
    assert_eq!((max_of(b"{}").unwrap(), max_of(br#"{"max_results":20}"#).unwrap()), (5, 20));
}

#[test]
fn offers_one_function_with_the_same_bytes_each_time() {
    let offer = |settings: &str| {
        let context = CallContext { request_id: "r".into(), workspace: "w".into(), now_ms: 1 };
        let functions = SearchModels::functions(settings.as_bytes().to_vec(), context).unwrap();
        let [function] = functions.as_slice() else { panic!() };
        (function.name.clone(), serde_json::from_slice::<Value>(&function.parameters).unwrap())
    };
    assert_eq!(offer("{}"), offer(r#"{"max_results":7}"#));
    assert_eq!(offer("{}").0, "search_models");
}

proptest! {
    #[test]
    fn no_arguments_and_no_catalog_break_the_search(
        query in "\\PC{0,40}",
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        render(json!({ "query": query }).to_string().as_bytes(), &catalog(), 3).unwrap();
        drop(render(&bytes, &catalog(), 3));
        drop(render(b"{}", &bytes, 3));
    }
}
