//! A session with a server: negotiating the protocol, listing tools, calling them.

use cofferdam_guest_kit::bindings::http::HttpError;
use cofferdam_guest_kit::server_tool::{Streaming, clip};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::rpc::{self, Answer, Envelope, Failed, Fault, Trouble, printable};
use crate::settings::Settings;
use crate::tool::Tool;

/// The protocol version that is requested, and the versions that are supported.
const VERSION: &str = "2025-06-18";
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The longest time for one step of the listing. All steps together must fit into the time that the
/// host allows for `functions`.
const LISTING_TIMEOUT_MS: u32 = 8_000;
/// The longest time for a call, in milliseconds.
const CALL_TIMEOUT_MS: u32 = 120_000;
/// The longest time for ending a session or cancelling a request, in milliseconds.
const ENDING_TIMEOUT_MS: u32 = 4_000;
/// What a model is told of a call whose answer is missing.
const MAY_BE_DONE: &str = "The call may have been carried out: check this before it is repeated.";
/// The largest number of pages in a list of tools.
const PAGES_MAX: u32 = 16;
/// The longest cursor, in bytes.
const CURSOR_BYTES_MAX: usize = 4_096;

/// The largest number of tools of one server.
const TOOLS_MAX: usize = 128;
/// The largest size of all tools of a server together, in bytes.
const ALL_BYTES_MAX: usize = 400 << 10;

/// The largest number of names in a line of the log, and the longest name in it, in characters.
const NAMES_LOGGED_MAX: usize = 8;
const NAME_CHARS_LOGGED_MAX: usize = 64;

/// A session; empty for a server without sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The session id that the server gave.
    #[serde(rename = "session")]
    pub(crate) id: Option<String>,
    /// The negotiated protocol version.
    pub(crate) version: Option<String>,
}

/// The tools of a server that the client chooses.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) tools: Vec<Tool>,
    /// The size of the tools, in bytes.
    bytes: usize,
    /// The number of tools without a valid name or schema, and the first of their names.
    left_out: usize,
    first_left_out: Vec<String>,
}

/// Starts a session and lists all tools. If the listing fails, the session is ended.
///
/// # Errors
///
/// When the server cannot be reached or does not follow the protocol.
pub(crate) fn list(settings: &Settings, network: &mut impl Streaming) -> Result<(Session, Listed), Trouble> {
    let session = Session::begin(settings, LISTING_TIMEOUT_MS, network)?;
    match session.tools(settings, network) {
        Ok(listed) => Ok((session, listed)),
        Err(trouble) => {
            session.end(settings, network);
            Err(trouble)
        }
    }
}

impl Session {
    fn begin(settings: &Settings, timeout_ms: u32, network: &mut impl Streaming) -> Result<Self, Trouble> {
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": { "name": "cofferdam", "version": env!("CARGO_PKG_VERSION") },
        });
        let envelope = Envelope { settings, session: None, version: None, timeout_ms };
        let Answer { result, session } =
            rpc::request(envelope, "initialize", params, network).map_err(trouble)?;
        let version = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        if !VERSIONS.contains(&version) {
            return Err(Trouble::invalid(
                "The MCP server speaks no version of the protocol that this host does.",
            ));
        }
        let session = Self { id: session, version: Some(version.to_owned()) };
        let envelope = session.envelope(settings, timeout_ms);
        let ready = rpc::notify(envelope, "notifications/initialized", None, network);
        if ready.is_err() {
            session.end(settings, network);
        }
        ready.map(|()| session)
    }

    /// All tools of the server that the client chooses.
    fn tools(&self, settings: &Settings, network: &mut impl Streaming) -> Result<Listed, Trouble> {
        let mut all = Listed::default();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let answer =
                self.request("tools/list", params, settings, LISTING_TIMEOUT_MS, network).map_err(trouble)?;
            let Some(Value::Array(listed)) = answer.result.get("tools") else {
                return Err(Trouble::invalid("The MCP server's list of tools is not a list."));
            };
            all.add(listed, settings)?;
            let next = answer.result.get("nextCursor").and_then(Value::as_str);
            match next.filter(|next| !next.is_empty()) {
                Some(next) if next.len() > CURSOR_BYTES_MAX => {
                    return Err(Trouble::invalid(format!(
                        "The MCP server's list of tools has a cursor of more than {CURSOR_BYTES_MAX} bytes."
                    )));
                }
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(all),
            }
        }
        Err(Trouble::invalid(format!("The MCP server's list of tools has more than {PAGES_MAX} pages.")))
    }

    /// Tells the server that the answer to a request is no longer wanted. A failure has no consequences.
    fn cancel(&self, id: u64, settings: &Settings, network: &mut impl Streaming) {
        let params = json!({ "requestId": id, "reason": "timeout" });
        let envelope = self.envelope(settings, ENDING_TIMEOUT_MS);
        rpc::notify(envelope, "notifications/cancelled", Some(params), network).ok();
    }

    /// Ends the session if the server has started one. A failure has no consequences.
    pub(crate) fn end(&self, settings: &Settings, network: &mut impl Streaming) {
        rpc::end(self.envelope(settings, ENDING_TIMEOUT_MS), network);
    }

    fn envelope<'a>(&'a self, settings: &'a Settings, timeout_ms: u32) -> Envelope<'a> {
        Envelope { settings, session: self.id.as_deref(), version: self.version.as_deref(), timeout_ms }
    }

    fn request(
        &self,
        method: &str,
        params: Value,
        settings: &Settings,
        timeout_ms: u32,
        network: &mut impl Streaming,
    ) -> Result<Answer, Failed> {
        rpc::request(self.envelope(settings, timeout_ms), method, params, network)
    }

    /// Calls a tool and returns its result. If the server has lost the session, the call is repeated
    /// once in a new session. This is safe, because such a server reports the loss before it executes
    /// anything.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or reports a protocol error.
    pub(crate) fn call(
        &mut self,
        tool: &str,
        arguments: Map<String, Value>,
        settings: &Settings,
        network: &mut impl Streaming,
    ) -> Result<Map<String, Value>, Trouble> {
        let params = json!({ "name": tool, "arguments": arguments });
        let mut answer = self.request("tools/call", params.clone(), settings, CALL_TIMEOUT_MS, network);
        if let Err(Failed::SessionGone) = answer {
            *self = Self::begin(settings, LISTING_TIMEOUT_MS, network)?;
            answer = self.request("tools/call", params, settings, CALL_TIMEOUT_MS, network);
        }
        if let Err(Failed::TimedOut { id }) = answer {
            self.cancel(id, settings, network);
        }
        // A model that takes such a call for one that was not made would repeat it.
        let may_be_done = matches!(answer, Err(Failed::TimedOut { .. } | Failed::CutOff(_)));
        let answer = answer.map_err(|failed| match trouble(failed) {
            Trouble::Server(fault) if may_be_done => {
                Trouble::Server(Fault { words: format!("{} {MAY_BE_DONE}", fault.words), ..fault })
            }
            trouble => trouble,
        })?;
        Ok(answer.result)
    }
}

fn trouble(failed: Failed) -> Trouble {
    match failed {
        Failed::Trouble(trouble) | Failed::CutOff(trouble) => trouble,
        Failed::TimedOut { .. } => rpc::unsent(HttpError::Timeout),
        Failed::SessionGone => Trouble::invalid("The MCP server ended the session."),
    }
}

impl Listed {
    /// Adds the tools that the client chooses from a server's list. A tool whose name is already present
    /// is left out.
    ///
    /// # Errors
    ///
    /// When these are more tools than a model can be offered.
    fn add(&mut self, listed: &[Value], settings: &Settings) -> Result<(), Trouble> {
        for entry in listed {
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
            if !settings.allows_name(name) {
                continue;
            }
            match Tool::read(entry) {
                Some(tool) if settings.allows(&tool) => self.add_tool(tool)?,
                Some(_) => {}
                None => self.leave_out(name),
            }
        }
        Ok(())
    }

    fn add_tool(&mut self, tool: Tool) -> Result<(), Trouble> {
        if self.tools.iter().any(|known| known.name == tool.name) {
            return Ok(());
        }
        self.bytes += json!(tool).to_string().len();
        self.tools.push(tool);
        if self.tools.len() > TOOLS_MAX || self.bytes > ALL_BYTES_MAX {
            return Err(Trouble::invalid(format!(
                "The MCP server lists more than {TOOLS_MAX} tools or {} KiB of them. Name those that are needed in \
                 allowed_tools.",
                ALL_BYTES_MAX >> 10
            )));
        }
        Ok(())
    }

    fn leave_out(&mut self, name: &str) {
        self.left_out += 1;
        if self.first_left_out.len() < NAMES_LOGGED_MAX {
            self.first_left_out.push(clip(&printable(name), NAME_CHARS_LOGGED_MAX).text.to_owned());
        }
    }

    /// The message for the operator's log about tools that are not offered, if there are any.
    pub(crate) fn left_out(&self, settings: &Settings) -> Option<String> {
        let names: Vec<String> = self.first_left_out.iter().map(|name| format!("{name:?}")).collect();
        (self.left_out > 0).then(|| {
            format!(
                "{} of the tools of the MCP server at {} cannot be offered, because their names are not valid or \
                 their schemas are absent or too long. The first: {}",
                self.left_out,
                settings.url.host_str().unwrap_or_default(),
                names.join(", ")
            )
        })
    }
}
