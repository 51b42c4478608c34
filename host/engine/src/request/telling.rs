//! The request as it is told to an endpoint whose dialect lacks kinds of tools or items that the client uses.
//!
//! Kinds that the client runs itself are told as functions, and what their calls were as calls of these; what
//! comes back is put into the client's own kind again by [`ToldTools`]. Results of tools that the endpoint does
//! not have become text. A dialect that has a kind gets it as the client sent it.

mod choice;
mod definitions;
mod items;
mod names;

use super::json::{Document, Value, separate, write_name};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use names::{ClientKind, ClientTool, ToldTools};

use names::Names;

/// Kinds of tools and items of a request that not every dialect has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    /// Types of tools, offered or called.
    pub(crate) tools: BTreeSet<String>,
    /// There are items that belong to no tool.
    pub(crate) has_items: bool,
    /// The client asks for the conversation to be compacted.
    pub(crate) compacts: bool,
    /// There are compacted conversations.
    pub(crate) has_compacted: bool,
}

impl Kinds {
    /// Whether every dialect has all there is.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty() && !self.has_items && !self.compacts && !self.has_compacted
    }
}

/// What the dialect of an endpoint has.
pub(crate) struct Dialect<'a> {
    /// Whether it has tools of a type.
    pub(crate) has_tool: &'a dyn Fn(&str) -> bool,
    /// Whether it takes every item of the interface.
    pub(crate) takes_items: bool,
    /// Opens a compacted conversation that this host sealed for the caller.
    pub(crate) open: &'a dyn Fn(&str) -> Option<String>,
}

impl Dialect<'_> {
    /// Whether a request with these kinds has to be told otherwise than the client sent it.
    pub(crate) fn lacks(&self, kinds: &Kinds) -> bool {
        kinds.has_compacted
            || (!self.takes_items && (kinds.has_items || kinds.compacts))
            || kinds.tools.iter().any(|kind| !(self.has_tool)(kind))
    }
}

/// A request told for one dialect.
pub(crate) struct Told {
    /// For the guest.
    pub(crate) json: Vec<u8>,
    /// What the functions in it are to the client.
    pub(crate) tools: Arc<ToldTools>,
}

/// What is asked of the model when a conversation is to be compacted.
const COMPACT: &str = "The conversation is about to be replaced by a summary of it. Write that summary now, for \
the model that will continue the work and will see nothing else of the conversation. State: what the user wants, \
in the user's own words where they matter; what was decided, and why; what was done, with the names of files, \
commands and identifiers; results that later steps need; what is left to do, and in which order; rules and \
preferences that hold. Write only the summary. Do not answer the conversation, and do not call tools.";

/// Members that a request for a summary leaves out: tools, and the form of another answer.
const NOT_COMPACTED: [&str; 5] = ["tools", "tool_choice", "parallel_tool_calls", "text", "modalities"];

/// Writes a request for a dialect. `json` is what this host wrote for guests; none if it did not.
pub(crate) fn tell(json: &[u8], dialect: &Dialect<'_>, kinds: &Kinds) -> Option<Told> {
    let document = Document::parse(json).ok()?;
    let root = document.root();
    let compacts = kinds.compacts && !dialect.takes_items;
    let mut names = Names::default();
    let definitions = definitions::write(root, dialect, &mut names);
    let mut out = Vec::with_capacity(json.len() + definitions.len() + 256);
    out.push(b'{');
    for (key, value) in root.members() {
        let name = key.text();
        if compacts && NOT_COMPACTED.contains(&&*name) {
            continue;
        }
        match &*name {
            "input" => {
                write_name("input", &mut out);
                items::write(value, dialect, &names, compacts, &mut out);
            }
            "tools" | "tool_choice" => {}
            _ => super::json::write_member(key, value, &mut out),
        }
    }
    if !compacts && definitions.len() > EMPTY_LIST.len() {
        write_name("tools", &mut out);
        out.extend_from_slice(&definitions);
        if let Some(choice) = root.get("tool_choice") {
            write_name("tool_choice", &mut out);
            choice::write(choice, dialect, &names, &mut out);
        }
    }
    out.push(b'}');
    Some(Told { json: out, tools: Arc::new(names.into_told(compacts)) })
}

const EMPTY_LIST: &str = "[]";

/// Appends a string as JSON.
fn write_text(text: &str, out: &mut Vec<u8>) {
    // A string always serializes.
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

/// Appends a member that is a string.
fn write_text_member(name: &str, text: &str, out: &mut Vec<u8>) {
    write_name(name, out);
    write_text(text, out);
}

/// Appends an element that is made of text.
fn write_message(role: &str, text: &str, out: &mut Vec<u8>) {
    separate(out);
    out.extend_from_slice(br#"{"type":"message""#);
    write_text_member("role", role, out);
    let part = if role == "assistant" { "output_text" } else { "input_text" };
    out.extend_from_slice(br#","content":[{"type":""#);
    out.extend_from_slice(part.as_bytes());
    out.push(b'"');
    write_text_member("text", text, out);
    out.extend_from_slice(b"}]}");
}

/// Whether a value is this kind of item or tool.
fn is_type(value: Value<'_>, name: &str) -> bool {
    value.get("type").is_some_and(|tag| tag.is(name))
}
