//! Which bodies are accepted and what guests and clients receive for them, and which are refused
//! with which messages.

mod clients;
mod embeddings;
mod guest;
mod items;
mod json;
mod linear;
mod plugin_tools;
mod properties;
mod refusals;
mod tools;
mod transcript;
mod typed;

use super::{InvalidRequest, ResponsesRequest};
use serde_json::{Value, json};

fn parse(body: &Value) -> Result<ResponsesRequest, InvalidRequest> {
    parse_text(&body.to_string())
}

fn parse_text(body: &str) -> Result<ResponsesRequest, InvalidRequest> {
    ResponsesRequest::parse(body.as_bytes(), &["alignment".to_owned()])
}

/// A minimal body with these members in addition.
fn body_with(members: &Value) -> Value {
    let mut body = json!({"model": "meta/llama", "input": "Hi"});
    merge(&mut body, members);
    body
}

fn merge(object: &mut Value, members: &Value) {
    for (key, value) in members.as_object().unwrap() {
        object[key] = value.clone();
    }
}

/// A body with one input item.
fn body_of_item(item: &Value) -> Value {
    json!({"model": "meta/llama", "input": [item]})
}

fn accepted(body: &Value) -> ResponsesRequest {
    parse(body).unwrap_or_else(|error| panic!("{error} in {body}"))
}

fn refused(body: &Value) -> String {
    match parse(body) {
        Ok(_) => panic!("accepted: {body}"),
        Err(error) => error.to_string(),
    }
}

fn guest(request: &ResponsesRequest) -> Value {
    serde_json::from_slice(&request.guest_json).unwrap()
}

fn echo(request: &ResponsesRequest) -> Value {
    serde_json::from_str(&format!("{{{}}}", request.echo)).unwrap()
}
