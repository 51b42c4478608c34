//! Renders a request for an endpoint whose dialect lacks kinds of tools or items that the client
//! uses.
//!
//! Tools that the client runs itself are rendered as functions, and their calls in the history as
//! function calls; [`RenderedTools`] converts the model's calls back into the client's own kind.
//! Results of tools that the endpoint does not have become text. Kinds that the dialect has are
//! passed on unchanged.

mod choice;
mod client_function;
mod definitions;
mod items;
mod names;

use super::json::{JsonDocument, JsonValue, write_name};
use cofferdam_protocol::write_value;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use client_function::{no_arguments, read_arguments};
pub(crate) use names::{ClientTool, RenderedTools};

use names::FunctionNames;

/// Kinds of tools and items in a request that not every dialect supports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    /// Types of tools that are offered or called.
    pub(crate) tools: BTreeSet<String>,
    /// There are items that do not belong to a tool, such as `agent_message`.
    pub(crate) has_items: bool,
    /// The client asks for a compaction of the conversation (`compaction_trigger`).
    pub(crate) compacts: bool,
    /// The input has compacted conversations (`compaction`).
    pub(crate) has_compacted: bool,
}

impl Kinds {
    /// Whether the request has nothing that a dialect might lack.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty() && !self.has_items && !self.compacts && !self.has_compacted
    }
}

/// The abilities of an endpoint's dialect.
pub(crate) struct Dialect<'a> {
    /// Whether the dialect has tools of this type.
    pub(crate) has_tool: &'a dyn Fn(&str) -> bool,
    /// Whether the dialect accepts every item of the API.
    pub(crate) takes_items: bool,
    /// Decrypts a compacted conversation that this host sealed for the caller.
    pub(crate) open: &'a dyn Fn(&str) -> Option<String>,
}

impl Dialect<'_> {
    /// Whether a request with these kinds must be rendered for this dialect.
    pub(crate) fn lacks(&self, kinds: &Kinds) -> bool {
        kinds.has_compacted
            || (!self.takes_items && (kinds.has_items || kinds.compacts))
            || kinds.tools.iter().any(|kind| !(self.has_tool)(kind))
    }
}

/// A request rendered for one dialect.
pub(crate) struct RenderedRequest {
    /// The document for the guest.
    pub(crate) json: Vec<u8>,
    /// The client's tools behind the functions in the document.
    pub(crate) tools: Arc<RenderedTools>,
}

/// The instruction to the model when a conversation is to be compacted.
const COMPACT: &str = "The conversation is about to be replaced by a summary of it. Write that summary now, for \
the model that will continue the work and will see nothing else of the conversation. State: what the user wants, \
in the user's own words where they matter; what was decided, and why; what was done, with the names of files, \
commands and identifiers; results that later steps need; what is left to do, and in which order; rules and \
preferences that hold. Write only the summary. Do not answer the conversation, and do not call tools.";

/// Members that a request for a summary omits: tools, and settings for another form of answer.
const NOT_COMPACTED: [&str; 5] = ["tools", "tool_choice", "parallel_tool_calls", "text", "modalities"];

/// Renders a request for a dialect. `json` is the document that this host wrote for guests; none if
/// it is not JSON, which cannot happen for such a document. `compacts`: the request asks for a
/// compaction.
pub(crate) fn render(json: &[u8], dialect: &Dialect<'_>, compacts: bool) -> Option<RenderedRequest> {
    let document = JsonDocument::parse(json).ok()?;
    let root = document.root();
    let compacts = compacts && !dialect.takes_items;
    let mut names = FunctionNames::default();
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
            // Both are written after the loop, in terms of the rendered functions.
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
    Some(RenderedRequest { json: out, tools: Arc::new(names.into_told(compacts)) })
}

/// At most how many bytes rendering adds to a request: the instruction for a compaction, and the
/// fixed parts of the functions that represent other kinds of tools.
pub(crate) fn added_bytes(
    tools: Option<JsonValue<'_>>,
    input: Option<JsonValue<'_>>,
    kinds: &Kinds,
) -> usize {
    if kinds.is_empty() {
        return 0;
    }
    let brought = input.into_iter().flat_map(JsonValue::items).filter_map(|item| item.get("tools"));
    let tools = tools.into_iter().chain(brought).flat_map(JsonValue::items);
    let instruction = if kinds.compacts { COMPACT.len() } else { 0 };
    tools.map(definitions::added_bytes).fold(instruction, usize::saturating_add)
}

const EMPTY_LIST: &str = "[]";

/// Appends a member that is a string.
fn write_text_member(name: &str, text: &str, out: &mut Vec<u8>) {
    write_name(name, out);
    write_value(text, out);
}

/// Whether an item or tool has this type.
fn is_type(value: JsonValue<'_>, name: &str) -> bool {
    value.get("type").is_some_and(|tag| tag.is(name))
}

#[cfg(test)]
mod tests {
    use super::super::ResponsesRequest;
    use super::*;
    use serde_json::{Value, json};

    /// The tokens that are reserved for these tools, and the tools as a dialect of functions only
    /// gets them.
    fn reserved(tools: &Value) -> (u64, Value) {
        let body = json!({"model": "m", "input": "", "tools": tools}).to_string();
        let request = ResponsesRequest::parse(body.as_bytes(), &[]).unwrap();
        let dialect = Dialect { has_tool: &|_| false, takes_items: false, open: &|_| None };
        let rendered = render(&request.guest_json, &dialect, request.kinds.compacts).unwrap();
        let rendered: Value = serde_json::from_slice(&rendered.json).unwrap();
        (request.weight.most(), rendered["tools"].clone())
    }

    #[test]
    fn functions_that_the_host_defines_are_reserved_too() {
        let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: X"});
        for tool in [
            json!({"type": "local_shell"}),
            json!({"type": "shell"}),
            json!({"type": "apply_patch"}),
            json!({"type": "tool_search", "execution": "client"}),
            json!({"type": "custom", "name": "c"}),
            json!({"type": "custom", "name": "c", "format": grammar}),
            json!({"type": "namespace", "name": "n", "description": "d", "tools": [
                {"type": "custom", "name": "c"}, {"type": "function", "name": "f"}]}),
        ] {
            let (reserved, rendered) = reserved(&json!([tool]));
            assert!(!rendered[0].is_null() && reserved >= rendered.to_string().len() as u64, "{tool}");
        }
    }
}
