//! Several calls in one turn, and calls of the client's own functions among them.

use super::reach::Reach;
use super::script::{answer, call, calls};
use super::{Bench, told, with_tool};
use crate::kit::client::{Client, last_response};
use crate::kit::config::MODEL;
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

fn with_fetch() -> Value {
    json!({"model": MODEL, "input": "x", "tools": [{"type": "service:web_fetch"}]})
}

fn mixed() -> Value {
    json!({"model": MODEL, "input": "x", "tools": [
        {"type": "function", "name": "mine", "parameters": {"type": "object"}}, {"type": "service:rogue"}]})
}

#[tokio::test]
async fn calls_of_one_turn_wait_for_other_hosts_at_the_same_time() {
    let reach = Reach::start(|_| "[plugins.tool-web-fetch]\nhosts = [\"api.test\"]\n".to_owned()).await;
    for (round, streamed) in [false, true].into_iter().enumerate() {
        let urls = ["/a", "/b"].map(|path| json!({"url": reach.url(path)}).to_string());
        let made = [call("c1", "web_fetch", &urls[0]), call("c2", "web_fetch", &urls[1])];
        let (a, reply_a) = Reply::fed_as("text/plain");
        let (b, reply_b) = Reply::fed_as("text/plain");
        reach.site.reply_at("/a", reply_a);
        reach.site.reply_at("/b", reply_b);
        let request = with_fetch();
        let answered = async {
            // Neither request is answered before both have arrived.
            reach.site.until(2 * (round + 1)).await;
            a.send("first".to_owned()).await.unwrap();
            b.send("second".to_owned()).await.unwrap();
            drop((a, b));
        };
        let ((response, _), ()) = tokio::join!(reach.run(&request, streamed, &made, "done"), answered);
        for item in &response["output"].as_array().unwrap()[..2] {
            assert_eq!(item["status"], "completed", "{response}");
        }
    }
}

#[tokio::test]
async fn results_come_in_the_order_of_the_calls() {
    let bench = Bench::start().await;
    let made = [
        call("c1", "hang", "{}"),
        call("c2", "echo", r#"{"text":"2"}"#),
        call("c3", "echo", r#"{"text":"3"}"#),
    ];
    bench.upstream.reply(calls(true, "", &made));
    bench.upstream.reply(answer(true, "done"));
    let events = Client::new(&bench.host).stream(&with_tool("service:rogue")).await;
    let done: Vec<u64> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| event["output_index"].as_u64().unwrap())
        .collect();
    assert_eq!(done, [0, 1, 2, 3]);
    assert_eq!(told(&bench.asked_last())[1..], ["2", "3"]);
}

#[tokio::test]
async fn a_tool_keeps_bytes_between_its_calls_of_one_request() {
    let bench = Bench::start().await;
    for _ in 0..2 {
        bench.upstream.reply(calls(false, "", &[call("c1", "remember", r#"{"text":"one"}"#)]));
        bench.upstream.reply(calls(false, "", &[call("c2", "remember", r#"{"text":"two"}"#)]));
        bench.upstream.reply(answer(false, "done"));
        bench.ask(&with_tool("service:rogue"), false).await;
        assert_eq!(told(&bench.asked_last()), ["before: ", "before: one"]);
    }
}

#[tokio::test]
async fn a_tool_sees_the_models_and_the_transcript() {
    let bench = Bench::start().await;
    let made = [call("c1", "look", r#"{"text":"models"}"#), call("c2", "look", r#"{"text":"transcript"}"#)];
    bench.upstream.reply(calls(false, "Let me see.", &made));
    bench.upstream.reply(answer(false, "done"));
    bench.ask(&with_tool("service:rogue"), false).await;
    let asked = bench.asked_last();
    let told = told(&asked);
    let models: Value = serde_json::from_str(told[0]).unwrap();
    // Tools do not see the additional fields for OpenRouter clients.
    let shown = &Client::new(&bench.host).get("/models").await.body["data"][0];
    let members = models[0].as_object().unwrap();
    assert!(members.contains_key("endpoints") && members.iter().all(|(name, value)| &shown[name] == value));
    let transcript: Value = serde_json::from_str(told[1]).unwrap();
    let types: Vec<_> = transcript.as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(types, ["message", "message", "function_call", "function_call"]);
    assert_eq!(transcript[0]["content"][0]["text"], "Go.");
}

#[tokio::test]
async fn citations_of_a_tool_stand_in_the_next_text() {
    let bench = Bench::start().await;
    let made = [
        call("c1", "cite", r#"{"text":"https://a.test"}"#),
        call("c2", "cite", r#"{"text":"https://b.test"}"#),
    ];
    let whole = bench.run(&with_tool("service:rogue"), false, &made).await;
    let annotations = &whole["output"][2]["content"][0]["annotations"];
    let urls: Vec<_> = annotations.as_array().unwrap().iter().map(|annotation| &annotation["url"]).collect();
    assert_eq!(urls, [&json!("https://a.test"), &Value::Null, &json!("https://b.test"), &Value::Null]);
    bench.upstream.reply(calls(true, "", &made));
    bench.upstream.reply(answer(true, "done"));
    let events = Client::new(&bench.host).stream(&with_tool("service:rogue")).await;
    let added: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.annotation.added")
        .map(|event| (&event["output_index"], &event["annotation_index"], &event["annotation"]))
        .collect();
    assert_eq!(added.len(), 4);
    assert_eq!(added[2], (&json!(2), &json!(2), &annotations[2]));
    assert_eq!(&last_response(&events)["output"][2]["content"][0]["annotations"], annotations);
}

#[tokio::test]
async fn a_call_of_the_clients_function_ends_the_response_after_the_server_calls_ran() {
    let bench = Bench::start().await;
    for streamed in [false, true] {
        let made = [
            call("c1", "mine", r#"{"x":1}"#),
            call("c2", "echo", r#"{"text":"2"}"#),
            call("c3", "mine", r#"{"x":3}"#),
        ];
        let before = bench.upstream.asked().len();
        bench.upstream.reply(calls(streamed, "", &made));
        let response = bench.ask(&mixed(), streamed).await;
        assert_eq!(response["status"], "completed");
        let output = response["output"].as_array().unwrap();
        let types: Vec<_> = output.iter().map(|item| &item["type"]).collect();
        assert_eq!(types, ["function_call", "service:rogue", "function_call"]);
        assert_eq!((&output[0]["call_id"], &output[0]["arguments"]), (&json!("c1"), &json!(r#"{"x":1}"#)));
        assert_eq!((&output[1]["status"], &output[1]["text"]), (&json!("completed"), &json!("2")));
        assert_eq!(bench.upstream.asked().len(), before + 1);

        // The client continues with the whole conversation.
        let mut request = mixed();
        let mut input = vec![json!({"role": "user", "content": "x"})];
        input.extend(output.iter().cloned());
        for id in ["c1", "c3"] {
            input.push(json!({"type": "function_call_output", "call_id": id, "output": format!("of {id}")}));
        }
        request["input"] = json!(input);
        bench.upstream.reply(answer(streamed, "all done"));
        let response = bench.ask(&request, streamed).await;
        assert_eq!(response["output"][0]["content"][0]["text"], "all done");
        let asked = bench.asked_last();
        let messages = asked.body["messages"].as_array().unwrap();
        let calls = messages[1]["tool_calls"].as_array().unwrap();
        let names: Vec<_> = calls.iter().map(|call| &call["function"]["name"]).collect();
        assert_eq!(names, ["mine", "mine"]);
        // The item does not record which function of the tool was called.
        assert_eq!(messages[1]["content"], r#"[I used the tool rogue. It gave: {"text":"2"}]"#);
        let ids: Vec<_> = messages[2..].iter().map(|message| &message["tool_call_id"]).collect();
        assert_eq!(ids, [&json!("c1"), &json!("c3")]);
    }
}

#[tokio::test]
async fn a_call_of_an_unknown_function_is_passed_to_the_client() {
    let bench = Bench::start().await;
    bench.upstream.reply(calls(false, "", &[call("c1", "imagined", "{}")]));
    let response = bench.ask(&with_tool("service:rogue"), false).await;
    assert_eq!(
        (&response["output"][0]["type"], &response["output"][0]["name"]),
        (&json!("function_call"), &json!("imagined"))
    );
}

#[tokio::test]
async fn calls_without_unique_ids_get_distinct_ones_over_all_turns() {
    let bench = Bench::start().await;
    for id in ["", "same"] {
        bench.upstream.reply(calls(
            false,
            "",
            &[call(id, "echo", r#"{"text":"1"}"#), call(id, "echo", r#"{"text":"2"}"#)],
        ));
        bench.upstream.reply(calls(false, "", &[call(id, "echo", r#"{"text":"3"}"#)]));
        bench.upstream.reply(answer(false, "done"));
        bench.ask(&with_tool("service:rogue"), false).await;
        let asked = bench.asked_last();
        assert_eq!(told(&asked), ["1", "2", "3"]);
        let messages = asked.body["messages"].as_array().unwrap();
        let mut ids: Vec<_> =
            messages.iter().filter_map(|message| message["tool_call_id"].as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 3, "{messages:?}");
    }
}
