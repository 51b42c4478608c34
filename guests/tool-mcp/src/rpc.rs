//! JSON-RPC over HTTP: one message per request, answered with JSON or with a stream of events.

use std::hash::{BuildHasher, Hasher, RandomState};

use cofferdam_guest_kit::bindings::http::{HttpError, Request, Response};
use cofferdam_guest_kit::server_tool::{Reading, Streaming, clip, header, sentence};
use serde_json::{Map, Value, json};

use crate::settings::Settings;
use crate::sse;

/// The longest answer, in bytes.
const BODY_BYTES_MAX: u32 = 8 * 1024 * 1024;
/// The longest error message of a server that is passed on, in characters.
const WORDS_CHARS_MAX: usize = 500;
/// The largest number of a server's own requests that are answered while one answer is read.
const REPLIES_MAX: usize = 8;
/// The longest time for such a reply, in milliseconds.
const REPLY_TIMEOUT_MS: u32 = 4_000;

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
/// JSON-RPC's code for a method that does not exist.
const NO_METHOD: i64 = -32601;
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
    /// The answer, or a part of it, was lost on its way.
    CutOff(Trouble),
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
    let sent = network.send_until(&request, &mut |response| arrived.next(response, id, envelope));
    let response = sent.map_err(|error| match error {
        HttpError::Timeout => Failed::TimedOut { id },
        HttpError::Broken | HttpError::TooLarge => Failed::CutOff(unsent(error)),
        error => unsent(error).into(),
    })?;
    if response.status == 404 && envelope.session.is_some() {
        return Err(Failed::SessionGone);
    }
    let session = header(&response, "mcp-session-id").filter(|id| is_session(id)).map(str::to_owned);
    // A server may explain an HTTP error in JSON-RPC, so the body is read whatever the status is.
    match first(&response, |message| answers(&message, id).then_some(message)) {
        Some(message) => Ok(Answer { result: result(message)?, session }),
        None => Err(no_answer(&response)),
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
    let next = &mut |response: &Response| if is_accepted(response) { Reading::Enough } else { Reading::More };
    let response = network.send_until(&request, next).map_err(unsent)?;
    if is_accepted(&response) { Ok(()) } else { Err(unaccepted(&response)) }
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
    /// The number of the server's own requests that were answered.
    replies: usize,
}

impl Arrived {
    /// Reads the complete events. Tells whether the answer, or an error without an id, is among them, and makes
    /// the answers to the server's own requests, which a server may wait for.
    fn next(&mut self, response: &Response, id: u64, envelope: Envelope<'_>) -> Reading {
        if !is_stream(response) {
            return Reading::More;
        }
        let body = &response.body;
        // The end marker may have begun in the previous piece.
        let from = self.searched.saturating_sub(sse::END_BYTES_MAX).max(self.read);
        self.searched = body.len();
        let Some(end) = body.get(from..).and_then(sse::last_end) else { return Reading::More };
        let events = body.get(self.read..from + end).unwrap_or_default();
        self.read = from + end;
        let mut replies = Vec::new();
        for message in parsed(sse::data(&String::from_utf8_lossy(events))) {
            if answers(&message, id) || error_without_id(&message).is_some() {
                return Reading::Enough;
            }
            if let Some(reply) = reply(&message).filter(|_| self.replies < REPLIES_MAX) {
                self.replies += 1;
                let envelope = Envelope { timeout_ms: REPLY_TIMEOUT_MS, ..envelope };
                replies.push(written(envelope, "POST", reply.to_string().into_bytes()));
            }
        }
        if replies.is_empty() { Reading::More } else { Reading::Replies(replies) }
    }
}

/// The answer to a request of the server: this client has no methods but `ping`. `None` for another message.
fn reply(message: &Value) -> Option<Value> {
    let id = message.get("id").filter(|id| id.is_string() || id.is_number())?;
    Some(match message.get("method")?.as_str()? {
        "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
        method => {
            let words = format!("{} is not offered by this client", printable(method));
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": NO_METHOD, "message": words } })
        }
    })
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
        HttpError::Timeout | HttpError::Broken | HttpError::TooLarge => {
            Trouble::http(BAD_GATEWAY, format!("The MCP server did not answer in full. {}", sentence(error)))
        }
        HttpError::Unreachable | HttpError::Untrusted | HttpError::Exhausted => {
            Trouble::http(BAD_GATEWAY, format!("The MCP server was not reached. {}", sentence(error)))
        }
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

/// The first message of a body that `wanted` takes. A body is a single message, a list, or a stream.
fn first<T>(response: &Response, wanted: impl FnMut(Value) -> Option<T>) -> Option<T> {
    let body = String::from_utf8_lossy(&response.body);
    if is_stream(response) {
        parsed(sse::data(&body)).find_map(wanted)
    } else {
        parsed([body.into_owned()]).find_map(wanted)
    }
}

/// The messages in `texts`. Each text is a message or a list of messages.
fn parsed(texts: impl IntoIterator<Item = String>) -> impl Iterator<Item = Value> {
    let values = texts.into_iter().filter_map(|text| serde_json::from_str(&text).ok());
    values.flat_map(|message| match message {
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

/// How a request failed whose response has no answer among its messages.
fn no_answer(response: &Response) -> Failed {
    if let Some(trouble) = first(response, |message| error_without_id(&message)) {
        return trouble.into();
    }
    match response.status {
        200..=299 if is_stream(response) => {
            let words = "The MCP server did not answer in full. Its stream ended before the answer.";
            Failed::CutOff(Trouble::http(BAD_GATEWAY, words))
        }
        // A gateway has waited in vain for the answer of the server, or has lost it.
        502 | 504 | 524 => Failed::CutOff(refusal(response)),
        _ => refusal(response).into(),
    }
}

/// The trouble with a notification that was not accepted.
fn unaccepted(response: &Response) -> Trouble {
    first(response, |message| error_without_id(&message)).unwrap_or_else(|| refusal(response))
}

/// The trouble with a response that has no message for the request, by its status.
fn refusal(response: &Response) -> Trouble {
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
