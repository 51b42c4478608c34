//! The server tool `fusion`: a panel of models answers the same prompt at the same time, a judge
//! compares the answers, and the calling model writes the final answer.

mod analysis;
mod panel;
mod preset;
mod settings;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::bindings::{catalog, config};
use cofferdam_guest_kit::server_tool::{Fields, Models, Service, SingleFunction, schema};
use serde_json::{Map, Value, json};

use panel::Panel;
use settings::Settings;

struct Fusion;

cofferdam_guest_kit::export!(tool: Fusion);

impl SingleFunction for Fusion {
    const NAME: &'static str = settings::TYPE;
    type Settings = Settings;

    fn settings(fields: &Fields) -> Result<Settings, ToolError> {
        Settings::read(fields, &config::settings(), &catalog::models())
    }

    fn function(_: &Settings, _: &CallContext) -> Result<Function, ToolError> {
        Ok(function())
    }

    fn call(arguments: &[u8], settings: &Settings, _: &CallContext) -> Result<Output, ToolError> {
        deliberate(arguments, settings, &mut Service)
    }
}

fn function() -> Function {
    let properties = json!({
        "prompt": {
            "type": "string",
            "description": "The question, with everything the panel has to know: it sees nothing else. Ask \
                neutrally and leave out your own tentative answer, which would draw all of them to it."
        }
    });
    Function::new(
        Fusion::NAME,
        "Asks a panel of models the same question at the same time and returns their answers with an \
            analysis of where they agree, differ and fall short. Use it only where several perspectives are worth \
            the cost: research, critique of many sides, or when being wrong is expensive.",
        schema(properties, &["prompt"]),
    )
}

/// Asks the panel, then the judge.
fn deliberate(arguments: &[u8], settings: &Settings, models: &mut impl Models) -> Result<Output, ToolError> {
    let arguments = Fields::arguments(arguments)?;
    let prompt = arguments.required_text("prompt")?;
    let panel = Panel::ask(prompt, settings, models);
    if panel.responses.is_empty() {
        return Ok(panel.failed());
    }
    let mut members = panel.members();
    let mut for_model = Map::from_iter([("status".to_owned(), Value::from("ok"))]);
    match analysis::ask(prompt, &panel, settings, models) {
        Ok(analysis) => {
            for_model.insert("analysis".to_owned(), analysis.clone());
            members.insert("analysis".to_owned(), analysis);
        }
        // The answers are useful without an analysis.
        Err(analysis::Failed { reason, error }) => {
            members.insert("failure_reason".to_owned(), Value::from(reason));
            members.insert("error".to_owned(), Value::from(error));
        }
    }
    for_model.extend(panel.rendered());
    Ok(Output::new(Value::Object(for_model).to_string(), members))
}
