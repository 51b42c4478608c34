//! Server tools called by a hook in place of a model.

use super::script::{answer, call, calls};
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::store::usage_of;
use crate::kit::upstream::Upstream;
use cofferdam_store::UsageOutcome;
use serde_json::{Value, json};

async fn bench() -> (Host, Upstream, tempfile::TempDir) {
    let upstream = Upstream::start().await;
    let guests = folder(&["hook-caller", "tool-rogue"]);
    let grants =
        "[plugins.hook-caller]\nimports = [\"tool-call\"]\n[plugins.tool-rogue]\nimports = [\"request\"]";
    let setup = Setup::new().config(&single("openai-chat", &upstream.base)).config(grants);
    (setup.plugins(guests.path()).start(), upstream, guests)
}

fn request(tool: &str, function: &str, arguments: &str) -> Value {
    json!({"model": MODEL, "input": "x", "plugins": [
        {"id": "caller", "tool": tool, "function": function, "arguments": arguments}]})
}

#[tokio::test]
async fn a_hook_gets_the_result_that_a_model_would_get() {
    let (host, upstream, _guests) = bench().await;
    let table = [
        ("rogue", "echo", r#"{"text":"hi"}"#, "\"hi\""),
        ("rogue", "echo", r#"{"text":"{\"a\":1}"}"#, "{\"a\":1}"),
        ("rogue", "refuse", "{}", "invalid arguments"),
        ("rogue", "echo", "[]", "invalid arguments"),
        ("rogue", "fail", "{}", "failed"),
        ("rogue", "trap", "{}", "failed"),
        ("rogue", "hang", "", "exhausted"),
        ("unheard_of", "echo", "{}", "unavailable"),
        // The tool is installed, but not granted.
        ("web_fetch", "web_fetch", "{}", "unavailable"),
    ];
    for (tool, function, arguments, told) in table {
        upstream.reply(answer(false, "fine"));
        let answer = Client::new(&host).post("/responses", &request(tool, function, arguments)).await;
        assert_eq!(answer.status, 200, "{tool} {function}: {}", answer.text);
        let asked = upstream.asked().pop().unwrap();
        assert_eq!(
            asked.body["messages"][0],
            json!({"role": "system", "content": told}),
            "{tool} {function}"
        );
    }
}

/// A second plugin of the same component, with the type `twin`.
fn add_twin(guests: &tempfile::TempDir) {
    let path = |name: &str| guests.path().join(name);
    let manifest = std::fs::read_to_string(path("tool-rogue.toml")).unwrap();
    let manifest = manifest.replace("\"tool-rogue\"", "\"tool-twin\"").replace("\"rogue\"", "\"twin\"");
    std::fs::write(path("tool-twin.toml"), manifest).unwrap();
    std::fs::copy(path("tool-rogue.wasm"), path("tool-twin.wasm")).unwrap();
}

#[tokio::test]
async fn one_key_of_scratch_is_another_value_for_each_plugin_and_each_request() {
    let (upstream, guests) = (Upstream::start().await, folder(&["hook-caller", "tool-rogue"]));
    add_twin(&guests);
    let grants = "[plugins.hook-caller]\nimports = [\"tool-call\"]\n[plugins.tool-rogue]\nimports = [\"request\"]\n\
        [plugins.tool-twin]\nimports = [\"request\"]\n";
    let setup = Setup::new().config(&single("openai-chat", &upstream.base)).config(grants);
    let host = setup.plugins(guests.path()).start();
    // The hook has a tool keep a value, then the model has the tool `rogue` tell what it finds under the same key.
    for (tool, told) in [("twin", "before: "), ("rogue", "before: of the hook"), ("twin", "before: ")] {
        upstream.reply(calls(false, "", &[call("c1", "remember", r#"{"text":"of the model"}"#)]));
        upstream.reply(answer(false, "fine"));
        let mut request = request(tool, "remember", r#"{"text":"of the hook"}"#);
        request["tools"] = json!([{"type": "service:rogue"}]);
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(answer.status, 200, "{tool}: {}", answer.text);
        let asked = upstream.asked().pop().unwrap();
        let messages = asked.body["messages"].as_array().unwrap();
        assert_eq!(messages[0]["content"], "\"before: \"", "{tool}: {messages:?}");
        let result = messages.iter().find(|message| message["role"] == "tool").unwrap();
        assert_eq!(result["content"], told, "{tool}: {messages:?}");
    }
}

#[tokio::test]
async fn what_a_hooks_tools_cost_is_added() {
    let (mut host, upstream, _guests) = bench().await;
    upstream.reply(answer(false, "fine"));
    let answer = Client::new(&host).post("/responses", &request("rogue", "charge", "{}")).await;
    assert_eq!(answer.body["usage"]["cost"], 0.25, "{}", answer.text);
    let rows = usage_of(&mut host);
    assert_eq!(rows.iter().map(|row| row.cost_pico).collect::<Vec<_>>(), [250_000_000_000]);
}

#[tokio::test]
async fn a_tool_without_a_price_is_charged_at_most_a_hundred_dollars_a_call() {
    let (mut host, upstream, _guests) = bench().await;
    upstream.reply(answer(false, "fine"));
    let all = json!({"text": u64::MAX.to_string()}).to_string();
    let answer = Client::new(&host).post("/responses", &request("rogue", "charge", &all)).await;
    assert_eq!(answer.body["usage"]["cost"], json!(100), "{}", answer.text);
    assert_eq!(usage_of(&mut host)[0].cost_pico, 100_000_000_000_000);
}

#[tokio::test]
async fn what_a_hooks_tools_cost_is_in_the_books_also_when_the_request_is_refused_right_after() {
    let (mut host, _upstream, _guests) = bench().await;
    let mut unserved = request("rogue", "charge", "{}");
    unserved["tools"] = json!([{"type": "file_search", "vector_store_ids": ["v"]}]);
    assert_eq!(Client::new(&host).post("/responses", &unserved).await.status, 400);
    let rows = usage_of(&mut host);
    let told: Vec<_> = rows.iter().map(|row| (row.outcome, row.cost_pico, row.attempts)).collect();
    assert_eq!(told, [(UsageOutcome::Failed, 250_000_000_000, 0)]);
}

#[tokio::test]
async fn a_request_that_a_hook_replaced_keeps_its_server_tools() {
    let (host, upstream, _guests) = bench().await;
    let mut request = request("rogue", "echo", r#"{"text":"Be brief."}"#);
    request["tools"] = json!([{"type": "service:datetime"}]);
    upstream.reply(calls(false, "", &[call("c", "datetime", "{}")]));
    upstream.reply(answer(false, "done"));
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.output_text(), "done", "{}", answer.text);
    let asked = upstream.asked();
    let roles: Vec<_> =
        asked[1].body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
    assert_eq!(asked[1].body["messages"][0]["content"], "\"Be brief.\"");
}
