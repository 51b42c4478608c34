//! A tool that asks models. `text` is the request, or for `panel` a list of requests.

use bindings::cofferdam::plugin::model::{self, Answer};
use bindings::cofferdam::plugin::model_panel;
use bindings::cofferdam::plugin::types::{CallContext, Failure, Json};
use bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use serde_json::{Value, json};

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "tool" });
    use super::Tool;
    export!(Tool);
}

struct Tool;

const FUNCTIONS: [&str; 5] = ["question", "questions", "panel", "for_ever", "break"];

impl Guest for Tool {
    fn functions(_: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        let function = |name: &str| Function {
            name: name.to_owned(),
            description: format!("Asks: {name}."),
            parameters: b"{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}}}".to_vec(),
        };
        Ok(FUNCTIONS.into_iter().map(function).collect())
    }

    fn invoke(function: String, arguments: Json, _: Json, _: CallContext) -> Result<Output, ToolError> {
        let arguments: Value = serde_json::from_slice(&arguments).unwrap_or_default();
        let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default();
        match function.as_str() {
            "question" => Ok(told(&[model::ask(text.as_bytes())])),
            // Until it is told to stop.
            "questions" => {
                let mut answers = Vec::new();
                while answers.last().is_none_or(Result::is_ok) {
                    answers.push(model::ask(text.as_bytes()));
                }
                Ok(told(&answers))
            }
            "panel" => {
                let requests: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
                let requests: Vec<_> =
                    requests.iter().map(|request| request.to_string().into_bytes()).collect();
                Ok(told(&model_panel::ask_all(&requests)))
            }
            "break" => {
                let asked = [model::ask(text.as_bytes())];
                eprintln!("broken after {}", told(&asked).for_model);
                std::process::abort();
            }
            // Whatever it is told.
            _ => loop {
                drop(model::ask(text.as_bytes()));
            },
        }
    }
}

/// Everything that came back, and a charge of its own.
fn told(answers: &[Result<Answer, Failure>]) -> Output {
    let told = |answer: &Result<Answer, Failure>| match answer {
        Ok(answer) => json!({
            "text": answer.text, "model": answer.model, "cost_pico": answer.cost_pico,
            "tokens": [answer.usage.input_tokens, answer.usage.output_tokens],
            "items": serde_json::from_slice::<Value>(&answer.output).unwrap_or_default(),
        }),
        Err(failure) => json!({ "failure": format!("{:?}", failure.kind), "message": failure.message }),
    };
    let told: Vec<Value> = answers.iter().map(told).collect();
    Output {
        for_model: Value::from(told).to_string(),
        item: json!({ "asked": answers.len() }).to_string().into_bytes(),
        annotations: Vec::new(),
        cost_pico: 1_000_000,
    }
}
