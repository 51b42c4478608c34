//! From the client's request to the one for the server.

use std::cell::Cell;

use cofferdam_guest_kit::bindings::dialect::{Target, UpstreamRequest};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use cofferdam_guest_kit::{DataUrl, Item, Message, Part, Request, TextFormat, Tool, add_options};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

thread_local! {
    /// The number of calls in the request. The calls of the answer are numbered from it, because the server gives them no
    /// ids. `prepare` and the decoder of one attempt run in the same instance.
    pub static CALLS_BEFORE: Cell<usize> = const { Cell::new(0) };
}

/// The request for `chat`.
///
/// # Errors
///
/// The failure `invalid-request` when this dialect cannot carry the request.
pub fn translate(request: &[u8], target: &Target) -> Result<UpstreamRequest, Failure> {
    let request = Request::parse(request).map_err(|_| refused("the request cannot be read"))?;
    let mut messages = Vec::new();
    if let Some(instructions) = &request.instructions {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    // Results name the call by its id; this server wants the name of the function.
    let mut called = Map::new();
    for item in &request.input {
        match item {
            Item::Message(said) => messages.push(message(said)?),
            Item::FunctionCall { call_id, name, arguments, .. } => {
                called.insert(call_id.to_string(), name.as_ref().into());
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
                add_call(&mut messages, json!({"function": {"name": name, "arguments": arguments}}));
            }
            Item::FunctionCallOutput { call_id, output } => {
                let name = called.get(call_id.as_ref()).cloned().unwrap_or_default();
                messages.push(json!({"role": "tool", "tool_name": name, "content": output.to_text()}));
            }
            // The reasoning of earlier answers is not sent back to this server.
            Item::Reasoning(_) => {}
            Item::CustomToolCall { .. } | Item::CustomToolCallOutput { .. } => {
                return Err(refused("this dialect has no custom tools"));
            }
            Item::Other { kind } => return Err(refused(format!("this dialect has no items of type {kind}"))),
        }
    }
    CALLS_BEFORE.set(called.len());
    let mut body = json!({"model": target.model, "messages": messages, "stream": request.stream});
    let tools = request.tools.iter().map(tool).collect::<Result<Vec<Value>, Failure>>()?;
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    match &request.text.format {
        TextFormat::Text => {}
        TextFormat::JsonObject => body["format"] = "json".into(),
        TextFormat::JsonSchema { schema, .. } => body["format"] = value_of(schema),
        TextFormat::Other { kind, .. } => return Err(refused(format!("this dialect has no text format {kind}"))),
    }
    if let Some(reasoning) = &request.reasoning
        && let Some(effort) = reasoning.effort_word(request.max_output_tokens)
    {
        body["think"] = (effort != "none").into();
    }
    let options = options(&request);
    if !options.is_empty() {
        body["options"] = options.into();
    }
    let body = add_options(body.to_string().into_bytes(), &target.options);
    Ok(UpstreamRequest::new("chat", body, request.stream))
}

/// Adds a call to the message of the call before it: parallel calls are one message.
fn add_call(messages: &mut Vec<Value>, call: Value) {
    let last = messages.last_mut().and_then(|message| message.get_mut("tool_calls"));
    match last.and_then(Value::as_array_mut) {
        Some(calls) => calls.push(call),
        None => messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]})),
    }
}

/// Sampling settings, by the names of the server.
fn options(request: &Request<'_>) -> Map<String, Value> {
    let number = |number: &Option<serde_json::Number>| number.clone().map(Value::Number);
    let settings = [
        ("num_predict", request.max_output_tokens.map(Value::from)),
        ("temperature", number(&request.temperature)),
        ("top_p", number(&request.top_p)),
        ("top_k", number(&request.top_k)),
        ("frequency_penalty", number(&request.frequency_penalty)),
        ("presence_penalty", number(&request.presence_penalty)),
        ("stop", request.stop.map(value_of)),
    ];
    settings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn message(said: &Message<'_>) -> Result<Value, Failure> {
    let (mut text, mut images) = (String::new(), Vec::new());
    for part in &said.content {
        match part {
            Part::Text { text: piece, .. } | Part::Refusal { text: piece } => text.push_str(piece),
            Part::Image { url: Some(url), .. } => {
                let image = DataUrl::parse(url).filter(|image| image.base64);
                let image = image.ok_or_else(|| refused("this dialect takes images as base64 data URLs only"))?;
                images.push(image.data);
            }
            _ => return Err(refused("this dialect takes texts and images only")),
        }
    }
    let role = match said.role.as_str() {
        "developer" => "system",
        role => role,
    };
    let mut message = json!({"role": role, "content": text});
    if !images.is_empty() {
        message["images"] = images.into();
    }
    Ok(message)
}

fn tool(tool: &Tool<'_>) -> Result<Value, Failure> {
    let Tool::Function { name, description, parameters, .. } = tool else {
        return Err(refused("this dialect has functions only"));
    };
    let mut function = json!({"name": name});
    if let Some(description) = description {
        function["description"] = description.as_ref().into();
    }
    function["parameters"] = parameters.map_or_else(|| json!({"type": "object"}), |schema| value_of(schema));
    Ok(json!({"type": "function", "function": function}))
}

/// A part of the request as it is.
fn value_of(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

fn refused(message: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::InvalidRequest, message)
}
