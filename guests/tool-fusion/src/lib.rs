//! The server tool `fusion`: a panel of models answers the same prompt at the same time, a judge
//! compares the answers, and the calling model writes the final answer.

mod analysis;
mod panel;
mod preset;
mod settings;

#[cfg(test)]
mod tests;

use cofferdam_toolbox::bindings::cofferdam::plugin::types::{CallContext, Json};
use cofferdam_toolbox::bindings::cofferdam::plugin::{catalog, config};
use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use cofferdam_toolbox::{Fields, Models, Service, completed};
use serde_json::{Map, Value, json};

use panel::Panel;
use settings::Settings;

/// The only function, named like the tool.
const NAME: &str = "fusion";

struct Fusion;

cofferdam_toolbox::export_tool!(Fusion);

impl Guest for Fusion {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        read(&settings)?;
        Ok(vec![function()])
    }

    fn invoke(
        function: String,
        arguments: Json,
        settings: Json,
        _: CallContext,
    ) -> Result<Output, ToolError> {
        let settings = read(&settings)?;
        if function != NAME {
            return Err(ToolError::InvalidArguments(format!("there is no function {function}")));
        }
        deliberate(&arguments, &settings, &mut Service)
    }
}

/// Reads the settings of an entry. The panel comes from the entry, from the operator's presets or
/// from the prices of the catalog.
fn read(settings: &[u8]) -> Result<Settings, ToolError> {
    Settings::read(&Fields::settings(settings)?, &config::settings(), &catalog::models())
}

fn function() -> Function {
    let parameters = json!({
        "type": "object",
        "properties": {
            "prompt": {
                "type": "string",
                "description": "The question, with everything the panel has to know: it sees nothing else. Ask \
                    neutrally and leave out your own tentative answer, which would draw all of them to it."
            }
        },
        "required": ["prompt"],
        "additionalProperties": false
    });
    Function {
        name: NAME.to_owned(),
        description: "Asks a panel of models the same question at the same time and returns their answers with an \
            analysis of where they agree, differ and fall short. Use it only where several perspectives are worth \
            the cost: research, critique of many sides, or when being wrong is expensive."
            .to_owned(),
        parameters: parameters.to_string().into_bytes(),
    }
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
    let mut told = Map::from_iter([("status".to_owned(), Value::from("ok"))]);
    match analysis::ask(prompt, &panel, settings, models) {
        Ok(analysis) => {
            told.insert("analysis".to_owned(), analysis.clone());
            members.insert("analysis".to_owned(), analysis);
        }
        // The answers are useful without an analysis.
        Err(analysis::Failed { reason, error }) => {
            members.insert("failure_reason".to_owned(), Value::from(reason));
            members.insert("error".to_owned(), Value::from(error));
        }
    }
    told.extend(panel.told());
    Ok(completed(members, Value::Object(told).to_string()))
}
