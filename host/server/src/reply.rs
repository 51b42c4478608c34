//! Responses: the JSON error document around a fault, and other JSON documents.

pub(crate) mod answer;
pub(crate) mod record;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::fault::Fault;
use answer::ResponseBody;

impl Fault {
    /// The error document. `user` is the member id of the key, if it has one.
    #[must_use]
    pub(crate) fn into_response(self, user: Option<String>) -> Response<ResponseBody> {
        let (status, kind, _) = self.line();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut metadata = Map::new();
        metadata.insert("error_type".to_owned(), kind.as_str().into());
        metadata.insert("refused_by".to_owned(), "host".into());
        if let Value::Object(details) = self.details() {
            // Details of a refusal by a provider overwrite `refused_by`; all other refusals come
            // from the host.
            metadata.extend(details);
        }
        let mut envelope = Map::new();
        let error = json!({"code": status.as_u16(), "message": self.message(), "metadata": metadata});
        envelope.insert("error".to_owned(), error);
        if let Some((field, routing)) = self.routing() {
            envelope.insert(field.to_owned(), routing.clone());
        }
        envelope.insert("user_id".to_owned(), user.into());
        let mut response = json_response(status, Value::Object(envelope).to_string().into());
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(self.header());
        if let Some(seconds) = self.retry_after_s() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[must_use]
pub(crate) fn json_response(status: StatusCode, body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A 200 response with server-sent events.
pub(crate) fn event_stream(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Stops nginx-like proxies from buffering events.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// `{data}`: the envelope of a document.
#[derive(Serialize)]
pub(crate) struct DataDocument<T> {
    pub(crate) data: T,
}

/// `{data, has_more}`: one page of a list.
#[derive(Serialize)]
pub(crate) struct PageDocument<T> {
    pub(crate) data: Vec<T>,
    pub(crate) has_more: bool,
}

/// A 200 response with a JSON document and `Cache-Control: no-store`.
pub(crate) fn document<T: Serialize>(document: &T) -> Response<ResponseBody> {
    match serde_json::to_vec(document) {
        Ok(bytes) => {
            let mut response = json_response(StatusCode::OK, bytes.into());
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        // Cannot happen for the documents of this crate: they hold only texts, numbers and lists.
        Err(_) => Fault::Internal.into_response(None),
    }
}

#[cfg(test)]
mod tests;
