//! Constructors for records of the contract.

use serde_json::Value;

use crate::bindings::dialect::UpstreamRequest;
use crate::bindings::http::Request;
use crate::bindings::tools::{Function, Output};
use crate::bindings::types::{ErrorKind, Failure};

impl Failure {
    /// A failure with a message and nothing else.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, retry_after_ms: None }
    }
}

impl UpstreamRequest {
    /// A request without additional headers.
    #[must_use]
    pub fn new(path: &str, body: Vec<u8>, streamed: bool) -> Self {
        Self { path: path.to_owned(), headers: Vec::new(), body, streamed }
    }
}

impl Request {
    /// A request without secrets and redirects.
    #[must_use]
    pub fn new(
        method: &str,
        url: impl Into<String>,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
        body_bytes_max: u32,
        timeout_ms: u32,
    ) -> Self {
        let (method, url) = (method.to_owned(), url.into());
        let (injections, redirects) = (Vec::new(), 0);
        Self { method, url, headers, body, injections, redirects, body_bytes_max, timeout_ms }
    }
}

impl Function {
    /// A function with a JSON Schema for its arguments.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: impl Into<Value>,
    ) -> Self {
        let parameters = parameters.into().to_string().into_bytes();
        Self { name: name.into(), description: description.into(), parameters }
    }
}

impl Output {
    /// The output of a call that costs nothing itself and cites nothing.
    #[must_use]
    pub fn new(for_model: impl Into<String>, item: impl Into<Value>) -> Self {
        let item = item.into().to_string().into_bytes();
        Self { for_model: for_model.into(), item, annotations: Vec::new(), cost_pico: 0 }
    }
}
