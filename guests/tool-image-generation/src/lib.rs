//! The server tool `image_generation`: a text model asks another model to generate an image. That
//! model is chosen by the request, otherwise by the operator; otherwise it is the first model of the
//! catalog that generates images.

mod choice;
mod picture;
mod settings;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::model::{self, Answer};
use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::{CallContext, Failure, Json};
use cofferdam_guest_kit::bindings::{catalog, config};
use cofferdam_guest_kit::server_tool::{Fields, SingleFunction, clip, schema};
use serde_json::{Map, Value, json};

use settings::Settings;

/// The longest prompt, in characters.
const PROMPT_CHARS_MAX: usize = 32_000;
/// The longest text from the image model that is passed on to the calling model, in characters.
const TEXT_CHARS_MAX: usize = 2_000;

struct ImageGeneration;

cofferdam_guest_kit::export!(tool: ImageGeneration);

impl SingleFunction for ImageGeneration {
    const NAME: &'static str = "image_generation";
    /// Also the model to ask.
    type Settings = (Settings, String);

    fn settings(fields: &Fields) -> Result<(Settings, String), ToolError> {
        let settings = Settings::read(fields)?;
        let model = choice::model(&settings, fields, &config::settings(), &catalog::models())?;
        Ok((settings, model))
    }

    fn function((settings, _): &(Settings, String), _: &CallContext) -> Result<Function, ToolError> {
        Ok(function(settings))
    }

    fn call(
        arguments: &[u8],
        (settings, model): &(Settings, String),
        _: &CallContext,
    ) -> Result<Output, ToolError> {
        make(&Fields::arguments(arguments)?, settings, model, |question| model::ask(question))
    }
}

fn function(settings: &Settings) -> Function {
    let properties = json!({
        "prompt": {
            "type": "string",
            "description": "What the picture shows, in all detail: the model that makes it sees nothing else."
        }
    });
    let mut parameters = schema(properties, &["prompt"]);
    if settings.is_clients {
        // Clients of this tool type require the member from the start of the item.
        parameters.insert("x-item".to_owned(), json!({ "result": null }));
    }
    Function::new(
        ImageGeneration::NAME,
        "Makes a picture from a description and shows it to the user.",
        parameters,
    )
}

/// Asks `model` through `ask` to generate an image.
fn make(
    arguments: &Fields,
    settings: &Settings,
    model: &str,
    ask: impl Fn(&Json) -> Result<Answer, Failure>,
) -> Result<Output, ToolError> {
    let prompt = arguments.required_text("prompt")?;
    if clip(prompt, PROMPT_CHARS_MAX).cut {
        return Err(arguments.wrong("prompt", &format!("may have at most {PROMPT_CHARS_MAX} characters")));
    }
    let question = json!({
        "model": model,
        "input": prompt,
        "modalities": ["image"],
        "image_config": settings.image,
    });
    let answer = ask(&question.to_string().into_bytes()).map_err(|failure| {
        ToolError::Failed(format!(
            "The image could not be made: {}",
            clip(&failure.message, TEXT_CHARS_MAX).text
        ))
    })?;
    let picture = picture::find(&answer.output).map_err(|problem| ToolError::Failed(problem.to_owned()))?;
    let mut item = Map::new();
    item.insert("prompt".to_owned(), Value::from(prompt));
    if let Some(revised) = picture.revised_prompt {
        item.insert("revised_prompt".to_owned(), Value::from(revised));
    }
    if !settings.is_clients {
        let url = format!("data:{};base64,{}", picture.media_type, picture.base64);
        item.insert("image_url".to_owned(), Value::from(url));
        item.insert("image_b64".to_owned(), Value::from(picture.base64.as_str()));
    }
    item.insert("result".to_owned(), Value::from(picture.base64));
    let mut for_model = "The picture was made and the user sees it.".to_owned();
    if !answer.text.trim().is_empty() {
        for_model.push_str(" The model that made it says: ");
        for_model.push_str(clip(answer.text.trim(), TEXT_CHARS_MAX).text);
    }
    Ok(Output::new(for_model, item))
}
