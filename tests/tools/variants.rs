//! All 28 variants of server tools: which are offered to a model, and the error for any other type.

use super::script::answer;
use crate::kit::client::Client;
use crate::kit::config::{HOSTED_TOOLS, MODEL, model, provider, single, single_with_tools, with_keys};
use crate::kit::host::Setup;
use crate::kit::script::{message, response};
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

/// What a request with this tool type leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The provider gets the entry as it is.
    AsItIs,
    /// The provider gets functions, the first with this name.
    Function(&'static str),
    /// The tool is not sent to the provider.
    LeftOut,
    /// 400: nothing on this host has it, or it is not granted.
    NotHere,
}

use Fate::{AsItIs, Function, LeftOut, NotHere};

/// Each type with its fate at a chat endpoint and at a Responses endpoint.
fn table() -> Vec<(Value, Fate, Fate)> {
    let service = |name: &str| json!({"type": format!("service:{name}")});
    let display = json!({"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "browser"});
    let group = json!({"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "f"}]});
    vec![
        (json!({"type": "function", "name": "f", "parameters": {"type": "object"}}), Function("f"), AsItIs),
        (json!({"type": "custom", "name": "c"}), Function("c"), AsItIs),
        (group, Function("n__f"), AsItIs),
        (json!({"type": "web_search"}), LeftOut, AsItIs),
        (json!({"type": "web_search_2025_08_26"}), LeftOut, AsItIs),
        (json!({"type": "web_search_preview"}), LeftOut, AsItIs),
        (json!({"type": "web_search_preview_2025_03_11"}), LeftOut, AsItIs),
        (json!({"type": "file_search", "vector_store_ids": ["v"]}), NotHere, AsItIs),
        (display, NotHere, AsItIs),
        (
            json!({"type": "code_interpreter", "container": {"type": "auto"}}),
            Function("code_interpreter"),
            AsItIs,
        ),
        (json!({"type": "mcp", "server_label": "l", "server_url": "https://mcp.test"}), NotHere, AsItIs),
        (json!({"type": "image_generation"}), NotHere, AsItIs),
        (json!({"type": "local_shell"}), Function("local_shell"), AsItIs),
        (json!({"type": "shell"}), Function("shell"), AsItIs),
        (json!({"type": "apply_patch"}), Function("apply_patch"), AsItIs),
        (service("datetime"), Function("datetime"), Function("datetime")),
        (service("web_search"), NotHere, NotHere),
        (service("web_fetch"), NotHere, NotHere),
        (service("tool_search"), Function("tool_search"), Function("tool_search")),
        (service("experimental__search_models"), Function("search_models"), Function("search_models")),
        (service("image_generation"), NotHere, NotHere),
        (service("files"), Function("files_list"), Function("files_list")),
        (service("advisor"), NotHere, NotHere),
        (service("subagent"), NotHere, NotHere),
        (service("fusion"), NotHere, NotHere),
        (service("apply_patch"), Function("apply_patch"), Function("apply_patch")),
        (service("shell"), NotHere, NotHere),
        (service("bash"), NotHere, NotHere),
    ]
}

#[tokio::test]
async fn every_variant_is_offered_or_refused_by_its_place() {
    assert_eq!(table().len(), 28);
    let chat = table().into_iter().map(|(tool, in_chat, _)| (tool, in_chat));
    offer_all("openai-chat", || answer(false, "done"), chat).await;
    let responses = table().into_iter().map(|(tool, _, in_responses)| (tool, in_responses));
    offer_all("openai-responses", || response(&json!([message("done")])), responses).await;
}

async fn offer_all(dialect: &str, reply: impl Fn() -> Reply, tools: impl Iterator<Item = (Value, Fate)>) {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single_with_tools(dialect, &upstream.base)).start();
    let client = Client::new(&host);
    for (tool, fate) in tools {
        let type_name = tool["type"].as_str().unwrap();
        let before = upstream.asked().len();
        let request = json!({"model": MODEL, "input": "x", "tools": [tool]});
        if matches!(fate, AsItIs | Function(_) | LeftOut) {
            upstream.reply(reply());
            let answered = client.post("/responses", &request).await;
            assert_eq!(answered.status, 200, "{dialect} {type_name}: {}", answered.text);
            assert_eq!(answered.body["tools"][0]["type"], type_name);
            let asked = &upstream.asked()[before];
            let offered = &asked.body["tools"][0];
            let name = offered.get("function").unwrap_or(offered)["name"].clone();
            match fate {
                Function(function) => assert_eq!(name, function, "{dialect} {type_name}"),
                LeftOut => assert!(asked.body.get("tools").is_none(), "{dialect} {type_name}"),
                _ => assert_eq!(offered["type"], type_name, "{dialect}"),
            }
            continue;
        }
        let answered = client.post("/responses", &request).await;
        let text = format!("tools[0].type \"{type_name}\" is not available on this host");
        assert_eq!(answered.status, 400, "{dialect} {type_name}");
        // A tool that only lacks a grant has a hint after this text.
        assert!(answered.message().starts_with(&text), "{dialect}: {}", answered.message());
        assert_eq!(upstream.asked().len(), before, "{dialect} {type_name}");
    }
}

#[tokio::test]
async fn a_tool_that_only_another_model_has_is_a_different_error() {
    let upstream = Upstream::start().await;
    let other = with_keys(&model("test/other", "responses", &["two"]), "two", HOSTED_TOOLS);
    let more = provider("two", "openai-responses", &upstream.base) + &other;
    let host = Setup::new().config(&(single("openai-chat", &upstream.base) + &more)).start();
    let request =
        json!({"model": MODEL, "input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["v"]}]});
    let answered = Client::new(&host).post("/responses", &request).await;
    let text = "tools[0].type \"file_search\" is not offered by any endpoint of this model";
    assert_eq!((answered.status, answered.message()), (400, text));
}

#[tokio::test]
async fn what_this_host_has_not_is_refused_under_both_prefixes() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    for prefix in ["service:", "openrouter:"] {
        for name in ["bash", "shell", "file_search", "browser_use", "memory", "text_editor"] {
            let type_name = format!("{prefix}{name}");
            let request = json!({"model": MODEL, "input": "x", "tools": [{"type": type_name}]});
            let answered = client.post("/responses", &request).await;
            let text = format!("tools[0].type \"{type_name}\" is not available on this host");
            assert_eq!((answered.status, answered.message()), (400, text.as_str()));
        }
    }
}
