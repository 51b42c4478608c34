//! Whose secrets a request can use, and when changes take effect (egress rules R4, R23).

use super::{API, Bench, GRANT, OTHER, VALUE, assert_error, assert_ok};
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::script::{chat, chat_message};
use reqwest::Method;
use serde_json::{Value, json};

/// The `Authorization` header of the last request.
fn sent(bench: &Bench) -> Option<String> {
    bench.site.last().header("authorization").map(str::to_owned)
}

fn bearer(value: &str) -> Option<String> {
    Some(format!("Bearer {value}"))
}

async fn get(bench: &Bench, tool: &str, key: &str) -> Value {
    let told = json!({"requests": [{"url": bench.url(API, "/")}]});
    bench.run(tool, key, told).await["answers"][0].clone()
}

fn key(bench: &Bench, arguments: &[&str]) -> String {
    let made = bench.host.command(&[&["key", "create", "--workspace", "default"], arguments].concat());
    made["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn one_plugin_cannot_use_the_grant_of_another() {
    let bench = Bench::start(&format!("{GRANT}[plugins.tool-second]\nhosts = [\"{API}\"]\n")).await;
    bench.secret("api_key", VALUE, API);
    assert_ok(&get(&bench, "probe", &bench.host.key).await);
    assert_eq!(sent(&bench), bearer(VALUE));
    assert_ok(&get(&bench, "second", &bench.host.key).await);
    assert_eq!(sent(&bench), None);
    let named = json!({"requests": [{"url": bench.url(API, "/"), "injections": [{"secret": "api_key", "header": ["x-key", "", ""]}]}]});
    assert_error(&bench.run("second", &bench.host.key, named).await["answers"][0], "secret-unavailable");
    let elsewhere = json!({"requests": [{"url": bench.url(OTHER, "/")}]});
    assert_error(&bench.run("second", &bench.host.key, elsewhere).await["answers"][0], "denied");
    assert_eq!(bench.site.seen().len(), 2);
}

#[tokio::test]
async fn interns_and_workspaces_use_their_own_secrets() {
    let bench = Bench::start(GRANT).await;
    bench.host.command(&["workspace", "create", "other"]);
    for intern in ["ann", "bob"] {
        bench.host.command(&["intern", "create", intern, "--workspace", "default"]);
    }
    let (ann, bob) = (key(&bench, &["--intern", "ann"]), key(&bench, &["--intern", "bob"]));
    let other =
        bench.host.command(&["key", "create", "--workspace", "other"])["key"].as_str().unwrap().to_owned();
    bench.put("api_key", "sk-of-ann-1234", API, &["--intern", "ann"]);
    for (key, value) in
        [(&ann, bearer("sk-of-ann-1234")), (&bob, None), (&other, None), (&bench.host.key, None)]
    {
        assert_ok(&get(&bench, "probe", key).await);
        assert_eq!(sent(&bench), value);
    }
    bench.secret("api_key", VALUE, API);
    for (key, value) in [(&ann, bearer("sk-of-ann-1234")), (&bob, bearer(VALUE)), (&other, None)] {
        assert_ok(&get(&bench, "probe", key).await);
        assert_eq!(sent(&bench), value);
    }
    // An intern's own secret takes precedence even if it is bound to another host.
    bench.put("api_key", "sk-of-bob-1234", OTHER, &["--intern", "bob"]);
    assert_ok(&get(&bench, "probe", &bob).await);
    assert_eq!(sent(&bench), None);
}

#[tokio::test]
async fn deleting_or_replacing_a_secret_takes_effect_at_the_next_request() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    assert_ok(&get(&bench, "probe", &bench.host.key).await);
    let client = Client::new(&bench.host);
    let put =
        client.request(Method::PUT, "/vault/secrets/api_key").header("content-type", "application/json");
    let put = put.body(json!({"hosts": [API], "value": "sk-the-new-one"}).to_string()).send().await.unwrap();
    assert_eq!(put.status(), 200);
    assert_ok(&get(&bench, "probe", &bench.host.key).await);
    assert_eq!(sent(&bench), bearer("sk-the-new-one"));
    let deleted = client.request(Method::DELETE, "/vault/secrets/api_key").send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    assert_ok(&get(&bench, "probe", &bench.host.key).await);
    assert_eq!(sent(&bench), None);
}

#[tokio::test]
async fn legacy_secrets_are_never_sent() {
    let bench = Bench::start(&format!("{GRANT}injections = [{{ secret = \"api_key\", host = \"{API}\", header = \"x-key\", format = \"{{}}\" }}]\n")).await;
    let file = bench.host.directory().join("legacy.jsonl");
    std::fs::write(&file, json!({"name": "api_key", "value": VALUE}).to_string()).unwrap();
    bench.host.command(&["vault", "import-legacy", file.to_str().unwrap(), "--workspace", "default"]);
    assert_error(&get(&bench, "probe", &bench.host.key).await, "secret-unavailable");
    assert_eq!(bench.site.connections(), 0);
}

#[tokio::test]
async fn refusals_of_hooks_and_tools_of_one_request_count_together() {
    let mut bench = Bench::start(&format!("{GRANT}[plugins.hook-caller]\nimports = [\"tool-call\"]\n")).await;
    let refused = |count: usize| -> Value {
        let url = |index| json!({"url": format!("https://h{index}.test/")});
        json!({"requests": (0..count).map(url).collect::<Vec<_>>()})
    };
    let hook = json!([{"id": "caller", "tool": "probe", "function": "probe",
        "arguments": refused(16).to_string()}]);
    let shown = bench.run_after(hook, "probe", &bench.host.key, refused(1)).await;
    assert_eq!(shown["answers"][0]["error"], "exhausted");
    assert_eq!(bench.audit("request_refused").len(), 16);
}

#[tokio::test]
async fn refusals_of_questions_count_with_those_of_the_request() {
    let mut bench = Bench::start(&format!("{GRANT}[plugins.tool-asker]\nimports = [\"model\"]\n")).await;
    let url = |index| json!({"url": format!("https://h{index}.test/")});
    let refused = json!({"requests": (0..10).map(url).collect::<Vec<_>>()}).to_string();
    let question = json!({"model": MODEL, "input": "Why?", "tools": [{"type": "service:probe"}]});
    let asked = json!({"text": question.to_string()}).to_string();
    // The client's model calls the probe and then asks; the model that is asked calls the probe too.
    for (function, arguments) in [("probe", &refused), ("question", &asked), ("probe", &refused)] {
        let call = json!([{"id": format!("call_{function}"), "type": "function",
            "function": {"name": function, "arguments": arguments}}]);
        let message = json!({"role": "assistant", "content": "", "tool_calls": call});
        bench.model.reply(chat_message(&message, "tool_calls"));
    }
    bench.model.reply(chat("asked"));
    bench.model.reply(chat("done"));
    let tools = json!([{"type": "service:probe"}, {"type": "service:asker"}]);
    let request = json!({"model": MODEL, "input": "Go.", "tools": tools});
    let answer = Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let inner = &bench.model.asked()[3].body["messages"];
    let shown = inner.as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    assert_eq!(shown.matches("\"denied\"").count(), 6, "{shown}");
    assert_eq!(shown.matches("\"exhausted\"").count(), 4, "{shown}");
    assert_eq!(bench.audit("request_refused").len(), 16);
}

#[tokio::test]
async fn refusals_are_audited_and_cannot_fill_the_disk() {
    let mut bench = Bench::start(GRANT).await;
    let requests: Vec<Value> =
        (0..30).map(|index| json!({"url": format!("https://h{index}.test/path?query")})).collect();
    let shown = bench.run("probe", &bench.host.key, json!({ "requests": requests })).await;
    let errors: Vec<&str> =
        shown["answers"].as_array().unwrap().iter().map(|answer| answer["error"].as_str().unwrap()).collect();
    assert_eq!(errors.iter().filter(|error| **error == "denied").count(), 16);
    assert_eq!(errors.iter().filter(|error| **error == "exhausted").count(), 14);
    let refused = bench.audit("request_refused");
    assert_eq!(refused.len(), 16);
    assert_eq!((&refused[0]["host"], &refused[0]["reason"]), (&"h0.test".into(), &"host_not_granted".into()));
    assert_eq!(refused[0]["used_by"], "plugin tool-probe");
    assert!(!format!("{refused:?}").contains("query"));
}
