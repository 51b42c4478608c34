//! A tool guest that sends whatever requests it is told to and shows everything
//! it got to see: the answers, and its own memory after them.
//!
//! One function, `probe`, with `{"requests": [...], "memory": true}`. A request is
//! `{method, url, headers, body, injections, redirects, body_bytes_max, timeout_ms}`,
//! all but `url` optional; an injection is `{secret, header: [name, before, after]}`,
//! `{secret, query}` or `{secret, placeholder: [header, text]}`. It answers with
//! `{"answers": [...], "memory": BASE64}`, each answer the response or its error. With `broken` its item
//! is not an object, which breaks a rule of the contract. With `log` it writes the answers to the log.

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "tool" });
    use super::Probe;
    export!(Probe);
}
mod memory;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bindings::cofferdam::plugin::http::{self, HttpError, Injection, Placement, Request, Response};
use bindings::cofferdam::plugin::log;
use bindings::cofferdam::plugin::types::{CallContext, Json};
use bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use serde_json::{Value, json};

struct Probe;

impl Guest for Probe {
    fn functions(_: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        Ok(vec![Function {
            name: "probe".to_owned(),
            description: "Sends requests and shows what came back.".to_owned(),
            parameters: json!({"type": "object"}).to_string().into_bytes(),
        }])
    }

    fn invoke(_: String, arguments: Json, _: Json, _: CallContext) -> Result<Output, ToolError> {
        let told: Value = serde_json::from_slice(&arguments)
            .map_err(|_| ToolError::InvalidArguments("no JSON".to_owned()))?;
        let requests = told.get("requests").and_then(Value::as_array).into_iter().flatten();
        let answers: Vec<Value> = requests.map(|told| answer(http::send(&request(told)))).collect();
        if told.get("log").is_some() {
            log::write(log::Level::Debug, &format!("{} answers", answers.len()));
            answers.iter().for_each(|answer| log::write(log::Level::Info, &answer.to_string()));
        }
        let mut shown = json!({ "answers": answers });
        if let (Some(Value::Bool(true)), Some(shown)) = (told.get("memory"), shown.as_object_mut()) {
            shown.insert("memory".to_owned(), STANDARD.encode(memory::all()).into());
        }
        Ok(Output {
            for_model: shown.to_string(),
            item: if told.get("broken").is_some() { b"[]".to_vec() } else { b"{}".to_vec() },
            annotations: Vec::new(),
            cost_pico: 0,
        })
    }
}

fn request(told: &Value) -> Request {
    let number = |key: &str, default: u32| {
        told.get(key).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    };
    let list = |key: &str| told.get(key).and_then(Value::as_array).into_iter().flatten();
    Request {
        method: text(told, "method").unwrap_or_else(|| "GET".to_owned()),
        url: text(told, "url").unwrap_or_default(),
        headers: list("headers").map(|header| (part(header, 0), part(header, 1))).collect(),
        body: text(told, "body").unwrap_or_default().into_bytes(),
        injections: list("injections").map(injection).collect(),
        redirects: u8::try_from(number("redirects", 0)).unwrap_or(u8::MAX),
        body_bytes_max: number("body_bytes_max", 1 << 20),
        timeout_ms: number("timeout_ms", 20_000),
    }
}

fn injection(told: &Value) -> Injection {
    let placement = match (told.get("header"), told.get("placeholder")) {
        (Some(header), _) => Placement::Header((part(header, 0), part(header, 1), part(header, 2))),
        (_, Some(header)) => Placement::HeaderPlaceholder((part(header, 0), part(header, 1))),
        _ => Placement::Query(text(told, "query").unwrap_or_default()),
    };
    Injection { secret: text(told, "secret").unwrap_or_default(), placement }
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn part(list: &Value, index: usize) -> String {
    list.get(index).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn answer(answer: Result<Response, HttpError>) -> Value {
    match answer {
        Ok(Response { status, url, headers, body }) => json!({
            "status": status,
            "url": url,
            "headers": headers,
            "body": String::from_utf8_lossy(&body),
        }),
        Err(error) => json!({ "error": name(error) }),
    }
}

fn name(error: HttpError) -> &'static str {
    match error {
        HttpError::Denied => "denied",
        HttpError::Invalid => "invalid",
        HttpError::SecretUnavailable => "secret-unavailable",
        HttpError::Unreachable => "unreachable",
        HttpError::Untrusted => "untrusted",
        HttpError::Timeout => "timeout",
        HttpError::TooLarge => "too-large",
        HttpError::Broken => "broken",
        HttpError::Exhausted => "exhausted",
    }
}
