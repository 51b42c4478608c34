use cofferdam_guest_kit::bindings::types::ErrorKind;
use cofferdam_guest_kit::server_tool::Fields;
use cofferdam_guest_kit::server_tool::testing::Script;
use serde_json::{Value, json};

use super::settings::Settings;
use super::{Output, ToolError, consult, function};

fn settings(json: &Value) -> Result<Settings, ToolError> {
    Settings::read(&Fields::settings(json.to_string().as_bytes()).unwrap())
}

fn run(entry: &Value, arguments: &Value, answer: Result<&'static str, ErrorKind>) -> (Output, Value) {
    let mut script = Script::new(&[answer]);
    let transcript = json!([{"role": "user", "content": "Plan a trip."}]).to_string();
    let settings = settings(entry).unwrap();
    let rendered = if settings.forwards_transcript { transcript.as_bytes() } else { b"" };
    let output = consult(arguments.to_string().as_bytes(), &settings, rendered, &mut script).unwrap();
    (output, script.asked.remove(0))
}

fn item(output: &Output) -> Value {
    serde_json::from_slice(&output.item).unwrap()
}

#[test]
fn advice_goes_to_the_model_and_the_client() {
    let entry = json!({"name": "Reviewer", "model": "a/strong", "temperature": 0});
    let (output, asked) = run(&entry, &json!({"prompt": " Which way? ", "model": "x/ignored"}), Ok("Left."));
    assert_eq!(output.for_model, "Left.");
    assert_eq!(
        item(&output),
        json!({"model": "a/strong", "prompt": "Which way?", "instance_name": "Reviewer", "advice": "Left."})
    );
    assert_eq!((&asked["model"], &asked["input"]), (&json!("a/strong"), &json!("Which way?")));
    assert!(asked["instructions"].as_str().unwrap().starts_with("You advise"));
    assert_eq!(output.cost_pico, 0);
}

#[test]
fn the_model_chooses_where_the_client_has_not() {
    let (output, asked) = run(&json!({}), &json!({"prompt": "?", "model": "m/own"}), Ok("Yes."));
    assert_eq!((&asked["model"], &item(&output)["model"]), (&json!("m/own"), &json!("m/own")));
    let (output, asked) = run(&json!({}), &json!({"prompt": "?"}), Ok("Yes."));
    assert!(asked.get("model").is_none());
    assert_eq!(item(&output)["model"], "outer/model");
}

#[test]
fn the_conversation_goes_along_when_the_client_says_so() {
    let entry = json!({"forward_transcript": true, "instructions": "Be brief."});
    let (_, asked) = run(&entry, &json!({"prompt": "Which way?"}), Ok("Left."));
    assert_eq!(
        asked["input"],
        "The conversation so far:\nuser: Plan a trip.\n\nThe model asks you:\nWhich way?"
    );
    assert_eq!(asked["instructions"], "Be brief.");
}

#[test]
fn no_advice_is_a_failed_item_with_the_reason() {
    for (answer, error) in [
        (Err(ErrorKind::ProviderUnavailable), "Down."),
        (Err(ErrorKind::NotFound), "The question was refused: Down."),
        (Ok("  "), "The model gave an empty answer."),
    ] {
        let (output, _) = run(&json!({"model": "a/b"}), &json!({"prompt": "?"}), answer);
        assert_eq!(item(&output), json!({"model": "a/b", "prompt": "?", "status": "failed", "error": error}));
        assert_eq!(serde_json::from_str::<Value>(&output.for_model).unwrap(), json!({"error": error}));
    }
}

#[test]
fn the_function_fits_the_settings() {
    let offered = |entry: &Value| function(&settings(entry).unwrap());
    let plain = offered(&json!({}));
    assert_eq!(plain.name, "advisor");
    let parameters: Value = serde_json::from_slice(&plain.parameters).unwrap();
    assert!(parameters["properties"]["model"].is_object());
    let named = offered(&json!({"name": "Plan reviewer", "model": "a/b"}));
    assert_eq!(named.name, "advisor_plan_reviewer");
    let parameters: Value = serde_json::from_slice(&named.parameters).unwrap();
    assert!(parameters["properties"].get("model").is_none());
    assert_eq!(offered(&json!({})).parameters, plain.parameters);
}

#[test]
fn wrong_settings_and_arguments_are_named() {
    for (entry, starts) in [
        (json!({"stream": 1}), "parameters.stream must be true or false"),
        (json!({"forward_transcript": "yes"}), "parameters.forward_transcript must be true or false"),
        (json!({"name": "!"}), "parameters.name must"),
        (json!({"tools": [{"type": "service:advisor"}]}), "parameters.tools[0].type must be another"),
    ] {
        match settings(&entry) {
            Err(ToolError::InvalidSettings(message)) => assert!(message.starts_with(starts), "{message}"),
            _ => panic!("{entry} is taken"),
        }
    }
    let settings = settings(&json!({})).unwrap();
    let mut script = Script::default();
    let refused = consult(b"{}", &settings, b"", &mut script).unwrap_err();
    assert!(matches!(refused, ToolError::InvalidArguments(message) if message.starts_with("prompt must be")));
    assert!(script.asked.is_empty());
}
