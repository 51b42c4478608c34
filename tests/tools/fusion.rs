//! Fusion: a panel of models, a judge, and the events of both.

use super::models::{Models, with_tools};
use super::script::{answer, call, calls};
use super::told;
use crate::kit::client::{Client, last_response};
use crate::kit::config::MODEL;
use crate::kit::script::refusal;
use crate::kit::store::usage_of;
use serde_json::{Value, json};

const PROMPT: &str = r#"{"prompt":"Is it so?"}"#;
const ANALYSIS: &str = r#"{"consensus":["It is."],"contradictions":[],"partial_coverage":[],"unique_insights":[],"blind_spots":[]}"#;

fn request() -> Value {
    let parameters = json!({"analysis_models": ["m/a", "m/b"], "model": "m/j"});
    with_tools(&json!([{"type": "service:fusion", "parameters": parameters}]))
}

fn panel() -> Value {
    json!([{"model": "m/a", "content": "Yes."}, {"model": "m/b", "content": "Certainly."}])
}

fn script(models: &Models, streamed: bool) {
    models.outer.reply(calls(streamed, "", &[call("c", "fusion", PROMPT)]));
    models.a.reply(answer(false, "Yes."));
    models.b.reply(answer(false, "Certainly."));
    models.j.reply(answer(false, ANALYSIS));
    models.outer.reply(answer(streamed, "It is so."));
}

#[tokio::test]
async fn a_panel_answers_and_a_judge_compares() {
    for streamed in [false, true] {
        let mut models = Models::start().await;
        script(&models, streamed);
        let response = models.ask(&request(), streamed).await;
        let item = &response["output"][0];
        assert_eq!((&item["type"], &item["status"]), (&json!("service:fusion"), &json!("completed")));
        assert_eq!(item["responses"], panel());
        let analysis: Value = serde_json::from_str(ANALYSIS).unwrap();
        assert_eq!(item["analysis"], analysis);
        assert_eq!(response["output"][1]["content"][0]["text"], "It is so.");
        let told: Value = serde_json::from_str(told(models.outer.asked().last().unwrap())[0]).unwrap();
        assert_eq!(
            (&told["status"], &told["responses"], &told["analysis"]),
            (&json!("ok"), &panel(), &analysis)
        );
        assert_eq!(models.a.asked_once().body["messages"][0]["content"], "Is it so?");
        let judge = models.j.asked_once().body;
        assert_eq!(
            (&judge["temperature"], &judge["response_format"]["type"]),
            (&json!(0), &json!("json_schema"))
        );
        // Two turns at 10, the panel at 20 and 30, the judge at 40.
        assert_eq!(response["usage"]["cost"], 0.000_11);
        assert_eq!(response["usage"]["cost_details"]["server_tool_cost"], 0.000_09);
        let rows = usage_of(&mut models.host);
        assert_eq!(rows.iter().map(|row| row.cost_pico).collect::<Vec<_>>(), [110_000_000]);
    }
}

#[tokio::test]
async fn a_stream_has_events_of_the_panel_and_its_analysis() {
    let models = Models::start().await;
    script(&models, true);
    let events = Client::new(&models.host).stream(&request()).await;
    let of_call = |event: &&Value| event["type"].as_str().unwrap().starts_with("response.fusion_call.");
    let told: Vec<&Value> = events.iter().filter(of_call).collect();
    let name = |event: &&Value| event["type"].as_str().unwrap()["response.fusion_call.".len()..].to_owned();
    let names: Vec<String> = told.iter().map(name).collect();
    assert_eq!(names[..2], ["in_progress", "panel.added"]);
    assert_eq!(names[7..], ["analysis.in_progress", "analysis.completed", "completed"]);
    for model in ["m/a", "m/b"] {
        let of_model: Vec<_> = told.iter().filter(|event| event["model"] == model).map(name).collect();
        assert_eq!(of_model, ["panel.added", "panel.delta", "panel.completed"]);
    }
    let completed = told
        .iter()
        .find(|event| event["type"] == "response.fusion_call.panel.completed" && event["model"] == "m/a");
    assert_eq!(completed.unwrap()["content"], "Yes.");
    assert_eq!(told[7]["judge_model"], "m/j");
    assert_eq!(told[8]["analysis"]["consensus"], json!(["It is."]));
    // All events are between the two events of the item and carry its id.
    let place = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap();
    let (added, done) = (place("response.output_item.added"), place("response.output_item.done"));
    let first = place("response.fusion_call.in_progress");
    assert_eq!((added + 1, first + told.len()), (first, done));
    for event in told {
        assert_eq!((&event["item_id"], &event["output_index"]), (&events[added]["item"]["id"], &json!(0)));
    }
    assert_eq!(last_response(&events)["output"][0]["responses"], panel());
}

#[tokio::test]
async fn a_panel_that_loses_members_or_its_judge_is_worth_something_still() {
    let models = Models::start().await;
    models.outer.reply(calls(true, "", &[call("c", "fusion", PROMPT)]));
    models.a.reply(refusal(500, "down"));
    models.b.reply(answer(false, "Certainly."));
    models.j.reply(answer(false, "They agree."));
    models.outer.reply(answer(true, "It is so."));
    let events = Client::new(&models.host).stream(&request()).await;
    let failed = events.iter().find(|event| event["type"] == "response.fusion_call.panel.failed").unwrap();
    assert_eq!((&failed["model"], &failed["error"]), (&json!("m/a"), &json!("Provider returned error")));
    assert_eq!(failed["status_code"], 502);
    let item = &last_response(&events)["output"][0];
    assert_eq!(item["status"], "completed");
    assert_eq!(item["responses"], json!([{"model": "m/b", "content": "Certainly."}]));
    assert_eq!(item["failed_models"], json!([{"model": "m/a", "error": "Provider returned error"}]));
    assert_eq!(item["failure_reason"], "judge_not_valid_json");
    assert!(events.iter().all(|event| event["type"] != "response.fusion_call.analysis.completed"));
}

#[tokio::test]
async fn a_panel_without_answers_is_a_failed_item() {
    let models = Models::start().await;
    for streamed in [false, true] {
        models.outer.reply(calls(streamed, "", &[call("c", "fusion", PROMPT)]));
        models.a.reply(refusal(429, "slow"));
        models.b.reply(refusal(429, "slow"));
        models.outer.reply(answer(streamed, "I do not know."));
        let response = models.ask(&request(), streamed).await;
        let item = &response["output"][0];
        assert_eq!((&item["status"], &item["failure_reason"]), (&json!("failed"), &json!("rate_limited")));
        assert_eq!(item["error"], "No model of the panel answered.");
        assert_eq!(response["status"], "completed");
        assert_eq!(response["usage"]["cost"], 0.000_02);
    }
}

#[tokio::test]
async fn the_plugin_offers_the_tool_with_the_operators_presets() {
    let config = "[plugins.tool-fusion]\nimports = [\"model\"]\n[plugins.tool-fusion.config]\n\
        presets = { general-fast = [\"m/a\"] }";
    let models = Models::with(config).await;
    let request = |preset: &str| json!({"model": MODEL, "input": "Go.", "plugins": [{"id": "fusion", "preset": preset, "model": "m/j"}]});
    models.outer.reply(calls(false, "", &[call("c", "fusion", PROMPT)]));
    models.a.reply(answer(false, "Yes."));
    models.j.reply(answer(false, ANALYSIS));
    models.outer.reply(answer(false, "done"));
    let response = models.ask(&request("general-fast"), false).await;
    assert_eq!(
        response["output"][0]["responses"],
        json!([{"model": "m/a", "content": "Yes."}]),
        "{response}"
    );
    // Chosen by price: the three most expensive are m/j, m/b and m/a.
    models.outer.reply(calls(false, "", &[call("c", "fusion", PROMPT)]));
    models.j.reply(answer(false, "Yes."));
    models.b.reply(answer(false, "Yes."));
    models.a.reply(answer(false, "Yes."));
    models.j.reply(answer(false, ANALYSIS));
    models.outer.reply(answer(false, "done"));
    let response = models.ask(&request("general-high"), false).await;
    let asked: Vec<_> = response["output"][0]["responses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| answer["model"].clone())
        .collect();
    assert_eq!(asked, ["m/j", "m/b", "m/a"]);
    let refused = Client::new(&models.host)
        .post("/responses", &json!({"model": MODEL, "input": "x", "plugins": [{"id": "fusion", "tools": [{"type": "function", "name": "f"}]}]}))
        .await;
    assert_eq!(
        (refused.status, refused.message()),
        (400, "plugins[0].tools[0].type must be a tool that this service runs, not the client")
    );
}
