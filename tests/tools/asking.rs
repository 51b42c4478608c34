//! Tools that ask models: what an answer contains and costs, and the limits of asking.

use super::models::{Models, question, with_tools};
use super::script::{answer, call, calls};
use super::told;
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::script::refusal;
use crate::kit::store::usage_of;
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

/// Arguments of a function of the test tool.
fn text(text: &Value) -> String {
    json!({ "text": text.to_string() }).to_string()
}

fn asker() -> Value {
    with_tools(&json!([{"type": "service:asker"}]))
}

/// The results of each call that were sent to the outer model.
fn results(models: &Models) -> Vec<Value> {
    let asked = models.outer.asked();
    told(asked.last().unwrap()).iter().map(|told| serde_json::from_str(told).unwrap()).collect()
}

#[tokio::test]
async fn a_question_is_a_separate_request_charged_to_the_client() {
    for streamed in [false, true] {
        let mut models = Models::start().await;
        let ask = text(&question("m/a"));
        models.outer.reply(calls(streamed, "", &[call("c", "question", &ask)]));
        models.a.reply(answer(false, "Because."));
        models.outer.reply(answer(streamed, "done"));
        let response = models.ask(&asker(), streamed).await;
        let told = &results(&models)[0][0];
        assert_eq!((&told["text"], &told["model"]), (&json!("Because."), &json!("m/a")));
        assert_eq!((&told["cost_pico"], &told["tokens"]), (&json!(20_000_000), &json!([7, 3])));
        assert_eq!(told["items"][0]["type"], "message");
        assert_eq!(models.a.asked_once().body["messages"][0]["content"], "Why?");

        // Two turns at 10, the answer at 20, and the tool's own charge of 1.
        let usage = &response["usage"];
        assert_eq!(usage["cost"], 0.000_041, "{usage}");
        assert_eq!(usage["cost_details"]["server_tool_cost"], 0.000_021);
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(14), &json!(6)));
        let rows = usage_of(&mut models.host);
        let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
        assert_eq!((row.cost_pico, row.input_tokens, row.output_tokens), (41_000_000, 14, 6));
        assert_eq!((row.model.as_str(), row.request_id.as_str()), (MODEL, response["id"].as_str().unwrap()));
    }
}

#[tokio::test]
async fn a_question_without_a_model_goes_to_the_model_of_the_request() {
    let models = Models::start().await;
    models.outer.reply(calls(false, "", &[call("c", "question", &text(&json!({"input": "Why?"})))]));
    models.outer.reply(answer(false, "Because."));
    models.outer.reply(answer(false, "done"));
    models.ask(&asker(), false).await;
    assert_eq!(results(&models)[0][0]["model"], MODEL);
    assert_eq!(models.outer.asked().len(), 3);
}

#[tokio::test]
async fn the_nesting_of_questions_is_limited() {
    let mut models = Models::start().await;
    let with_asker =
        |model: &str| json!({"model": model, "input": "Why?", "tools": [{"type": "service:asker"}]});
    let deepest = text(&with_asker("m/j"));
    let deeper = text(&question("m/b"));
    let ask = text(&with_asker("m/a"));
    models.outer.reply(calls(false, "", &[call("c", "question", &ask)]));
    models.a.reply(calls(false, "", &[call("c1", "question", &deeper), call("c2", "question", &deepest)]));
    models.b.reply(answer(false, "deep"));
    models.a.reply(answer(false, "enough"));
    models.outer.reply(answer(false, "done"));
    let response = models.ask(&asker(), false).await;
    let asked = models.a.asked();
    let inner: Vec<Value> =
        told(asked.last().unwrap()).iter().map(|told| serde_json::from_str(told).unwrap()).collect();
    assert_eq!(inner[0][0]["text"], "deep");
    assert_eq!(inner[1][0]["failure"], "ErrorKind::InvalidRequest");
    let message = "tools[0].type \"service:asker\" asks models, and questions to models nest no deeper";
    assert_eq!(inner[1][0]["message"], message);
    // The price of the inner answer includes the deeper question and the tool's two charges.
    let told = &results(&models)[0][0];
    assert_eq!((&told["text"], &told["cost_pico"]), (&json!("enough"), &json!(72_000_000)));
    assert_eq!(response["usage"]["cost"], 0.000_093);
    assert!(models.j.asked().is_empty());
    let rows = usage_of(&mut models.host);
    assert_eq!(rows.iter().map(|row| row.cost_pico).collect::<Vec<_>>(), [93_000_000]);
}

#[tokio::test]
async fn questions_of_a_request_are_counted() {
    let models = Models::start().await;
    let ask = text(&question("m/a"));
    let made = ["c1", "c2", "c3"].map(|id| call(id, "questions", &ask));
    models.outer.reply(calls(false, "", &made));
    for _ in 0..40 {
        models.a.reply(answer(false, "Because."));
    }
    models.outer.reply(answer(false, "done"));
    let response = models.ask(&asker(), false).await;
    let results = results(&models);
    let answered = |result: &Value| result.as_array().unwrap().len() - 1;
    assert_eq!(results.iter().map(answered).sum::<usize>(), 32, "{results:?}");
    assert_eq!(models.a.asked().len(), 32);
    let last = |result: &Value| result.as_array().unwrap().last().unwrap()["message"].clone();
    let all = json!("This request has put all of its 32 questions to models.");
    assert!(results.iter().any(|result| last(result) == all), "{results:?}");
    assert_eq!(response["usage"]["cost_details"]["server_tool_cost"], 0.000_643);
}

#[tokio::test]
async fn a_question_fails_as_a_request_of_a_client_would() {
    let models = Models::with("[timeouts]\nidle_ms = 500\n[plugins.tool-asker]\nimports = [\"model\"]").await;
    // The head of an answer whose body never comes.
    let (_body, silent) = Reply::fed_as("application/json");
    let table = [
        (question("m/a"), Some(refusal(500, "down")), "ProviderUnavailable", "Provider returned error"),
        (
            question("m/a"),
            Some(refusal(429, "slow down")),
            "RateLimitExceeded",
            "The provider's rate limit was reached.",
        ),
        (question("m/a"), Some(silent), "Timeout", "The operation was aborted due to timeout"),
        (question("m/none"), None, "NotFound", "m/none"),
        (json!({"model": "m/a", "input": "x", "temperature": 3}), None, "InvalidRequest", "temperature "),
        (
            json!({"model": "m/a", "input": "x", "tools": [{"type": "service:none"}]}),
            None,
            "InvalidRequest",
            "tools[0].type \"service:none\" is not available on this host",
        ),
        (json!("no request"), None, "InvalidRequest", "object"),
    ];
    for (ask, reply, kind, message) in table {
        models.outer.reply(calls(false, "", &[call("c", "question", &text(&ask))]));
        reply.into_iter().for_each(|reply| models.a.reply(reply));
        models.outer.reply(answer(false, "done"));
        let response = models.ask(&asker(), false).await;
        assert_eq!(response["status"], "completed");
        let told = &results(&models).pop().unwrap()[0];
        assert_eq!(told["failure"], format!("ErrorKind::{kind}"), "{ask}: {told}");
        assert!(told["message"].as_str().unwrap().contains(message), "{ask}: {told}");
    }
}

#[tokio::test]
async fn a_tool_that_never_stops_asking_is_stopped() {
    let models = Models::start().await;
    let ask = text(&question("m/a"));
    models.outer.reply(calls(false, "", &[call("c", "for_ever", &ask)]));
    models.outer.reply(answer(false, "done"));
    let response = models.ask(&asker(), false).await;
    let item = &response["output"][0];
    assert_eq!((&item["type"], &item["status"]), (&json!("service:asker"), &json!("failed")));
    assert_eq!(response["output"][1]["content"][0]["text"], "done");
    assert_eq!(models.a.asked().len(), 16);
}

#[tokio::test]
async fn a_client_that_leaves_cuts_the_question_and_pays_for_those_answered() {
    let mut models = Models::start().await;
    let ask = text(&question("m/a"));
    models.outer.reply(calls(true, "", &[call("c", "questions", &ask)]));
    models.a.reply(answer(false, "Because."));
    let (feed, fed) = Reply::fed();
    models.a.reply(fed);
    let mut events = Client::new(&models.host).open(&asker()).await;
    events.until("response.asker_call.analysis.in_progress").await;
    models.a.until_asked(2).await;
    feed.send("{".to_owned()).await.unwrap();
    drop(events);
    models.a.dropped.recv().await.unwrap();
    let rows = usage_of(&mut models.host);
    let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    assert_eq!(format!("{:?}", row.outcome), "Cancelled");
    // The turn, the answer, and about one token of the question that was cut off.
    assert_eq!((row.cost_pico, row.input_tokens), (32_000_000, 7));
}

#[tokio::test]
async fn what_a_request_may_cost_bounds_its_questions() {
    let models = Models::start().await;
    let ask = text(&question("m/a"));
    models.outer.reply(calls(false, "", &[call("c", "questions", &ask)]));
    for _ in 0..9 {
        models.a.reply(answer(false, "Because."));
    }
    models.outer.reply(answer(false, "done"));
    let mut request = asker();
    // The first turn costs 10, and the second answer raises the sum to 50.
    request["stop_server_tools_when"] = json!([{"type": "max_cost", "max_cost_in_dollars": 0.000_045}]);
    models.ask(&request, false).await;
    let told = &results(&models)[0];
    assert_eq!(told.as_array().unwrap().len(), 3, "{told}");
    assert_eq!(told[2]["message"], "This request has cost as much as it may.");
    assert_eq!(models.outer.asked().last().unwrap().body["tool_choice"], "none");
}

#[tokio::test]
async fn a_tool_that_is_not_granted_says_which_line_would_allow_it() {
    let models = Models::with("").await;
    for (kind, plugin) in [("asker", "tool-asker"), ("advisor", "tool-advisor"), ("fusion", "tool-fusion")] {
        let request = with_tools(&json!([{"type": format!("service:{kind}")}]));
        let refused = Client::new(&models.host).post("/responses", &request).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        let line = format!(
            "tools[0].type \"service:{kind}\" is not available on this host; its operator can allow it with \
             [plugins.{plugin}] imports = [\"model\"]"
        );
        assert_eq!(refused.message(), line);
    }
}

#[tokio::test]
async fn a_panel_is_asked_concurrently_and_its_answers_are_streamed() {
    let models = Models::start().await;
    let ask = text(&json!([question("m/a"), question("m/b"), question("m/none")]));
    models.outer.reply(calls(true, "", &[call("c", "panel", &ask)]));
    let (feed, fed) = Reply::fed_as("application/json");
    models.a.reply(fed);
    models.b.reply(answer(false, "from b"));
    models.outer.reply(answer(true, "done"));
    let mut events = Client::new(&models.host).open(&asker()).await;
    // The answer of b arrives while a has not sent anything.
    let completed = events.until("response.asker_call.panel.completed").await;
    assert_eq!((&completed["model"], &completed["content"]), (&json!("m/b"), &json!("from b")));
    let Reply::Whole { body, .. } = answer(false, "from a") else { panic!("not in one body") };
    feed.send(body).await.unwrap();
    drop(feed);
    let completed = events.until("response.asker_call.panel.completed").await;
    assert_eq!(completed["model"], "m/a");
    events.until("response.completed").await;
    let told = &results(&models)[0];
    assert_eq!((&told[0]["text"], &told[1]["text"]), (&json!("from a"), &json!("from b")));
    assert_eq!(told[2]["failure"], "ErrorKind::NotFound");
}

#[tokio::test]
async fn a_panel_takes_64_questions_and_a_longer_list_ends_the_call() {
    let models = Models::start().await;
    let panel = |count: usize| text(&Value::from(vec![question("m/none"); count]));
    models.outer.reply(calls(false, "", &[call("c", "panel", &panel(64))]));
    models.outer.reply(answer(false, "done"));
    models.ask(&asker(), false).await;
    let told = &results(&models)[0];
    assert_eq!(told.as_array().unwrap().len(), 64, "{told}");
    assert_eq!(told[0]["failure"], "ErrorKind::NotFound");
    assert_eq!(told[63]["failure"], "ErrorKind::RateLimitExceeded");

    models.outer.reply(calls(false, "", &[call("c", "panel", &panel(65))]));
    models.outer.reply(answer(false, "done"));
    let response = models.ask(&asker(), false).await;
    assert_eq!(response["output"][0]["status"], "failed", "{response}");
    assert_eq!(response["output"][1]["content"][0]["text"], "done");
}

/// A hook that asks a model about every request. It would loop if it were called for its own
/// questions.
async fn with_hook() -> Models {
    let models = Models::with("[plugins.hook-asker]\nimports = [\"model\"]").await;
    models.a.reply(answer(false, "It is fine."));
    models
}

#[tokio::test]
async fn a_hook_asks_and_is_not_shown_its_own_question() {
    let mut models = with_hook().await;
    models.outer.reply(answer(false, "done"));
    let request = json!({"model": MODEL, "input": "Go.", "plugins": [{"id": "asking", "model": "m/a"}]});
    let response = models.ask(&request, false).await;
    assert_eq!(models.a.asked().len(), 1);
    let told = models.outer.asked_once().body["messages"][0].clone();
    assert_eq!(told, json!({"role": "system", "content": "It is fine."}));
    assert_eq!(response["usage"]["cost"], 0.000_03);
    let rows = usage_of(&mut models.host);
    assert_eq!(rows.iter().map(|row| row.cost_pico).collect::<Vec<_>>(), [30_000_000]);
}

#[tokio::test]
async fn a_request_that_is_rejected_after_a_question_pays_for_it() {
    let mut models = with_hook().await;
    let request = json!({"model": MODEL, "input": "Go.", "plugins": [
        {"id": "asking", "model": "m/a", "reject": true}]});
    let refused = Client::new(&models.host).post("/responses", &request).await;
    assert_eq!((refused.status, refused.message()), (400, "this hook does not like the request"));
    let rows = usage_of(&mut models.host);
    let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    assert_eq!((format!("{:?}", row.outcome).as_str(), row.cost_pico), ("Failed", 20_000_000));
}

#[tokio::test]
async fn what_a_workspace_has_by_default_looks_at_questions_too() {
    let config = "[[workspaces]]\nname = \"*\"\nplugins = [{ id = \"moderation\" }, { id = \"fusion\" }]\n\
        [plugins.hook-moderation.config]\nrules = [{ reason = \"r\", pattern = \"forbidden\" }]\n\
        [plugins.tool-fusion]\nimports = [\"model\"]\n[plugins.tool-asker]\nimports = [\"model\"]";
    let models = Models::with(config).await;
    let forbidden = text(&json!({"model": "m/a", "input": "something forbidden"}));
    let allowed = text(&question("m/a"));
    models.outer.reply(calls(
        false,
        "",
        &[call("c1", "question", &forbidden), call("c2", "question", &allowed)],
    ));
    models.a.reply(answer(false, "Because."));
    models.outer.reply(answer(false, "done"));
    models.ask(&asker(), false).await;
    let results = results(&models);
    assert!(results[0][0]["failure"].is_string(), "{results:?}");
    assert_eq!(results[1][0]["text"], "Because.");
    // A tool that the workspace offers by default is offered to the client's model, not to asked
    // models.
    assert!(models.outer.asked()[0].body["tools"].to_string().contains("\"fusion\""));
    assert_eq!(models.a.asked_once().body["tools"], Value::Null);
}
