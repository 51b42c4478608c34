//! The server tool `subagent`: a model delegates a self-contained task to a worker, usually a cheaper
//! model, and continues with the outcome. A request may offer several workers, distinguished by
//! `name`.

mod settings;

#[cfg(test)]
mod tests;

use cofferdam_toolbox::bindings::cofferdam::plugin::types::{CallContext, Json};
use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use cofferdam_toolbox::{Fields, Models, Service, completed, failed, text_of};
use serde_json::{Map, Value, json};

use settings::Settings;

/// The worker's instructions when the client has none.
const INSTRUCTIONS: &str = "You carry out one task that another model hands to you. Do exactly what it asks and \
    answer with the outcome alone, in the form it asks for. You cannot ask back.";

struct Subagent;

cofferdam_toolbox::export_tool!(Subagent);

impl Guest for Subagent {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        Ok(vec![function(&Settings::read(&Fields::settings(&settings)?)?)])
    }

    fn invoke(
        function: String,
        arguments: Json,
        settings: Json,
        _: CallContext,
    ) -> Result<Output, ToolError> {
        let settings = Settings::read(&Fields::settings(&settings)?)?;
        if function != settings.instance.function {
            return Err(ToolError::InvalidArguments(format!("there is no function {function}")));
        }
        delegate(&arguments, &settings, &mut Service)
    }
}

/// The function that the model sees. The same settings give the same bytes.
fn function(settings: &Settings) -> Function {
    let about = match &settings.manner.instructions {
        Some(instructions) => {
            format!(" This worker was told: {}", cofferdam_toolbox::clip(instructions, 300).text)
        }
        None => String::new(),
    };
    let parameters = json!({
        "type": "object",
        "properties": {
            "task_name": { "type": "string", "description": "A short name for the task." },
            "task_description": {
                "type": "string",
                "description": "The whole task: everything the worker has to know, and the form of the outcome. \
                    It sees nothing of this conversation and remembers no other task."
            }
        },
        "required": ["task_name", "task_description"],
        "additionalProperties": false
    });
    Function {
        name: settings.instance.function.clone(),
        description: format!(
            "Hands a self-contained task to a worker model and returns its outcome. Use it for work that does not \
             need all you can do, such as summaries, extraction or drafts; not for what is faster done than \
             described.{about}"
        ),
        parameters: settings.instance.schema(parameters),
    }
}

/// Gives the task to the worker.
fn delegate(arguments: &[u8], settings: &Settings, models: &mut impl Models) -> Result<Output, ToolError> {
    let arguments = Fields::arguments(arguments)?;
    let (name, task) = (arguments.required_text("task_name")?, arguments.required_text("task_description")?);
    let mut question = settings.manner.question(None, Value::from(task));
    question.entry("instructions").or_insert_with(|| Value::from(INSTRUCTIONS));
    let answer = models.ask(&Value::Object(question));
    let asked = settings.manner.model.as_deref();
    let model = answer.as_ref().ok().map(|answer| answer.model.as_str()).or(asked);
    let mut members = Map::new();
    for (member, value) in [
        ("model", model),
        ("task_name", Some(name)),
        ("task_description", Some(task)),
        ("instance_name", settings.instance.name.as_deref()),
    ] {
        if let Some(value) = value {
            members.insert(member.to_owned(), Value::from(value));
        }
    }
    match text_of(&answer) {
        Ok(outcome) => {
            members.insert("outcome".to_owned(), Value::from(outcome));
            let told = json!({ "task_name": name, "model": model, "outcome": outcome });
            Ok(completed(members, told.to_string()))
        }
        Err(error) => Ok(failed(members, &error)),
    }
}
