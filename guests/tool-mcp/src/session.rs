//! A session with a server: negotiating the protocol, listing tools, calling them.

use cofferdam_guest_kit::server_tool::Streaming;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::rpc::{self, Answer, Envelope, Failed, Trouble};
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
/// The longest time for ending a session, in milliseconds.
const ENDING_TIMEOUT_MS: u32 = 4_000;
/// The largest number of pages in a list of tools.
const PAGES_MAX: u32 = 16;
/// The longest cursor, in bytes.
const CURSOR_BYTES_MAX: usize = 4_096;

/// The largest number of tools of one server.
const TOOLS_MAX: usize = 128;
/// The largest size of all tools of a server together, in bytes.
const ALL_BYTES_MAX: usize = 400 << 10;

/// A session; empty for a server without sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The session id that the server gave.
    #[serde(rename = "session")]
    pub(crate) id: Option<String>,
    /// The negotiated protocol version.
    pub(crate) version: Option<String>,
}

/// Starts a session and lists all tools. If the listing fails, the session is ended.
///
/// # Errors
///
/// When the server cannot be reached or does not follow the protocol.
pub(crate) fn list(
    settings: &Settings,
    network: &mut impl Streaming,
) -> Result<(Session, Vec<Tool>), Trouble> {
    let session = Session::begin(settings, LISTING_TIMEOUT_MS, network)?;
    match session.tools(settings, network) {
        Ok(tools) => Ok((session, tools)),
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
        let ready = rpc::notify(session.envelope(settings, timeout_ms), "notifications/initialized", network);
        if ready.is_err() {
            session.end(settings, network);
        }
        ready.map(|()| session)
    }

    /// All tools of the server.
    fn tools(&self, settings: &Settings, network: &mut impl Streaming) -> Result<Vec<Tool>, Trouble> {
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let answer =
                self.request("tools/list", params, settings, LISTING_TIMEOUT_MS, network).map_err(trouble)?;
            let Some(Value::Array(listed)) = answer.result.get("tools") else {
                return Err(Trouble::invalid("The MCP server's list of tools is not a list."));
            };
            add(&mut tools, listed)?;
            let next = answer.result.get("nextCursor").and_then(Value::as_str);
            match next.filter(|next| !next.is_empty() && next.len() <= CURSOR_BYTES_MAX) {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(tools),
            }
        }
        Err(Trouble::invalid(format!("The MCP server's list of tools has more than {PAGES_MAX} pages.")))
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
        let first = self.request("tools/call", params.clone(), settings, CALL_TIMEOUT_MS, network);
        let answer = match first {
            Err(Failed::SessionGone) => {
                *self = Self::begin(settings, LISTING_TIMEOUT_MS, network)?;
                self.request("tools/call", params, settings, CALL_TIMEOUT_MS, network)
            }
            other => other,
        };
        Ok(answer.map_err(trouble)?.result)
    }
}

fn trouble(failed: Failed) -> Trouble {
    match failed {
        Failed::Trouble(trouble) => trouble,
        Failed::SessionGone => Trouble::invalid("The MCP server ended the session."),
    }
}

/// Adds tools from a server's list. Tools without a valid name or schema are left out, and so are
/// tools whose name is already present.
/// More tools than a model can be offered are an error.
fn add(tools: &mut Vec<Tool>, listed: &[Value]) -> Result<(), Trouble> {
    let fresh: Vec<Tool> = listed.iter().take(TOOLS_MAX + 1).filter_map(Tool::read).collect();
    for tool in fresh {
        if !tools.iter().any(|known| known.name == tool.name) {
            tools.push(tool);
        }
    }
    let bytes: usize = tools.iter().map(|tool| json!(tool).to_string().len()).sum();
    if listed.len() > TOOLS_MAX || tools.len() > TOOLS_MAX || bytes > ALL_BYTES_MAX {
        return Err(Trouble::invalid(format!(
            "The MCP server lists more than {TOOLS_MAX} tools or {} KiB of them.",
            ALL_BYTES_MAX >> 10
        )));
    }
    Ok(())
}
