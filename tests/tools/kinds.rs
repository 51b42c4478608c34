//! The client's own kinds of tools, for which a tool of this host stands in where an endpoint has none.

use super::script::{answer, call, calls};
use super::told;
use crate::kit::client::{Client, last_response, types_of};
use crate::kit::config::{MODEL, single};
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::script::{message, refusal, response};
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

const GRANTS: &str = "[plugins.tool-stand-in]\nimports = [\"request\"]";

/// A host with the stand-in and one provider of this dialect.
async fn host(dialect: &str) -> (Host, Upstream, tempfile::TempDir) {
    let upstream = Upstream::start().await;
    let guests = folder(&["tool-stand-in"]);
    let setup = Setup::new().config(&single(dialect, &upstream.base)).config(GRANTS);
    (setup.plugins(guests.path()).start(), upstream, guests)
}

fn request(tools: &Value) -> Value {
    json!({"model": MODEL, "input": "Go.", "tools": tools})
}

fn names(tools: &Value) -> Vec<&Value> {
    let tools = tools.as_array().unwrap().iter();
    tools.map(|tool| tool.get("function").unwrap_or(tool)).map(|tool| &tool["name"]).collect()
}

#[tokio::test]
async fn a_stand_in_is_offered_as_functions_and_shown_as_the_clients_kind_of_call() {
    let (host, upstream, _guests) = host("openai-chat").await;
    let tools = json!([{"type": "local_shell", "functions": ["echo", "fail"]}]);
    let made = [call("c1", "echo", r#"{"text":"ls"}"#), call("c2", "fail", r#"{"text":"rm"}"#)];
    upstream.reply(calls(true, "", &made));
    upstream.reply(answer(true, "done"));
    let events = Client::new(&host).stream(&request(&tools)).await;
    let about = |index: u64| -> Vec<&str> {
        let about = events.iter().filter(|event| event["output_index"] == index);
        about.map(|event| event["type"].as_str().unwrap()).collect()
    };
    let begin = [
        "response.output_item.added",
        "response.stand_in_call.in_progress",
        "response.stand_in_call_text.delta",
        "response.stand_in_call_text.done",
        "response.stand_in_call.starting",
        "response.stand_in_call.running",
    ];
    let ended = |last: &'static str| [&begin[..], &[last, "response.output_item.done"]].concat();
    assert_eq!(about(0), ended("response.stand_in_call.completed"));
    assert_eq!(about(1), ended("response.stand_in_call.failed"));
    let done = events.iter().find(|event| event["type"] == "response.stand_in_call_text.done").unwrap();
    assert_eq!((&done["text"], &done["output_index"]), (&json!("ls"), &json!(0)));
    let output = &last_response(&events)["output"];
    let id = output[0]["id"].as_str().unwrap();
    assert!(id.starts_with("si_") && done["item_id"] == id, "{done}");
    let item =
        json!({"type": "stand_in_call", "id": id, "status": "completed", "text": "ls", "outputs": null});
    assert_eq!(output[0], item);
    assert_eq!((&output[1]["status"], &output[1]["error"]), (&json!("failed"), &json!("it did not work")));
    assert_eq!(last_response(&events)["tools"], tools);
    let asked = upstream.asked();
    assert_eq!(names(&asked[0].body["tools"]), ["echo", "fail"]);
    assert_eq!(told(&asked[1])[0], "ls");
}

#[tokio::test]
async fn an_endpoint_with_the_kind_of_its_own_keeps_it() {
    let (host, upstream, _guests) = host("openai-responses").await;
    let tools = json!([{"type": "local_shell"}]);
    upstream.reply(response(&json!([message("done")])));
    let mut request = request(&tools);
    request["tool_choice"] = json!({"type": "local_shell"});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.output_text(), "done", "{}", answer.text);
    let asked = upstream.asked();
    assert_eq!((&asked[0].body["tools"], &asked[0].body["tool_choice"]), (&tools, &request["tool_choice"]));
}

#[tokio::test]
async fn each_endpoint_is_asked_in_its_own_terms() {
    let (own, other) = (Upstream::start().await, Upstream::start().await);
    let config = format!(
        "[[providers]]\nname = \"a\"\nadapter = \"openai-responses\"\nbase_url = \"{}\"\n\
         [[providers]]\nname = \"b\"\nadapter = \"openai-chat\"\nbase_url = \"{}\"\n\
         [[models]]\nid = \"{MODEL}\"\nendpoints = [{{ provider = \"a\", model = \"m\" }}, {{ provider = \"b\", model = \"m\" }}]\n{GRANTS}",
        own.base, other.base
    );
    let guests = folder(&["tool-stand-in"]);
    let host = Setup::new().config(&config).plugins(guests.path()).start();
    let tools = json!([{"type": "local_shell", "functions": ["echo"]}, {"type": "service:datetime"}]);
    let mut request = request(&tools);
    request["provider"] = json!({"order": ["a", "b"]});
    request["tool_choice"] =
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "local_shell"}]});
    own.reply(refusal(500, "down"));
    other.reply(calls(false, "", &[call("c1", "echo", r#"{"text":"ls"}"#)]));
    other.reply(answer(false, "done"));
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.output_text(), "done", "{}", answer.text);
    let (asked_own, asked_other) = (own.asked(), other.asked());
    assert_eq!((asked_own.len(), asked_other.len()), (1, 2));
    assert_eq!(asked_own[0].body["tools"][0]["type"], "local_shell");
    assert_eq!(asked_own[0].body["tool_choice"]["tools"], json!([{"type": "local_shell"}]));
    assert_eq!(names(&asked_other[0].body["tools"]), ["echo"]);
    assert_eq!(names(&asked_other[1].body["tools"]), ["echo"]);
}

#[tokio::test]
async fn choices_of_the_kind_force_its_functions() {
    let (host, upstream, _guests) = host("openai-chat").await;
    let mut request = request(&json!([{"type": "local_shell", "functions": ["echo"]}]));
    request["tool_choice"] = json!({"type": "local_shell"});
    upstream.reply(calls(false, "", &[call("c1", "echo", "{}")]));
    upstream.reply(answer(false, "done"));
    assert_eq!(Client::new(&host).post("/responses", &request).await.status, 200);
    let asked = upstream.asked();
    assert_eq!(asked[0].body["tool_choice"], json!({"type": "function", "function": {"name": "echo"}}));
    assert_eq!(asked[1].body["tool_choice"], "auto");
}

#[tokio::test]
async fn a_stand_in_gives_way_to_functions_of_the_same_name() {
    for (dialect, status) in [("openai-chat", 400), ("openai-responses", 200)] {
        let (host, upstream, _guests) = host(dialect).await;
        let own = json!({"type": "function", "name": "echo", "parameters": {"type": "object"}});
        let tools = json!([{"type": "local_shell", "functions": ["echo"]}, own]);
        upstream.reply(response(&json!([message("done")])));
        let mut request = request(&tools);
        // A server tool beside it: the host has to look at every entry.
        request["tools"].as_array_mut().unwrap().push(json!({"type": "service:datetime"}));
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(answer.status, status, "{dialect}: {}", answer.text);
        if status == 400 {
            assert_eq!(answer.message(), "tools[0] and tools[1] both offer a function named \"echo\"");
        }
    }
}

#[tokio::test]
async fn a_kind_that_nobody_has_is_refused_by_its_place() {
    let (host, _upstream, _guests) = host("openai-chat").await;
    let tools = json!([{"type": "local_shell"}, {"type": "shell"}]);
    let answer = Client::new(&host).post("/responses", &request(&tools)).await;
    assert_eq!(
        (answer.status, answer.message()),
        (400, "tools[1].type \"shell\" is not offered by any endpoint of this model")
    );
}

#[tokio::test]
async fn a_call_that_is_the_clients_to_answer_ends_the_response_unless_it_failed() {
    let (host, upstream, _guests) = host("openai-chat").await;
    let tools = json!([{"type": "openrouter:stand_in"}]);
    for streamed in [false, true] {
        let before = upstream.asked().len();
        upstream.reply(calls(streamed, "", &[call("c1", "fail", "{}")]));
        upstream.reply(calls(streamed, "", &[call("c2", "echo", r#"{"text":"do it"}"#)]));
        let client = Client::new(&host);
        let response = if streamed {
            let events = client.stream(&request(&tools)).await;
            assert!(!types_of(&events).iter().any(|name| name.contains("stand_in")));
            last_response(&events).clone()
        } else {
            client.post("/responses", &request(&tools)).await.body
        };
        assert_eq!(response["status"], "completed");
        let output = response["output"].as_array().unwrap();
        let shown: Vec<_> = output.iter().map(|item| (&item["status"], &item["call_id"])).collect();
        assert_eq!(shown, [(&json!("failed"), &json!("c1")), (&json!("completed"), &json!("c2"))]);
        assert_eq!(output[1]["type"], "openrouter:stand_in");
        assert_eq!(upstream.asked().len(), before + 2);
    }
}
