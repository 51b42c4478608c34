//! Tools that fail or misbehave: the item is marked failed, the model gets an error, and the
//! response goes on.

use super::script::{answer, call, calls};
use super::{Bench, told, with_tool};
use crate::kit::client::Client;
use crate::kit::config::single;
use crate::kit::guests::folder;
use crate::kit::host::Setup;
use crate::kit::store::usage_of;
use crate::kit::upstream::Upstream;
use cofferdam_store::UsageOutcome;
use serde_json::{Value, json};

#[tokio::test]
async fn whatever_a_tool_does_wrong_is_one_failed_item_and_a_result_for_the_model() {
    let bench = Bench::start().await;
    let table = [
        ("fail", "{}", "it did not work", 1),
        ("refuse", "{}", "text is not to my liking", 1),
        ("trap", "{}", "The tool failed.", 1),
        ("hang", "{}", "The tool took too long.", 1),
        ("allocate", "{}", "The tool ran out of memory.", 1),
        ("flood", "{}", "The tool's result is too large.", 1),
        ("lie", "{}", "The tool failed.", 1),
        ("echo", "{\"text\":", "The arguments are not a JSON object.", 0),
        ("echo", "[]", "The arguments are not a JSON object.", 0),
    ];
    for (function, arguments, message, executed) in table {
        for streamed in [false, true] {
            let made = [call("c1", function, arguments)];
            let response = bench.run(&with_tool("openrouter:rogue"), streamed, &made).await;
            assert_eq!(response["status"], "completed", "{function}: {response}");
            let item = &response["output"][0];
            assert_eq!(
                (&item["type"], &item["status"]),
                (&json!("openrouter:rogue"), &json!("failed")),
                "{item}"
            );
            assert_eq!(item["error"], message, "{function}");
            assert_eq!(response["output"][1]["content"][0]["text"], "done");
            let result: Value = serde_json::from_str(told(&bench.asked_last())[0]).unwrap();
            assert_eq!(result, json!({ "error": message }));
            let details = &response["usage"]["server_tool_use_details"];
            assert_eq!(details["tool_calls_executed"], executed, "{function}");
        }
    }
}

#[tokio::test]
async fn a_finished_call_is_charged_although_a_slower_one_ends_the_request() {
    let mut bench = Bench::with("[timeouts]\ntotal_ms = 2500").await;
    for streamed in [false, true] {
        bench.upstream.reply(calls(streamed, "", &[call("c1", "charge", "{}"), call("c2", "hang", "{}")]));
        let mut request = with_tool("service:rogue");
        request["stream"] = streamed.into();
        let answer = Client::new(&bench.host).post("/responses", &request).await;
        assert_eq!(answer.status, if streamed { 200 } else { 524 }, "{}", answer.text);
        if streamed {
            assert!(answer.text.contains("\"server_tool_cost\":0.25"), "{}", answer.text);
        }
    }
    let rows = usage_of(&mut bench.host);
    let told: Vec<_> = rows.iter().map(|row| (row.outcome, row.cost_pico)).collect();
    assert_eq!(told, [(UsageOutcome::Failed, 250_000_000_000); 2]);
}

#[tokio::test]
async fn a_call_that_opens_a_response_is_charged() {
    let upstream = Upstream::start().await;
    let guests = folder(&["tool-rogue"]);
    let manifest = guests.path().join("tool-rogue.toml");
    let opening = "[[tool.items]]\ntype = \"rogue_list\"\nopening = \"charge\"\n";
    let text = std::fs::read_to_string(&manifest).unwrap() + opening;
    std::fs::write(&manifest, text).unwrap();
    let config = single("openai-chat", &upstream.base) + "[plugins.tool-rogue]\nimports = [\"request\"]\n";
    let mut host = Setup::new().config(&config).plugins(guests.path()).start();
    upstream.reply(answer(false, "done"));
    let response = Client::new(&host).ask(&with_tool("service:rogue"), false).await;
    assert_eq!(response["output"][0]["type"], "rogue_list", "{response}");
    assert_eq!(response["usage"]["cost_details"]["server_tool_cost"], 0.25, "{response}");
    assert_eq!(usage_of(&mut host)[0].cost_pico, 250_000_000_000);
}

#[tokio::test]
async fn a_tool_cannot_pass_its_item_off_as_another() {
    let bench = Bench::start().await;
    for streamed in [false, true] {
        let made = [call("c1", "forge", r#"{"text":"hi"}"#)];
        let response = bench.run(&with_tool("service:rogue"), streamed, &made).await;
        let item = &response["output"][0];
        assert_eq!(
            (&item["type"], &item["status"]),
            (&json!("service:rogue"), &json!("completed")),
            "{item}"
        );
        assert_eq!(item["text"], "hi");
        assert!(item["id"].as_str().unwrap().starts_with("st_"), "{item}");
    }
}

#[tokio::test]
async fn long_results_are_cut_and_their_total_size_is_limited() {
    let bench = Bench::start().await;
    let ids: Vec<String> = (0..9).map(|place| format!("c{place}")).collect();
    let made: Vec<_> = ids.iter().map(|id| call(id, "long", "{}")).collect();
    let response = bench.run(&with_tool("service:rogue"), false, &made).await;
    assert_eq!(response["output"].as_array().unwrap().len(), 10);
    let asked = bench.asked_last();
    let told = told(&asked);
    assert!(told[..8].iter().all(|result| result.len() <= 1 << 20 && result.ends_with("was cut off.]")));
    assert_eq!(told[8], r#"{"error":"The results of this request are too large together."}"#);
}

#[tokio::test]
async fn too_many_calls_at_once_fail() {
    let bench = Bench::start().await;
    let ids: Vec<String> = (0..34).map(|place| format!("c{place}")).collect();
    let made: Vec<_> = ids.iter().map(|id| call(id, "echo", r#"{"text":"x"}"#)).collect();
    let response = bench.run(&with_tool("service:rogue"), true, &made).await;
    let statuses: Vec<_> =
        response["output"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert!(statuses[..32].iter().all(|status| **status == "completed"));
    assert!(statuses[32..34].iter().all(|status| **status == "failed"), "{response}");
    assert_eq!(told(&bench.asked_last())[33], r#"{"error":"Too many tool calls at once."}"#);
}

#[tokio::test]
async fn a_tool_that_breaks_before_it_offers_anything_is_our_fault() {
    let bench = Bench::start().await;
    let mut request = with_tool("service:rogue");
    request["tools"][0]["parameters"] = json!({"broken": true});
    let client = Client::new(&bench.host);
    assert_eq!(client.post("/responses", &request).await.status, 500);
    bench.upstream.reply(answer(false, "fine"));
    assert_eq!(client.post("/responses", &with_tool("service:rogue")).await.output_text(), "fine");
}
