//! The examples that use the published kit as a third party does: each is copied out of the source tree,
//! built, checked, and does its work in a host.

use super::examples::is_tried;
use super::{Workshop, bad};
use crate::kit::client::{Client, last_response, read};
use crate::kit::config::{MODEL, priced, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script::chat;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Copies the files of a project, and names the kit from its new place.
fn copied(workshop: &Workshop, example: &str) {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests").canonicalize().unwrap();
    for (path, text) in super::examples::files(&guests.join("examples").join(example)) {
        let path = workshop.path(example).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("../../kit", guests.join("kit").to_str().unwrap())).unwrap();
    }
}

/// Builds and checks an example; the folder with its plugin.
fn built(workshop: &Workshop, example: &str) -> PathBuf {
    copied(workshop, example);
    let made = workshop.document(&["plugin", "build", example]);
    // The operator lets the example of a router take the place of the built-in one.
    std::fs::write(workshop.path("operator.toml"), "[plugins.router]\nreplaces = true\n").unwrap();
    let report = workshop.document(&["plugin", "check", example, "--config", "operator.toml"]);
    assert!(bad(&report).is_empty(), "{report}");
    let tested = workshop.document(&["plugin", "test", example]);
    assert_eq!(tested["failed"], 0, "{tested}");
    let component = workshop.path(".").join(made["component"].as_str().unwrap());
    let bytes = std::fs::read(component).unwrap();
    let path = workshop.path(".").canonicalize().unwrap();
    let path = path.to_str().unwrap().as_bytes();
    assert!(!bytes.windows(path.len()).any(|window| window == path), "{example} contains a path");
    workshop.path(&format!("{example}/plugins"))
}

fn started(config: &str, plugins: &Path) -> Host {
    Setup::new().config(config).plugins(plugins).start()
}

#[tokio::test]
async fn the_example_of_a_hook_puts_the_operators_rules_first() {
    if !is_tried("rust", &["cargo"]) {
        return;
    }
    let workshop = Workshop::new();
    let plugins = built(&workshop, "hook-house-rules");
    let upstream = Upstream::start().await;
    upstream.always(|_| chat("fine"));
    let rules = "[plugins.hook-house-rules.config]\nrules = \"Be brief.\"\n";
    let host = started(&format!("{}{rules}", single("openai-chat", &upstream.base)), &plugins);
    let plugins = json!([{"id": "house-rules"}]);
    let request = json!({"model": MODEL, "input": "Hi.", "instructions": "Be kind.", "plugins": plugins});
    Client::new(&host).ask(&request, false).await;
    let messages = &upstream.asked_once().body["messages"];
    assert!(messages[0]["content"].to_string().contains("Be brief.\\n\\nBe kind."), "{messages}");
}

#[tokio::test]
async fn the_example_of_a_router_puts_what_fails_often_last() {
    if !is_tried("rust", &["cargo"]) {
        return;
    }
    let workshop = Workshop::new();
    let plugins = built(&workshop, "router-reliable");
    let (cheap, dear) = (Upstream::start().await, Upstream::start().await);
    cheap.always(|_| Reply::json(500, json!({"error": {"message": "broken"}})));
    dear.always(|_| chat("fine"));
    let config = priced(&[(&cheap.base, 1.0), (&dear.base, 2.0)]);
    let host = started(&format!("{config}[plugins.router]\nreplaces = true\n"), &plugins);
    let client = Client::new(&host);
    let ask = async || {
        let request = client.request(reqwest::Method::POST, "/responses");
        let request = request.header("x-service-metadata", "enabled");
        read(request.body(json!({"model": MODEL, "input": "Hi."}).to_string()).send().await.unwrap()).await
    };
    let first = ask().await;
    assert_eq!((first.status, first.output_text()), (200, "fine"), "{}", first.text);
    assert_eq!(first.body["service_metadata"]["strategy"], "reliable", "{}", first.text);
    let failed = cheap.asked().len();
    assert!(failed > 0, "the cheapest endpoint comes first while nothing was measured");
    assert_eq!(ask().await.status, 200);
    assert_eq!(cheap.asked().len(), failed, "an endpoint that has just failed comes last");
}

#[tokio::test]
async fn the_example_of_a_provider_speaks_ollama() {
    if !is_tried("rust", &["cargo"]) {
        return;
    }
    let workshop = Workshop::new();
    let plugins = built(&workshop, "provider-ollama");
    let upstream = Upstream::start().await;
    let host = started(&single("ollama", &upstream.base), &plugins);
    let client = Client::new(&host);

    let call = json!({"function": {"name": "weather", "arguments": {"city": "Lyon"}}});
    let done = json!({"message": {"role": "assistant", "content": "", "tool_calls": [call]},
        "done": true, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3});
    upstream.reply(Reply::json(200, done));
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let request = json!({"model": MODEL, "input": "Weather in Lyon?", "instructions": "Be brief.",
        "max_output_tokens": 50, "temperature": 0.5,
        "tools": [{"type": "function", "name": "weather", "parameters": schema}]});
    let response = client.ask(&request, false).await;
    let called = &response["output"][0];
    assert_eq!(
        (&called["type"], &called["arguments"]),
        (&json!("function_call"), &json!(r#"{"city":"Lyon"}"#))
    );
    assert_eq!(response["usage"]["total_tokens"], 10, "{response}");
    let asked = upstream.asked_once();
    assert_eq!(asked.path, "/v1/chat");
    assert_eq!(asked.body["messages"][0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(asked.body["options"], json!({"num_predict": 50, "temperature": 0.5}));
    assert_eq!(asked.body["tools"][0]["function"]["parameters"], schema);

    upstream.reply(Reply::Stream { content_type: "application/x-ndjson", pieces: streamed() });
    let history = json!([
        {"role": "user", "content": "Weather in Lyon?"},
        called,
        {"type": "function_call_output", "call_id": called["call_id"], "output": "21 degrees"}
    ]);
    let events = client.stream(&json!({"model": MODEL, "input": history})).await;
    let response = last_response(&events);
    assert_eq!(response["output"][0]["type"], "reasoning", "{response}");
    assert_eq!(response["output"][1]["content"][0]["text"], "21 degrees.", "{response}");
    let messages = upstream.asked()[1].body["messages"].clone();
    assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], json!({"city": "Lyon"}));
    assert_eq!(messages[2], json!({"role": "tool", "tool_name": "weather", "content": "21 degrees"}));

    upstream.reply(Reply::json(404, json!({"error": "model 'm' not found"})));
    let refused = client.post("/responses", &json!({"model": MODEL, "input": "Hi."})).await;
    assert_eq!(refused.status, 404, "{}", refused.text);
    assert!(refused.text.contains("model 'm' not found"), "{}", refused.text);
}

/// An answer in lines that are cut at unusual places.
fn streamed() -> Vec<String> {
    let chunk = |message: Value| json!({"message": message, "done": false}).to_string() + "\n";
    let last = json!({"message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop",
        "prompt_eval_count": 9, "eval_count": 4});
    let lines = chunk(json!({"role": "assistant", "content": "", "thinking": "It is known."}))
        + &chunk(json!({"role": "assistant", "content": "21 "}))
        + &chunk(json!({"role": "assistant", "content": "degrees."}))
        + &last.to_string();
    let (head, rest) = lines.split_at(17);
    let (middle, tail) = rest.split_at(100);
    [head, middle, tail].map(str::to_owned).to_vec()
}
