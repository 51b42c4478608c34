//! JSON-RPC over HTTP: one message a request, its answer as JSON or as a stream of events.

use std::hash::{BuildHasher, Hasher, RandomState};

use cofferdam_toolbox::bindings::cofferdam::plugin::http::{HttpError, Request, Response};
use cofferdam_toolbox::{Streaming, clip, header, sentence};
use serde_json::{Map, Value, json};

use crate::settings::Settings;
use crate::sse;

/// The longest answer, in bytes.
const BODY_BYTES_MAX: u32 = 8 * 1024 * 1024;
/// The longest words of a server about an error that are passed on, in characters.
const WORDS_CHARS_MAX: usize = 500;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The request cannot be served here: the field of its entry, and what is wrong with it.
    Request { field: &'static str, problem: &'static str },
    /// The server's.
    Server(Fault),
}

/// What a server, or the way to it, did wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) cause: Cause,
    /// For client and model.
    pub(crate) words: String,
}

/// Where it went wrong, with a code as clients are told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// In the protocol: the server's own code, or that of an invalid answer.
    Protocol(i64),
    /// In HTTP: the status, or the one a gateway would have.
    Http(u16),
}

/// JSON-RPC's code for what is not of the protocol.
const INVALID: i64 = -32600;
/// What a gateway says of a server that it cannot reach.
const BAD_GATEWAY: u16 = 502;

impl Trouble {
    /// An answer that is not one of the protocol.
    pub(crate) fn invalid(words: impl Into<String>) -> Self {
        Self::Server(Fault { cause: Cause::Protocol(INVALID), words: words.into() })
    }

    fn http(status: u16, words: impl Into<String>) -> Self {
        Self::Server(Fault { cause: Cause::Http(status), words: words.into() })
    }
}

impl Fault {
    /// The member `error` of an item, one of the forms that clients know.
    pub(crate) fn json(&self) -> Value {
        match self.cause {
            Cause::Protocol(code) => {
                json!({ "type": "mcp_protocol_error", "code": code, "message": self.words })
            }
            Cause::Http(code) => json!({ "type": "http_error", "code": code, "message": self.words }),
        }
    }
}

/// What goes with every message of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope<'a> {
    pub(crate) settings: &'a Settings,
    /// What the server has named the session.
    pub(crate) session: Option<&'a str>,
    /// The protocol's version, once it is agreed on.
    pub(crate) version: Option<&'a str>,
    pub(crate) timeout_ms: u32,
}

/// An answer: the result, and the session that the server begins with it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Map<String, Value>,
    pub(crate) session: Option<String>,
}

/// The session that a request was about is gone.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It may be begun anew.
    SessionGone,
    Trouble(Trouble),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

/// An id that no other request of the session has. Calls of one turn run side by side, each in an instance of
/// its own with no count in common, so the id is drawn: 53 bits, which every server's numbers hold.
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
    let response = network.send_until(&request, &mut |response| arrived.has(response, id)).map_err(unsent)?;
    if response.status == 404 && envelope.session.is_some() {
        return Err(Failed::SessionGone);
    }
    let session = header(&response, "mcp-session-id").filter(|id| is_session(id)).map(str::to_owned);
    // A server may explain a refusal in JSON-RPC.
    let found = messages(&response).into_iter().find(|message| answers(message, id));
    match found {
        Some(message) => Ok(Answer { result: result(message)?, session }),
        None => Err(no_answer(&response).into()),
    }
}

/// Sends a message that has no answer.
pub(crate) fn notify(
    envelope: Envelope<'_>,
    method: &str,
    network: &mut impl Streaming,
) -> Result<(), Trouble> {
    let message = json!({ "jsonrpc": "2.0", "method": method }).to_string().into_bytes();
    let response = network.send_until(&written(envelope, "POST", message), &mut |_| true).map_err(unsent)?;
    if (200..300).contains(&response.status) { Ok(()) } else { Err(no_answer(&response)) }
}

/// Ends the session. A server need not allow that, and nothing depends on it.
pub(crate) fn end(envelope: Envelope<'_>, network: &mut impl Streaming) {
    if envelope.session.is_some() {
        network.send(&written(envelope, "DELETE", Vec::new())).ok();
    }
}

/// How far a stream was looked at, whose server need not end it once it has answered.
#[derive(Default)]
struct Arrived {
    /// Where the first event begins that has not been looked at.
    read: usize,
    /// How much has been searched for the end of an event.
    searched: usize,
}

impl Arrived {
    /// Whether the answer is among the events that have come whole.
    fn has(&mut self, response: &Response, id: u64) -> bool {
        if !is_stream(response) {
            return false;
        }
        let body = &response.body;
        // The end may have begun in the piece before.
        let from = self.searched.saturating_sub(sse::END_BYTES_MAX).max(self.read);
        self.searched = body.len();
        let Some(end) = body.get(from..).and_then(sse::last_end) else { return false };
        let events = body.get(self.read..from + end).unwrap_or_default();
        self.read = from + end;
        let mut messages = parsed(sse::data(&String::from_utf8_lossy(events)));
        messages.any(|message| answers(&message, id))
    }
}

fn written(envelope: Envelope<'_>, method: &str, body: Vec<u8>) -> Request {
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut headers =
        vec![own("content-type", "application/json"), own("accept", "application/json, text/event-stream")];
    headers.extend(envelope.session.map(|session| own("mcp-session-id", session)));
    headers.extend(envelope.version.map(|version| own("mcp-protocol-version", version)));
    headers.extend(envelope.settings.headers.iter().cloned());
    Request {
        method: method.to_owned(),
        url: envelope.settings.url.as_str().to_owned(),
        headers,
        body,
        injections: Vec::new(),
        // A body and a credential are for the server that the client named.
        redirects: 0,
        body_bytes_max: BODY_BYTES_MAX,
        timeout_ms: envelope.timeout_ms,
    }
}

fn unsent(error: HttpError) -> Trouble {
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

/// Visible ASCII, as the protocol wants it.
fn is_session(id: &str) -> bool {
    (1..=1_024).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_stream(response: &Response) -> bool {
    let content_type = header(response, "content-type").unwrap_or_default().to_ascii_lowercase();
    content_type.starts_with("text/event-stream")
}

/// The messages of a body: one, a list of them, or a stream.
fn messages(response: &Response) -> Vec<Value> {
    let body = String::from_utf8_lossy(&response.body);
    if is_stream(response) {
        parsed(sse::data(&body)).collect()
    } else {
        parsed(vec![body.into_owned()]).collect()
    }
}

/// The messages in texts, each of which is one or a list of them.
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
        let words = format!("The MCP server reports an error: {}", printable(words));
        return Err(Trouble::Server(Fault { cause: Cause::Protocol(code), words }));
    }
    match message.get_mut("result").map(Value::take) {
        Some(Value::Object(result)) => Ok(result),
        _ => Err(Trouble::invalid("The MCP server's result is not an object.")),
    }
}

/// Foreign words on one line and not endless.
pub(crate) fn printable(words: &str) -> String {
    let line: String = words.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    clip(line.trim(), WORDS_CHARS_MAX).text.to_owned()
}

fn no_answer(response: &Response) -> Trouble {
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
