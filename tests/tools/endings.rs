//! Server tool loops that end early: failing turns, disconnecting clients, expired deadlines.

use super::script::{answer, call, calls};
use super::{Bench, GRANTS, with_tool};
use crate::kit::admin::Admin;
use crate::kit::client::{Client, last_response, text_of, types_of};
use crate::kit::config::several;
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::script::{refusal, word};
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::json;

/// Two chat providers, tried in this order, and the test tools.
async fn pair() -> (Upstream, Upstream, Host, tempfile::TempDir) {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let guests = folder(&["tool-rogue"]);
    let grants = GRANTS.lines().take(2).collect::<Vec<_>>().join("\n");
    let setup = Setup::new().config(&several(&[&a.base, &b.base])).config(&grants);
    (a, b, setup.plugins(guests.path()).start(), guests)
}

#[tokio::test]
async fn a_later_turn_falls_back_and_the_one_that_answered_is_asked_first() {
    let (a, b, host, _guests) = pair().await;
    let client = Client::new(&host);
    let mut request = with_tool("service:rogue");
    request["provider"] = json!({"sort": "price"});
    for streamed in [false, true] {
        let (asked_a, asked_b) = (a.asked().len(), b.asked().len());
        // Turn 1 falls back to b. Turn 2 goes to b first and falls back to a. Turn 3 goes to a.
        a.reply(refusal(500, "down"));
        b.reply(calls(streamed, "", &[call("c1", "echo", r#"{"text":"1"}"#)]));
        b.reply(refusal(503, "busy"));
        a.reply(calls(streamed, "", &[call("c2", "echo", r#"{"text":"2"}"#)]));
        a.reply(answer(streamed, "from a"));
        if streamed {
            let events = client.stream(&request).await;
            assert_eq!(text_of(&events), "from a");
            assert_eq!(types_of(&events).iter().filter(|kind| **kind == "response.created").count(), 1);
            assert_eq!(last_response(&events)["usage"]["total_tokens"], 30);
        } else {
            assert_eq!(client.post("/responses", &request).await.output_text(), "from a");
        }
        assert_eq!((a.asked().len() - asked_a, b.asked().len() - asked_b), (3, 2));
    }
}

#[tokio::test]
async fn a_later_turn_that_no_endpoint_answers_fails_the_response() {
    let bench = Bench::start().await;
    let client = Client::new(&bench.host);
    let made = [call("c1", "echo", r#"{"text":"1"}"#)];
    bench.upstream.reply(calls(true, "Wait.", &made));
    bench.upstream.reply(refusal(503, "busy"));
    let events = client.stream(&with_tool("service:rogue")).await;
    let response = last_response(&events);
    assert_eq!(events.last().unwrap()["type"], "response.failed");
    assert_eq!(response["error"], json!({"code": "server_error", "message": "Provider returned error"}));
    assert_eq!(response["output"][1]["status"], "completed");
    assert_eq!(response["usage"]["total_tokens"], 10);

    bench.upstream.reply(calls(false, "Wait.", &made));
    bench.upstream.reply(refusal(503, "busy"));
    let answer = client.post("/responses", &with_tool("service:rogue")).await;
    assert_eq!((answer.status, answer.message()), (502, "Provider returned error"));
}

#[tokio::test]
async fn results_that_do_not_fit_the_context_end_the_response_as_too_long() {
    let bench = Bench::start().await;
    let made = [call("c1", "echo", r#"{"text":"1"}"#)];
    let full = json!({"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}});
    for streamed in [false, true] {
        bench.upstream.reply(calls(streamed, "Wait.", &made));
        bench.upstream.reply(Reply::json(400, full.clone()));
        let response = bench.ask(&with_tool("service:rogue"), streamed).await;
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
        assert_eq!(
            (&response["output"][1]["status"], response["output"].as_array().unwrap().len()),
            (&json!("completed"), 2)
        );
    }
}

#[tokio::test]
async fn metadata_of_a_later_turn_blames_only_those_that_failed() {
    let (a, b, host, _guests) = pair().await;
    let mut request = with_tool("service:rogue");
    request["provider"] = json!({"sort": "price"});
    request["stream"] = json!(true);
    a.reply(calls(true, "", &[call("c1", "echo", r#"{"text":"1"}"#)]));
    a.reply(refusal(500, "down"));
    b.reply(refusal(429, "slow"));
    let enabled = [("x-service-metadata", "enabled")];
    let events = Client::new(&host).stream_with(&request, &enabled).await;
    let metadata = &last_response(&events)["service_metadata"];
    let errors: Vec<_> =
        metadata["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["error_type"]).collect();
    assert_eq!(errors, [&json!(null), &json!("server"), &json!("rate_limit_exceeded")], "{metadata}");
    assert!(
        metadata["endpoints"]["available"]
            .as_array()
            .unwrap()
            .iter()
            .all(|endpoint| endpoint["selected"] == false)
    );
}

#[tokio::test]
async fn a_later_turn_that_breaks_off_fails_in_band_and_what_was_used_is_counted() {
    let mut bench = Bench::start().await;
    bench.upstream.reply(calls(true, "", &[call("c1", "charge", "{}")]));
    bench.upstream.reply(Reply::cut(&[word("Now I")]));
    let events = Client::new(&bench.host).stream(&with_tool("service:rogue")).await;
    assert_eq!(events.last().unwrap()["type"], "response.failed");
    assert_eq!(last_response(&events)["output"][1]["content"][0]["text"], "Now I");
    let rows = usage_of(&mut bench.host);
    let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    assert_eq!((row.input_tokens, row.cost_pico), (7, 250_000_000_000));
}

#[tokio::test]
async fn a_client_that_leaves_while_a_tool_runs_ends_the_tool_and_leaves_one_row() {
    let mut bench = Bench::start().await;
    bench.upstream.reply(calls(
        true,
        "",
        &[call("c1", "charge", "{}"), call("c2", "meet", r#"{"text":"a"}"#)],
    ));
    let mut events = Client::new(&bench.host).open(&with_tool("service:rogue")).await;
    events.until("response.output_item.done").await;
    drop(events);
    Admin::new(&bench.host).until_metric("cofferdam_streams_abandoned_total", 1).await;
    let rows = usage_of(&mut bench.host);
    let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    assert_eq!(format!("{:?}", row.outcome), "Cancelled");
    assert_eq!((row.input_tokens, row.output_tokens, row.cost_pico), (7, 3, 250_000_000_000));
    assert_eq!(bench.upstream.asked().len(), 1);
}

#[tokio::test]
async fn the_time_of_a_request_includes_its_tools() {
    let bench = Bench::with("[timeouts]\ntotal_ms = 1000").await;
    let client = Client::new(&bench.host);
    let made = [call("c1", "echo", "{}"), call("c2", "meet", r#"{"text":"a"}"#)];
    bench.upstream.reply(calls(false, "", &made));
    let answer = client.post("/responses", &with_tool("service:rogue")).await;
    assert_eq!((answer.status, answer.message()), (524, "Request timed out. Please try again later."));
    bench.upstream.reply(calls(true, "", &made));
    let events = client.stream(&with_tool("service:rogue")).await;
    let response = last_response(&events);
    assert_eq!((&response["status"], &response["error_type"]), (&json!("failed"), &json!("timeout")));
    let statuses: Vec<_> =
        response["output"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert_eq!(statuses, ["completed", "incomplete"]);
}
