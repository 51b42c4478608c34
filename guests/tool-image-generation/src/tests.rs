use cofferdam_guest_kit::bindings::types::{ErrorKind, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::RefCell;

use super::choice;
use super::picture::{BASE64_BYTES_MAX, find};
use super::{Answer, Failure, Fields, Settings, ToolError, function, make};

const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

fn settings(json: &Value) -> Result<(Fields, Settings), String> {
    let fields = Fields::settings(json.to_string().as_bytes()).unwrap();
    match Settings::read(&fields) {
        Ok(settings) => Ok((fields, settings)),
        Err(ToolError::InvalidSettings(message)) => Err(message),
        Err(other) => panic!("{other:?}"),
    }
}

fn answer(output: &Value, text: &str) -> Answer {
    Answer {
        model: "a/painter".into(),
        text: text.into(),
        output: output.to_string().into_bytes(),
        usage: Usage {
            input_tokens: 0,
            cached_tokens: 0,
            cache_write_tokens: 0,
            output_tokens: 0,
            reasoning_tokens: 0,
            images: 1,
            provider_tool_requests: 0,
            cost_dollars: None,
        },
        cost_pico: 7,
    }
}

fn made(
    entry: &Value,
    arguments: &Value,
    answer: Result<Answer, Failure>,
) -> Result<(String, Value, Value), String> {
    let (_, settings) = settings(entry).unwrap();
    let asked = RefCell::new(Value::Null);
    let answer = RefCell::new(Some(answer));
    let ask = |question: &Vec<u8>| {
        *asked.borrow_mut() = serde_json::from_slice(question).unwrap();
        answer.borrow_mut().take().unwrap()
    };
    let arguments = Fields::arguments(arguments.to_string().as_bytes()).unwrap();
    match make(&arguments, &settings, "a/painter", ask) {
        Ok(output) => Ok((output.for_model, serde_json::from_slice(&output.item).unwrap(), asked.take())),
        Err(ToolError::InvalidArguments(message) | ToolError::Failed(message)) => Err(message),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_picture_is_asked_for_and_shown_in_both_forms() {
    let output = json!([{"type": "message"}, {"type": "image_generation_call", "result": PNG, "revised_prompt": "A red fox"}]);
    let entry = json!({"model": "a/painter", "size": "1K", "n": 1});
    let prompt = json!({"prompt": " a fox "});
    let (told, item, asked) = made(&entry, &prompt, Ok(answer(&output, "Here you are."))).unwrap();
    let question = json!({"model": "a/painter", "input": "a fox", "modalities": ["image"], "image_config": {"size": "1K", "n": 1}});
    assert_eq!(asked, question);
    assert_eq!(told, "The picture was made and the user sees it. The model that made it says: Here you are.");
    let url = format!("data:image/png;base64,{PNG}");
    assert_eq!(
        item,
        json!({"prompt": "a fox", "revised_prompt": "A red fox", "image_url": url, "image_b64": PNG, "result": PNG})
    );
    let entry = json!({"type": "image_generation", "quality": "low", "partial_images": 3, "model": null});
    let (told, item, asked) = made(&entry, &prompt, Ok(answer(&output, ""))).unwrap();
    assert_eq!(asked["image_config"], json!({"quality": "low"}));
    assert_eq!(
        (told.as_str(), item),
        (
            "The picture was made and the user sees it.",
            json!({"prompt": "a fox", "revised_prompt": "A red fox", "result": PNG})
        )
    );
}

#[test]
fn failures_give_a_message() {
    let entry = json!({});
    let failure = Failure {
        kind: ErrorKind::ProviderOverloaded,
        message: "busy".into(),
        code: None,
        retry_after_ms: None,
    };
    let prompt = json!({"prompt": "x"});
    let none = json!([{"type": "message"}, {"type": "image_generation_call", "result": null}]);
    let huge = json!([{"type": "image_generation_call", "result": "A".repeat(BASE64_BYTES_MAX + 1)}]);
    let other = json!([{"type": "image_generation_call", "result": "<svg>"}]);
    let drawing = json!([{"type": "image_generation_call", "result": "PHN2Zz48c2NyaXB0Lz48L3N2Zz4="}]);
    let table = [
        (prompt.clone(), Err(failure), "The image could not be made: busy"),
        (prompt.clone(), Ok(answer(&none, "")), "The model that was asked made no image."),
        (prompt.clone(), Ok(answer(&json!({}), "")), "The model that was asked made no image."),
        (prompt.clone(), Ok(answer(&huge, "")), "The image is too large: ask for a smaller one."),
        (
            prompt.clone(),
            Ok(answer(&other, "")),
            "The model that was asked made something else than an image.",
        ),
        (prompt, Ok(answer(&drawing, "")), "The model that was asked made something else than an image."),
        (json!({"prompt": " "}), Ok(answer(&none, "")), "prompt must be a string that is not empty"),
        (
            json!({"prompt": "x".repeat(40_000)}),
            Ok(answer(&none, "")),
            "prompt may have at most 32000 characters",
        ),
    ];
    for (arguments, answer, message) in table {
        assert_eq!(made(&entry, &arguments, answer), Err(message.to_owned()));
    }
}

#[test]
fn settings_are_those_of_the_picture() {
    for (entry, message) in [
        (json!({"model": 7}), "parameters.model must be a string"),
        (json!({"size": {"w": 1}}), "parameters.size must be a string, a number or an array"),
        (
            json!({"type": "image_generation", "input_image_mask": {}}),
            "parameters.input_image_mask is not available on this host: pictures are made, not edited",
        ),
        (
            json!({"type": "image_generation", "action": "edit"}),
            "parameters.action edit is not available on this host: pictures are made, not edited",
        ),
    ] {
        assert_eq!(settings(&entry).unwrap_err(), message);
    }
    let begin = |entry: Value| {
        let parameters = function(&settings(&entry).unwrap().1).parameters;
        serde_json::from_slice::<Value>(&parameters).unwrap()["x-item"].clone()
    };
    assert_eq!(
        (begin(json!({"type": "image_generation"})), begin(json!({}))),
        (json!({"result": null}), Value::Null)
    );
}

#[test]
fn the_model_is_the_clients_the_operators_or_the_first_that_can() {
    let catalog = json!([
        {"id": "a/writer", "endpoints": [{"supports": []}]},
        {"id": "b/painter", "endpoints": [{"supports": ["tools"]}, {"supports": ["image_output"]}]},
        {"id": "c/gpt-image", "endpoints": [{"supports": ["image_output"]}]},
    ]);
    let choose = |entry: &Value, config: &Value, catalog: &Value| {
        let (fields, settings) = settings(entry).unwrap();
        let (config, catalog) = (config.to_string(), catalog.to_string());
        choice::model(&settings, &fields, config.as_bytes(), catalog.as_bytes()).map_err(
            |error| match error {
                ToolError::InvalidSettings(message) => message,
                other => panic!("{other:?}"),
            },
        )
    };
    let none = json!({});
    let configured = json!({"model": "a/writer"});
    assert_eq!(choose(&none, &none, &catalog).unwrap(), "b/painter");
    assert_eq!(choose(&none, &configured, &catalog).unwrap(), "a/writer");
    assert_eq!(choose(&json!({"model": "c/gpt-image"}), &configured, &catalog).unwrap(), "c/gpt-image");
    assert_eq!(
        choose(&json!({"model": "gpt-image"}), &none, &catalog).unwrap_err(),
        "parameters.model names no model of this host"
    );
    let client = |model: &str| json!({"type": "image_generation", "model": model});
    assert_eq!(choose(&client("gpt-image"), &none, &catalog).unwrap(), "c/gpt-image");
    assert_eq!(choose(&client("gpt-image-9"), &none, &catalog).unwrap(), "b/painter");
    assert!(choose(&none, &none, &json!([])).unwrap_err().starts_with("parameters.model is needed"));
}

proptest! {
    #[test]
    fn any_output_is_read_or_refused(text in "\\PC{0,60}", result in "[A-Za-z0-9+/=<]{0,20}") {
        drop(find(text.as_bytes()));
        drop(find(json!([{"type": "image_generation_call", "result": result}]).to_string().as_bytes()));
    }
}
