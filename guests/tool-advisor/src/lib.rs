//! The server tool `advisor`: a model asks another, usually stronger model for advice and then
//! writes the answer itself. A request may offer several advisors, distinguished by `name`.

mod settings;
mod transcript;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::request;
use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{
    Fields, Models, Service, SingleFunction, failed, members, schema, text_of,
};
use serde_json::{Map, Value, json};

use settings::Settings;

/// The advisor's instructions when the client has none.
const INSTRUCTIONS: &str = "You advise another model that is working on a task and asks you for guidance. \
    Give concrete, decisive advice that it can act on at once. It writes the final answer itself.";

struct Advisor;

cofferdam_guest_kit::export!(tool: Advisor);

impl SingleFunction for Advisor {
    const NAME: &'static str = settings::TYPE;
    type Settings = Settings;

    fn settings(fields: &Fields) -> Result<Settings, ToolError> {
        Settings::read(fields)
    }

    fn name(settings: &Settings) -> &str {
        &settings.instance.function
    }

    fn function(settings: &Settings, _: &CallContext) -> Result<Function, ToolError> {
        if settings.forwards_transcript && transcript::is_empty(&request::transcript()) {
            // With the grant, the transcript contains at least the client's input.
            let message = "parameters.forward_transcript needs the operator's grant: \
                [plugins.tool-advisor] imports = [\"model\", \"request\"]";
            return Err(ToolError::InvalidSettings(message.to_owned()));
        }
        Ok(function(settings))
    }

    fn call(arguments: &[u8], settings: &Settings, _: &CallContext) -> Result<Output, ToolError> {
        let rendered = if settings.forwards_transcript { request::transcript() } else { Vec::new() };
        consult(arguments, settings, &rendered, &mut Service)
    }
}

/// The function that the model sees. The same settings give the same bytes.
fn function(settings: &Settings) -> Function {
    let context = if settings.forwards_transcript {
        "The advisor sees the conversation so far."
    } else {
        "The advisor sees nothing but this prompt: put everything into it that it needs to know."
    };
    let prompt = json!({ "type": "string", "description": format!("What you want advice on. {context}") });
    let mut properties = Map::from_iter([("prompt".to_owned(), prompt)]);
    if settings.instance.manner.model.is_none() {
        let model = json!({
            "type": "string",
            "description": "The model to ask, such as vendor/name; your own when left out."
        });
        properties.insert("model".to_owned(), model);
    }
    let description = format!(
        "Asks an advisor model for guidance. Use it before you commit to an approach, when you are stuck, or \
         before you declare a hard task done; not for steps that you can take yourself.{}",
        settings.instance.told("advisor")
    );
    settings.instance.function(&description, schema(properties, &["prompt"]))
}

/// Asks the advisor. `transcript` is a JSON array of items; it may be empty.
fn consult(
    arguments: &[u8],
    settings: &Settings,
    transcript: &[u8],
    models: &mut impl Models,
) -> Result<Output, ToolError> {
    let arguments = Fields::arguments(arguments)?;
    let prompt = arguments.required_text("prompt")?;
    // The client's choice of a model wins. The model may choose only when the client has not.
    let chosen = match &settings.instance.manner.model {
        Some(_) => None,
        None => arguments.text("model")?.map(str::trim).filter(|model| !model.is_empty()),
    };
    let input = match transcript::rendered(transcript) {
        Some(rendered) => format!("{rendered}\n\nThe model asks you:\n{prompt}"),
        None => prompt.to_owned(),
    };
    let (answer, model) = settings.instance.ask(chosen, Value::from(input), INSTRUCTIONS, models);
    let instance_name = settings.instance.name.as_deref();
    let mut members =
        members([("model", model.as_deref()), ("prompt", Some(prompt)), ("instance_name", instance_name)]);
    match text_of(&answer) {
        Ok(advice) => {
            members.insert("advice".to_owned(), Value::from(advice));
            Ok(Output::new(advice, members))
        }
        Err(error) => Ok(failed(members, &error)),
    }
}
