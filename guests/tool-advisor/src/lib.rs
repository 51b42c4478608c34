//! The server tool `advisor`: a model asks another, usually stronger model for advice and then
//! writes the answer itself. A request may offer several advisors, distinguished by `name`.

mod settings;
mod transcript;

#[cfg(test)]
mod tests;

use cofferdam_toolbox::bindings::cofferdam::plugin::request;
use cofferdam_toolbox::bindings::cofferdam::plugin::types::{CallContext, Json};
use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use cofferdam_toolbox::{Fields, Models, Service, completed, failed, text_of};
use serde_json::{Map, Value, json};

use settings::Settings;

/// The advisor's instructions when the client has none.
const INSTRUCTIONS: &str = "You advise another model that is working on a task and asks you for guidance. \
    Give concrete, decisive advice that it can act on at once. It writes the final answer itself.";

struct Advisor;

cofferdam_toolbox::export_tool!(Advisor);

impl Guest for Advisor {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        let fields = Fields::settings(&settings)?;
        let settings = Settings::read(&fields)?;
        if settings.forwards_transcript && transcript::is_empty(&request::transcript()) {
            // With the grant, the transcript contains at least the client's input.
            return Err(fields.wrong(
                "forward_transcript",
                "needs the operator's grant: [plugins.tool-advisor] imports = [\"model\", \"request\"]",
            ));
        }
        Ok(vec![function(&settings)])
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
        let told = if settings.forwards_transcript { request::transcript() } else { Vec::new() };
        consult(&arguments, &settings, &told, &mut Service)
    }
}

/// The function that the model sees. The same settings give the same bytes.
fn function(settings: &Settings) -> Function {
    let about = match &settings.manner.instructions {
        Some(instructions) => {
            format!(" This advisor was told: {}", cofferdam_toolbox::clip(instructions, 300).text)
        }
        None => String::new(),
    };
    let context = if settings.forwards_transcript {
        "The advisor sees the conversation so far."
    } else {
        "The advisor sees nothing but this prompt: put everything into it that it needs to know."
    };
    let prompt = json!({ "type": "string", "description": format!("What you want advice on. {context}") });
    let mut properties = Map::from_iter([("prompt".to_owned(), prompt)]);
    if settings.manner.model.is_none() {
        let model = json!({
            "type": "string",
            "description": "The model to ask, such as vendor/name; your own when left out."
        });
        properties.insert("model".to_owned(), model);
    }
    let parameters = json!({
        "type": "object",
        "properties": properties,
        "required": ["prompt"],
        "additionalProperties": false
    });
    Function {
        name: settings.instance.function.clone(),
        description: format!(
            "Asks an advisor model for guidance. Use it before you commit to an approach, when you are stuck, or \
             before you declare a hard task done; not for steps that you can take yourself.{about}"
        ),
        parameters: settings.instance.schema(parameters),
    }
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
    let chosen = match &settings.manner.model {
        Some(_) => None,
        None => arguments.text("model")?.map(str::trim).filter(|model| !model.is_empty()),
    };
    let input = match transcript::told(transcript) {
        Some(told) => format!("{told}\n\nThe model asks you:\n{prompt}"),
        None => prompt.to_owned(),
    };
    let mut question = settings.manner.question(chosen, Value::from(input));
    question.entry("instructions").or_insert_with(|| Value::from(INSTRUCTIONS));
    let answer = models.ask(&Value::Object(question));
    let asked = chosen.or(settings.manner.model.as_deref());
    let model = answer.as_ref().ok().map(|answer| answer.model.as_str()).or(asked);
    let mut members = Map::new();
    for (name, value) in
        [("model", model), ("prompt", Some(prompt)), ("instance_name", settings.instance.name.as_deref())]
    {
        if let Some(value) = value {
            members.insert(name.to_owned(), Value::from(value));
        }
    }
    match text_of(&answer) {
        Ok(advice) => {
            members.insert("advice".to_owned(), Value::from(advice));
            Ok(completed(members, advice.to_owned()))
        }
        Err(error) => Ok(failed(members, &error)),
    }
}
