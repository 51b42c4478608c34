use cofferdam_guest_kit::bindings::types::ErrorKind;
use cofferdam_guest_kit::server_tool::Fields;
use cofferdam_guest_kit::server_tool::testing::Script;
use serde_json::{Value, json};

use super::{Instance, Output, SingleFunction, Subagent, ToolError, delegate, function};

fn settings(json: &Value) -> Result<Instance, ToolError> {
    Subagent::settings(&Fields::settings(json.to_string().as_bytes()).unwrap())
}

fn run(entry: &Value, answer: Result<&'static str, ErrorKind>) -> (Output, Value) {
    let mut script = Script::new(&[answer]);
    let arguments = json!({"task_name": "Sum", "task_description": "Add 1 and 2."}).to_string();
    let output = delegate(arguments.as_bytes(), &settings(entry).unwrap(), &mut script).unwrap();
    (output, script.asked.remove(0))
}

fn item(output: &Output) -> Value {
    serde_json::from_slice(&output.item).unwrap()
}

#[test]
fn an_outcome_goes_to_the_model_and_the_client() {
    let (output, asked) =
        run(&json!({"name": "Clerk", "model": "a/cheap", "tools": [{"type": "service:datetime"}]}), Ok("3"));
    let told: Value = serde_json::from_str(&output.for_model).unwrap();
    assert_eq!(told, json!({"task_name": "Sum", "model": "a/cheap", "outcome": "3"}));
    assert_eq!(
        item(&output),
        json!({"model": "a/cheap", "task_name": "Sum", "task_description": "Add 1 and 2.",
            "instance_name": "Clerk", "outcome": "3"})
    );
    assert_eq!((&asked["model"], &asked["input"]), (&json!("a/cheap"), &json!("Add 1 and 2.")));
    assert_eq!(asked["max_tool_calls"], 10);
    assert!(asked["instructions"].as_str().unwrap().starts_with("You carry out"));
}

#[test]
fn without_a_model_the_model_of_the_request_is_asked() {
    let (output, asked) = run(&json!({"instructions": "Add."}), Ok("3"));
    assert!(asked.get("model").is_none());
    assert_eq!((&asked["instructions"], &item(&output)["model"]), (&json!("Add."), &json!("outer/model")));
}

#[test]
fn no_outcome_is_a_failed_item_with_the_reason() {
    for (answer, error) in [(Err(ErrorKind::Timeout), "Down."), (Ok(""), "The model gave an empty answer.")] {
        let (output, _) = run(&json!({"model": "a/b"}), answer);
        let shown = item(&output);
        assert_eq!((&shown["status"], &shown["error"]), (&json!("failed"), &json!(error)));
        assert_eq!((&shown["task_name"], &shown["model"]), (&json!("Sum"), &json!("a/b")));
    }
}

#[test]
fn workers_have_functions_of_their_own() {
    let name = |entry: &Value| function(&settings(entry).unwrap()).name;
    assert_eq!(name(&json!({})), "subagent");
    assert_eq!(name(&json!({"name": "Copy editor"})), "subagent_copy_editor");
}

#[test]
fn wrong_settings_and_arguments_are_named() {
    for (entry, starts) in [
        (json!({"inherit_functions": true}), "parameters.inherit_functions is not available on this host"),
        (json!({"inherit_functions": 1}), "parameters.inherit_functions must be true or false"),
        (json!({"max_tool_calls": 26}), "parameters.max_tool_calls must be a whole number from 1 to 25"),
        (json!({"tools": [{"type": "service:subagent"}]}), "parameters.tools[0].type must be another"),
    ] {
        match settings(&entry) {
            Err(ToolError::InvalidSettings(message)) => assert!(message.starts_with(starts), "{message}"),
            _ => panic!("{entry} is taken"),
        }
    }
    assert!(settings(&json!({"inherit_functions": false})).is_ok());
    let mut script = Script::default();
    let refused = delegate(br#"{"task_name":"x"}"#, &settings(&json!({})).unwrap(), &mut script).unwrap_err();
    assert!(
        matches!(refused, ToolError::InvalidArguments(message) if message.starts_with("task_description"))
    );
}
