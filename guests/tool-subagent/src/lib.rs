//! The server tool `subagent`: a model delegates a self-contained task to a worker, usually a cheaper
//! model, and continues with the outcome. A request may offer several workers, distinguished by
//! `name`.

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{
    Fields, Instance, Models, Service, SingleFunction, failed, members, schema, text_of,
};
use serde_json::{Value, json};

/// The worker's instructions when the client has none.
const INSTRUCTIONS: &str = "You carry out one task that another model hands to you. Do exactly what it asks and \
    answer with the outcome alone, in the form it asks for. You cannot ask back.";

struct Subagent;

cofferdam_guest_kit::export!(tool: Subagent);

impl SingleFunction for Subagent {
    /// The tool's type, and the name of the function of a worker without a name.
    const NAME: &'static str = "subagent";
    type Settings = Instance;

    fn settings(fields: &Fields) -> Result<Instance, ToolError> {
        const INHERIT: &str = "inherit_functions";
        if fields.flag(INHERIT)?.unwrap_or(false) {
            return Err(fields.wrong(
                INHERIT,
                "is not available on this host: a worker cannot wait for the client to run a function",
            ));
        }
        Instance::read(fields, Self::NAME)
    }

    fn name(settings: &Instance) -> &str {
        &settings.function
    }

    fn function(settings: &Instance, _: &CallContext) -> Result<Function, ToolError> {
        Ok(function(settings))
    }

    fn call(arguments: &[u8], settings: &Instance, _: &CallContext) -> Result<Output, ToolError> {
        delegate(arguments, settings, &mut Service)
    }
}

/// The function that the model sees. The same settings give the same bytes.
fn function(settings: &Instance) -> Function {
    let properties = json!({
        "task_name": { "type": "string", "description": "A short name for the task." },
        "task_description": {
            "type": "string",
            "description": "The whole task: everything the worker has to know, and the form of the outcome. \
                It sees nothing of this conversation and remembers no other task."
        }
    });
    let description = format!(
        "Hands a self-contained task to a worker model and returns its outcome. Use it for work that does not \
         need all you can do, such as summaries, extraction or drafts; not for what is faster done than \
         described.{}",
        settings.told("worker")
    );
    settings.function(&description, schema(properties, &["task_name", "task_description"]))
}

/// Gives the task to the worker.
fn delegate(arguments: &[u8], settings: &Instance, models: &mut impl Models) -> Result<Output, ToolError> {
    let arguments = Fields::arguments(arguments)?;
    let (name, task) = (arguments.required_text("task_name")?, arguments.required_text("task_description")?);
    let (answer, model) = settings.ask(None, Value::from(task), INSTRUCTIONS, models);
    let mut members = members([
        ("model", model.as_deref()),
        ("task_name", Some(name)),
        ("task_description", Some(task)),
        ("instance_name", settings.name.as_deref()),
    ]);
    match text_of(&answer) {
        Ok(outcome) => {
            members.insert("outcome".to_owned(), Value::from(outcome));
            let for_model = json!({ "task_name": name, "model": model, "outcome": outcome });
            Ok(Output::new(for_model.to_string(), members))
        }
        Err(error) => Ok(failed(members, &error)),
    }
}
