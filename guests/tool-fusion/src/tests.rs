use cofferdam_guest_kit::bindings::types::ErrorKind;
use cofferdam_guest_kit::server_tool::Fields;
use cofferdam_guest_kit::server_tool::testing::Script;
use serde_json::{Value, json};

use super::settings::Settings;
use super::{Output, ToolError, deliberate, function};

const ANALYSIS: &str = r#"{"consensus":["yes"]}"#;

fn settings(entry: &Value) -> Result<Settings, ToolError> {
    let catalog =
        json!([{"id": "only/one", "kind": "responses", "endpoints": [{"pricing": {}}]}]).to_string();
    let config = json!({"presets": {"general-fast": ["f/1", "f/2"]}}).to_string();
    let fields = Fields::settings(entry.to_string().as_bytes()).unwrap();
    Settings::read(&fields, config.as_bytes(), catalog.as_bytes())
}

fn run(
    entry: &Value,
    panel: &[Result<&'static str, ErrorKind>],
    judge: Result<&'static str, ErrorKind>,
) -> (Value, Value, Script) {
    let mut script = Script::new(&[panel, &[judge]].concat());
    let arguments = json!({"prompt": "Is it so?"}).to_string();
    let Output { for_model, item, .. } =
        deliberate(arguments.as_bytes(), &settings(entry).unwrap(), &mut script).unwrap();
    (serde_json::from_slice(&item).unwrap(), serde_json::from_str(&for_model).unwrap(), script)
}

#[test]
fn answers_and_analysis_go_to_the_model_and_the_client() {
    let entry = json!({"analysis_models": ["a/b", "c/d", "a/b"], "model": "j/k", "temperature": 1,
        "tools": [{"type": "service:datetime"}]});
    let (item, told, script) = run(&entry, &[Ok("Yes."), Ok("No.")], Ok(ANALYSIS));
    let responses = json!([{"model": "a/b", "content": "Yes."}, {"model": "c/d", "content": "No."}]);
    assert_eq!(item["responses"], responses);
    assert_eq!(item["analysis"]["consensus"], json!(["yes"]));
    assert_eq!(item["sources"], json!([{"url": "https://a.test", "title": "A"}]));
    assert!(item.get("failed_models").is_none() && item.get("error").is_none());
    assert_eq!((&told["status"], &told["responses"]), (&json!("ok"), &responses));
    assert_eq!(told["analysis"], item["analysis"]);
    assert_eq!((&script.panels, script.asked.len()), (&vec![2], 3));
    assert_eq!(script.asked[1]["model"], "c/d");
    assert_eq!(
        (&script.asked[0]["temperature"], &script.asked[0]["max_tool_calls"]),
        (&json!(1.0), &json!(4))
    );
    let judged = &script.asked[2];
    assert_eq!((&judged["model"], &judged["temperature"]), (&json!("j/k"), &json!(0)));
    assert!(judged.get("tools").is_none());
    assert_eq!(judged["text"]["format"]["type"], "json_schema");
    let data: Value = serde_json::from_str(judged["input"].as_str().unwrap()).unwrap();
    assert_eq!((&data["question"], &data["responses"]), (&json!("Is it so?"), &responses));
}

#[test]
fn failed_members_and_judges_are_reported() {
    let entry = json!({"analysis_models": ["a/b", "c/d"]});
    let (item, told, script) =
        run(&entry, &[Err(ErrorKind::Timeout), Ok("No.")], Err(ErrorKind::ProviderUnavailable));
    assert_eq!(item["failed_models"], json!([{"model": "a/b", "error": "Down."}]));
    assert_eq!((&item["failure_reason"], &item["error"]), (&json!("judge_failed"), &json!("Down.")));
    assert!(item.get("status").is_none() && item.get("analysis").is_none());
    assert_eq!((&told["status"], &told["failed_models"]), (&json!("ok"), &item["failed_models"]));
    assert!(script.asked[2].get("model").is_none());
    let (item, ..) = run(&entry, &[Ok("Yes."), Ok("No.")], Ok("They agree."));
    assert_eq!(item["failure_reason"], "judge_not_valid_json");
}

#[test]
fn a_panel_without_answers_is_a_failed_item_with_the_reason() {
    let entry = json!({"analysis_models": ["a/b", "c/d"]});
    for (panel, reason) in [
        ([Err(ErrorKind::RateLimitExceeded), Err(ErrorKind::RateLimitExceeded)], "rate_limited"),
        ([Err(ErrorKind::PaymentRequired), Err(ErrorKind::PaymentRequired)], "insufficient_credits"),
        ([Err(ErrorKind::PaymentRequired), Err(ErrorKind::Server)], "all_panels_failed"),
        ([Ok(" "), Ok("")], "all_panels_failed"),
    ] {
        let (item, told, script) = run(&entry, &panel, Ok(ANALYSIS));
        assert_eq!((&item["status"], &item["failure_reason"]), (&json!("failed"), &json!(reason)));
        assert_eq!(item["failed_models"].as_array().unwrap().len(), 2);
        assert_eq!((&told["status"], &told["failure_reason"]), (&json!("error"), &json!(reason)));
        assert_eq!(script.asked.len(), 2);
    }
}

#[test]
fn the_panel_is_named_or_a_preset() {
    let panel = |entry: Value| settings(&entry).unwrap().panel;
    assert_eq!(panel(json!({"analysis_models": ["x/y"], "preset": "general-fast"})), ["x/y"]);
    assert_eq!(panel(json!({"preset": "general-fast"})), ["f/1", "f/2"]);
    assert_eq!(panel(json!({})), ["only/one"]);
}

#[test]
fn wrong_settings_and_arguments_are_named() {
    for (entry, starts) in [
        (json!({"analysis_models": []}), "parameters.analysis_models must be a list of 1 to 8"),
        (json!({"analysis_models": vec!["a/b"; 9]}), "parameters.analysis_models must be a list"),
        (json!({"preset": "best"}), "parameters.preset must be one of general-high"),
        (json!({"max_tool_calls": 17}), "parameters.max_tool_calls must be a whole number from 1 to 16"),
        (json!({"cache_control": 1}), "parameters.cache_control must be an object"),
        (json!({"tools": [{"type": "openrouter:fusion"}]}), "parameters.tools[0].type must be another"),
    ] {
        match settings(&entry) {
            Err(ToolError::InvalidSettings(message)) => assert!(message.starts_with(starts), "{message}"),
            _ => panic!("{entry} is taken"),
        }
    }
    let mut script = Script::default();
    let refused = deliberate(b"{}", &settings(&json!({})).unwrap(), &mut script).unwrap_err();
    assert!(matches!(refused, ToolError::InvalidArguments(message) if message.starts_with("prompt must")));
    assert_eq!(function().name, "fusion");
}
