//! JSON-RPC over HTTP: one message per request, answered with JSON or with a stream of events.

use std::hash::{BuildHasher, Hasher, RandomState};

use cofferdam_guest_kit::bindings::http::{HttpError, Request, Response};
use cofferdam_guest_kit::server_tool::{Streaming, clip, header, sentence};
use serde_json::{Map, Value, json};

use crate::settings::Settings;
use crate::sse;

/// The longest answer, in bytes.
const BODY_BYTES_MAX: u32 = 8 * 1024 * 1024;
/// The longest error message of a server that is passed on, in characters.
const WORDS_CHARS_MAX: usize = 500;

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The request cannot be served: the field of the tool entry, and what is wrong with it.
    Request { field: &'static str, problem: &'static str },
    /// The server, or the connection to it, failed.
    Server(Fault),
}

/// A failure of a server or of the connection to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) cause: Cause,
    /// The message for the client and the model.
    pub(crate) words: String,
}

/// The layer that failed, with the code that clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// JSON-RPC: the server's own code, or the code for an invalid answer.
    Protocol(i64),
    /// HTTP: the response status, or the status that a gateway would return.
    Http(u16),
}

/// JSON-RPC's code for an invalid message.
const INVALID: i64 = -32600;
/// The status for a server that cannot be reached.
const BAD_GATEWAY: u16 = 502;

impl Trouble {
    /// An answer that does not follow the protocol.
    pub(crate) fn invalid(words: impl Into<String>) -> Self {
        Self::Server(Fault { cause: Cause::Protocol(INVALID), words: words.into() })
    }

    fn http(status: u16, words: impl Into<String>) -> Self {
        Self::Server(Fault { cause: Cause::Http(status), words: words.into() })
    }
}

impl Fault {
    /// The member `error` of an item, in one of the forms that clients support.
    pub(crate) fn json(&self) -> Value {
        match self.cause {
            Cause::Protocol(code) => {
                json!({ "type": "mcp_protocol_error", "code": code, "message": self.words })
            }
            Cause::Http(code) => json!({ "type": "http_error", "code": code, "message": self.words }),
        }
    }
}

/// What every message of a session carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope<'a> {
    pub(crate) settings: &'a Settings,
    /// The session id that the server gave.
    pub(crate) session: Option<&'a str>,
    /// The protocol version, once it is negotiated.
    pub(crate) version: Option<&'a str>,
    pub(crate) timeout_ms: u32,
}

/// An answer: the result, and the session id if the server started a session with it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Map<String, Value>,
    pub(crate) session: Option<String>,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The server has ended the session. A new one may be started.
    SessionGone,
    /// The answer to the request with this id did not come in time.
    TimedOut {
        id: u64,
    },
    Trouble(Trouble),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

/// An id that no other request of the session has. Calls of one turn run at the same time in separate
/// instances, which share no counter, so the id is random. It has 53 bits, because a server may
/// store numbers as doubles.
fn fresh_id() -> u64 {
    RandomState::new().build_hasher().finish() >> 11
}

/// Sends a request and finds its answer.
pub(crate) fn request(
    envelope: Envelope<'_>,
    method: &str,
    params: Value,
    network: &mut impl Streaming,
) -> Result<Answer, Failed> {
    let id = fresh_id();
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let mut arrived = Arrived::default();
    let request = written(envelope, "POST", message.to_string().into_bytes());
    let sent = network.send_until(&request, &mut |response| arrived.has(response, id));
    let response = sent.map_err(|error| match error {
        HttpError::Timeout => Failed::TimedOut { id },
        error => unsent(error).into(),
    })?;
    if response.status == 404 && envelope.session.is_some() {
        return Err(Failed::SessionGone);
    }
    let session = header(&response, "mcp-session-id").filter(|id| is_session(id)).map(str::to_owned);
    // A server may explain an HTTP error in JSON-RPC, so the body is read whatever the status is.
    let mut messages = messages(&response);
    match messages.iter().position(|message| answers(message, id)) {
        Some(place) => Ok(Answer { result: result(messages.swap_remove(place))?, session }),
        None => Err(no_answer(&response, &messages).into()),
    }
}

/// Sends a notification, which has no answer.
pub(crate) fn notify(
    envelope: Envelope<'_>,
    method: &str,
    params: Option<Value>,
    network: &mut impl Streaming,
) -> Result<(), Trouble> {
    let message = match params {
        Some(params) => json!({ "jsonrpc": "2.0", "method": method, "params": params }),
        None => json!({ "jsonrpc": "2.0", "method": method }),
    };
    let is_accepted = |response: &Response| (200..300).contains(&response.status);
    let request = written(envelope, "POST", message.to_string().into_bytes());
    // The body of a refusal may be its explanation.
    let response = network.send_until(&request, &mut |response| is_accepted(response)).map_err(unsent)?;
    if is_accepted(&response) { Ok(()) } else { Err(no_answer(&response, &messages(&response))) }
}

/// Ends the session. The server may refuse this; nothing depends on it.
pub(crate) fn end(envelope: Envelope<'_>, network: &mut impl Streaming) {
    if envelope.session.is_some() {
        network.send(&written(envelope, "DELETE", Vec::new())).ok();
    }
}

/// How far an event stream has been read. The server may keep the stream open after its answer.
#[derive(Default)]
struct Arrived {
    /// The offset of the first event that has not been read.
    read: usize,
    /// The offset up to which the end of an event has been searched for.
    searched: usize,
}

impl Arrived {
    /// Whether the answer, or an error without an id, is among the complete events.
    fn has(&mut self, response: &Response, id: u64) -> bool {
        if !is_stream(response) {
            return false;
        }
        let body = &response.body;
        // The end marker may have begun in the previous piece.
        let from = self.searched.saturating_sub(sse::END_BYTES_MAX).max(self.read);
        self.searched = body.len();
        let Some(end) = body.get(from..).and_then(sse::last_end) else { return false };
        let events = body.get(self.read..from + end).unwrap_or_default();
        self.read = from + end;
        let mut messages = parsed(sse::data(&String::from_utf8_lossy(events)));
        messages.any(|message| answers(&message, id) || error_without_id(&message).is_some())
    }
}

fn written(envelope: Envelope<'_>, method: &str, body: Vec<u8>) -> Request {
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut headers =
        vec![own("content-type", "application/json"), own("accept", "application/json, text/event-stream")];
    headers.extend(envelope.session.map(|session| own("mcp-session-id", session)));
    headers.extend(envelope.version.map(|version| own("mcp-protocol-version", version)));
    headers.extend(envelope.settings.headers.iter().cloned());
    Request::new(method, envelope.settings.url.as_str(), headers, body, BODY_BYTES_MAX, envelope.timeout_ms)
}

/// The trouble with a request that has no response.
pub(crate) fn unsent(error: HttpError) -> Trouble {
    match error {
        HttpError::Denied => Trouble::Request {
            field: "server_url",
            problem: "is at a host, port or scheme that MCP servers are not allowed at on this host, or a \
                header or secret may not go there; only the operator can change that",
        },
        HttpError::Invalid => {
            Trouble::Request { field: "headers", problem: "or server_url cannot be sent like this" }
        }
        HttpError::SecretUnavailable => Trouble::Request {
            field: "headers",
            problem: "or authorization name a secret that is not available for this server",
        },
        other => Trouble::http(BAD_GATEWAY, format!("The MCP server was not reached. {}", sentence(other))),
    }
}

/// Whether a session id is visible ASCII, as the protocol requires, and not too long.
fn is_session(id: &str) -> bool {
    (1..=1_024).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_stream(response: &Response) -> bool {
    let content_type = header(response, "content-type").unwrap_or_default().to_ascii_lowercase();
    content_type.starts_with("text/event-stream")
}

/// The messages of a body: a single message, a list, or a stream.
fn messages(response: &Response) -> Vec<Value> {
    let body = String::from_utf8_lossy(&response.body);
    if is_stream(response) {
        parsed(sse::data(&body)).collect()
    } else {
        parsed(vec![body.into_owned()]).collect()
    }
}

/// The messages in `texts`. Each text is a message or a list of messages.
fn parsed(texts: Vec<String>) -> impl Iterator<Item = Value> {
    texts.into_iter().filter_map(|text| serde_json::from_str(&text).ok()).flat_map(|message| match message {
        Value::Array(batch) => batch,
        message => vec![message],
    })
}

fn answers(message: &Value, id: u64) -> bool {
    let has_outcome = message.get("result").is_some() || message.get("error").is_some();
    message.get("id").and_then(Value::as_u64) == Some(id) && has_outcome
}

fn result(mut message: Value) -> Result<Map<String, Value>, Trouble> {
    if let Some(error) = message.get("error") {
        let words = error.get("message").and_then(Value::as_str).unwrap_or_default();
        let code = error.get("code").and_then(Value::as_i64).unwrap_or(INVALID);
        return Err(reported(code, words));
    }
    match message.get_mut("result").map(Value::take) {
        Some(Value::Object(result)) => Ok(result),
        _ => Err(Trouble::invalid("The MCP server's result is not an object.")),
    }
}

/// The error of a message without an id: a server that cannot read the id of a request answers like this.
/// Other protocols have errors without a code.
fn error_without_id(message: &Value) -> Option<Trouble> {
    if message.get("id").is_some_and(|id| !id.is_null()) {
        return None;
    }
    let error = message.get("error")?;
    Some(reported(error.get("code")?.as_i64()?, error.get("message")?.as_str()?))
}

fn reported(code: i64, words: &str) -> Trouble {
    let words = format!("The MCP server reports an error: {}", printable(words));
    Trouble::Server(Fault { cause: Cause::Protocol(code), words })
}

/// A server's text on one line and of limited length.
pub(crate) fn printable(words: &str) -> String {
    let line: String = words.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    clip(line.trim(), WORDS_CHARS_MAX).text.to_owned()
}

/// The trouble with a response none of whose messages is the answer.
fn no_answer(response: &Response, messages: &[Value]) -> Trouble {
    if let Some(trouble) = messages.iter().find_map(error_without_id) {
        return trouble;
    }
    let status = response.status;
    let words = match status {
        200..=299 => return Trouble::invalid("The MCP server's answer is not one of the protocol."),
        401 | 403 => format!(
            "The MCP server refuses access (HTTP {status}). Check authorization and headers of the tool."
        ),
        300..=399 => format!("The MCP server redirects (HTTP {status}), which is not followed."),
        _ => format!("The MCP server answers with HTTP {status}."),
    };
    Trouble::http(status, words)
}
