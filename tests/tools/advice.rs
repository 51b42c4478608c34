//! Advisors and workers: one model asks another, within one response.

use super::models::{Models, with_tools};
use super::script::{answer, call, calls};
use super::told;
use crate::kit::client::{Client, types_of};
use crate::kit::script::refusal;
use serde_json::{Value, json};

const PROMPT: &str = r#"{"prompt":"Which way?"}"#;
const TASK: &str = r#"{"task_name":"Sum","task_description":"Add 1 and 2."}"#;

#[tokio::test]
async fn advice_is_one_item_and_the_models_to_use() {
    let models = Models::start().await;
    for (streamed, prefix) in [(false, "service:"), (true, "openrouter:")] {
        let parameters =
            json!({"name": "Reviewer", "model": "m/a", "temperature": 0.5, "max_completion_tokens": 50});
        let request = with_tools(&json!([{"type": format!("{prefix}advisor"), "parameters": parameters}]));
        models.outer.reply(calls(streamed, "", &[call("c", "advisor_reviewer", PROMPT)]));
        models.a.reply(answer(false, "Left."));
        models.outer.reply(answer(streamed, "We go left."));
        let response = models.ask(&request, streamed).await;
        let item = &response["output"][0];
        assert_eq!(
            (&item["type"], &item["status"]),
            (&json!(format!("{prefix}advisor")), &json!("completed"))
        );
        assert_eq!((&item["prompt"], &item["advice"]), (&json!("Which way?"), &json!("Left.")));
        assert_eq!((&item["model"], &item["instance_name"]), (&json!("m/a"), &json!("Reviewer")));
        assert_eq!(response["output"][1]["content"][0]["text"], "We go left.");
        assert_eq!(told(models.outer.asked().last().unwrap()), ["Left."]);
        let asked = models.a.asked().pop().unwrap().body;
        assert_eq!((&asked["temperature"], &asked["max_tokens"]), (&json!(0.5), &json!(50)));
        assert_eq!(asked["messages"][1]["content"], "Which way?");
        assert_eq!(response["usage"]["cost"], 0.000_04);
    }
}

#[tokio::test]
async fn several_advisors_and_workers_stand_side_by_side() {
    let models = Models::start().await;
    let tools = json!([
        {"type": "service:advisor", "parameters": {"model": "m/a"}},
        {"type": "service:advisor", "parameters": {"name": "second", "model": "m/b"}},
        {"type": "service:subagent", "parameters": {"name": "clerk", "model": "m/j"}},
        {"type": "service:datetime"},
    ]);
    let made = [
        call("c1", "advisor", PROMPT),
        call("c2", "advisor_second", PROMPT),
        call("c3", "subagent_clerk", TASK),
        call("c4", "datetime", "{}"),
    ];
    models.outer.reply(calls(true, "", &made));
    models.a.reply(answer(false, "Left."));
    models.b.reply(answer(false, "Right."));
    models.j.reply(answer(false, "3"));
    models.outer.reply(answer(true, "done"));
    let response = models.ask(&with_tools(&tools), true).await;
    let output = response["output"].as_array().unwrap();
    let types: Vec<_> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    let wanted = ["service:advisor", "service:advisor", "service:subagent", "service:datetime", "message"];
    assert_eq!(types, wanted);
    assert_eq!((&output[0]["advice"], &output[1]["advice"]), (&json!("Left."), &json!("Right.")));
    assert_eq!((&output[2]["outcome"], &output[2]["task_name"]), (&json!("3"), &json!("Sum")));
    assert!(output[..4].iter().all(|item| item["status"] == "completed"), "{response}");
    // Two turns and three answers.
    assert_eq!(response["usage"]["cost"], 0.000_11);
    assert_eq!(response["usage"]["server_tool_use_details"]["tool_calls_executed"], 4);
}

#[tokio::test]
async fn the_same_name_twice_is_refused() {
    let models = Models::start().await;
    let tools =
        json!([{"type": "service:advisor"}, {"type": "service:advisor", "parameters": {"model": "m/a"}}]);
    let refused = Client::new(&models.host).post("/responses", &with_tools(&tools)).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.message().starts_with("tools[0] and tools[1] are the same server tool"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn a_worker_uses_tools_of_its_own() {
    let models = Models::start().await;
    let parameters = json!({"model": "m/a", "tools": [{"type": "service:datetime"}], "max_tool_calls": 1});
    models.outer.reply(calls(false, "", &[call("c", "subagent", TASK)]));
    models.a.reply(calls(false, "", &[call("c1", "datetime", "{}")]));
    models.a.reply(answer(false, "It is late."));
    models.outer.reply(answer(false, "done"));
    let request = with_tools(&json!([{"type": "service:subagent", "parameters": parameters}]));
    let response = models.ask(&request, false).await;
    assert_eq!(response["output"][0]["outcome"], "It is late.", "{response}");
    let asked = models.a.asked();
    assert_eq!(asked[0].body["tools"][0]["function"]["name"], "datetime");
    assert_eq!(asked[1].body["tool_choice"], "none", "one step was allowed");
    // Two turns of each model.
    assert_eq!(response["usage"]["cost"], 0.000_06);
    assert_eq!(
        response["usage"]["server_tool_use_details"]["tool_calls_executed"], 1,
        "the worker's own are its own"
    );
}

#[tokio::test]
async fn no_advice_is_a_failed_item_and_the_model_goes_on() {
    let models = Models::start().await;
    for streamed in [false, true] {
        let request = with_tools(&json!([{"type": "service:advisor", "parameters": {"model": "m/a"}}]));
        models.outer.reply(calls(streamed, "", &[call("c", "advisor", PROMPT)]));
        models.a.reply(refusal(500, "down"));
        models.outer.reply(answer(streamed, "I go alone."));
        let response = models.ask(&request, streamed).await;
        let item = &response["output"][0];
        assert_eq!((&item["status"], &item["error"]), (&json!("failed"), &json!("Provider returned error")));
        assert_eq!((&item["model"], &item["prompt"]), (&json!("m/a"), &json!("Which way?")));
        assert_eq!(response["status"], "completed");
        let told: Value = serde_json::from_str(told(models.outer.asked().last().unwrap())[0]).unwrap();
        assert_eq!(told, json!({"error": "Provider returned error"}));
    }
}

#[tokio::test]
async fn the_conversation_is_handed_on_where_client_and_operator_say_so() {
    let granted = Models::with("[plugins.tool-advisor]\nimports = [\"model\", \"request\"]").await;
    let parameters = json!({"model": "m/a", "forward_transcript": true});
    let request = with_tools(&json!([{"type": "service:advisor", "parameters": parameters}]));
    granted.outer.reply(calls(false, "Let me ask.", &[call("c", "advisor", PROMPT)]));
    granted.a.reply(answer(false, "Left."));
    granted.outer.reply(answer(false, "done"));
    granted.ask(&request, false).await;
    let asked = granted.a.asked_once().body;
    let told = asked["messages"][1]["content"].as_str().unwrap();
    for part in [
        "user: Go.",
        "assistant: Let me ask.",
        "assistant called advisor(",
        "The model asks you:\nWhich way?",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let not_granted = Models::start().await;
    let refused = Client::new(&not_granted.host).post("/responses", &request).await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.message(),
        "tools[0].parameters.forward_transcript needs the operator's grant: [plugins.tool-advisor] \
         imports = [\"model\", \"request\"]"
    );
}

#[tokio::test]
async fn wrong_settings_are_refused_by_path() {
    let models = Models::start().await;
    let table = [
        ("advisor", json!({"name": "!"}), "tools[0].parameters.name must hold a letter"),
        ("advisor", json!({"temperature": 3}), "tools[0].parameters.temperature"),
        ("advisor", json!({"stream": "yes"}), "tools[0].parameters.stream"),
        ("subagent", json!({"max_tool_calls": 26}), "tools[0].parameters.max_tool_calls"),
        (
            "subagent",
            json!({"inherit_functions": true}),
            "tools[0].parameters.inherit_functions is not available",
        ),
        (
            "subagent",
            json!({"tools": [{"type": "function", "name": "f"}]}),
            "tools[0].parameters.tools[0].type must be",
        ),
        ("fusion", json!({"analysis_models": []}), "tools[0].parameters.analysis_models"),
        ("fusion", json!({"preset": "best"}), "tools[0].parameters.preset must be one of"),
        ("fusion", json!({"max_tool_calls": 17}), "tools[0].parameters.max_tool_calls"),
    ];
    for (tool, parameters, starts) in table {
        let request = with_tools(&json!([{"type": format!("service:{tool}"), "parameters": parameters}]));
        let refused = Client::new(&models.host).post("/responses", &request).await;
        assert_eq!(refused.status, 400, "{parameters}");
        assert!(refused.message().starts_with(starts), "{parameters}: {}", refused.message());
    }
    assert!(models.outer.asked().is_empty());
}

#[tokio::test]
async fn a_call_of_an_advisor_has_no_events_but_those_of_items() {
    let models = Models::start().await;
    let request = with_tools(&json!([{"type": "service:advisor", "parameters": {"model": "m/a"}}]));
    models.outer.reply(calls(true, "", &[call("c", "advisor", PROMPT)]));
    models.a.reply(answer(false, "Left."));
    models.outer.reply(answer(true, "done"));
    let events = Client::new(&models.host).stream(&request).await;
    assert_eq!(
        types_of(&events)[2..5],
        ["response.output_item.added", "response.output_item.done", "response.output_item.added"]
    );
}
