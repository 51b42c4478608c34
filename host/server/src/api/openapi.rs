//! `GET /openapi.json`: the description of the API for clients. The schemas of request bodies come
//! from the tables that requests are checked against, the error types from their table; paths and
//! answers are written in `openapi.json` beside this file, and tests hold real answers against them.

use std::sync::LazyLock;

use bytes::Bytes;
use cofferdam_engine::request::request_schemas;
use cofferdam_runtime::wire::ERROR_KINDS;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::reply::answer::ResponseBody;
use crate::reply::json_response;

/// The parts that are no tables.
const WRITTEN: &str = include_str!("openapi.json");

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| describe().to_string().into());

pub(crate) fn read() -> Response<ResponseBody> {
    json_response(StatusCode::OK, DOCUMENT.clone())
}

fn describe() -> Value {
    let mut document: Value = serde_json::from_str(WRITTEN).unwrap_or_default();
    if let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        let types: Vec<&str> = ERROR_KINDS.iter().map(|(kind, _)| kind.as_str()).collect();
        schemas.insert("ErrorType".to_owned(), json!({"type": "string", "enum": types}));
        schemas.extend(request_schemas());
    }
    document
}
