//! Items of a request's input that the manifests of its tools declare, of tools that may ask the
//! client. The model made function calls and read their results, so these items are rendered for it
//! as function calls and results. A call that the client was asked about and has approved is still to
//! be run.

use super::offer::Offer;
use super::server_tool::ServerTool;
use crate::assembler::approvals::Approvals;
use crate::refusal::Refusal;
use crate::refusal::printable;
use crate::request::walk::{Breath, walk};
use crate::request::{HostItem, PlainItem};
use bytes::Bytes;
use cofferdam_runtime::manifest::ItemTable;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

type HistoryItem = Map<String, Value>;

/// The role of an item for the tools of a request.
enum ToolRole<'o> {
    Call(&'o ServerTool),
    Opening,
    Asks(&'o ItemTable),
    Answer,
}

/// A call that the client has approved.
pub(super) struct Approved {
    /// The id of the approval request. It connects the call to its result.
    pub(super) id: String,
    /// The function; `None` if it is not offered any more.
    pub(super) function: Option<String>,
    /// JSON, as the model wrote it.
    pub(super) arguments: String,
    /// The type of the item that will show the call.
    pub(super) item_type: String,
    /// Members of that item.
    pub(super) members: HistoryItem,
}

enum HistoryPiece {
    Item(Bytes),
    /// The result of an approved call, by its index.
    Approved(usize),
}

/// The input of a request, split where it concerns server tools.
#[derive(Default)]
pub(super) struct History {
    pieces: Vec<HistoryPiece>,
    /// Calls to be run before the first turn.
    pub(super) approved: Vec<Approved>,
    /// Types and labels of the opening items that the client has already.
    listed: BTreeSet<(String, String)>,
}

/// Reads a history from its items.
struct HistoryReader<'o> {
    offer: &'o Offer,
    approvals: &'o Approvals,
    answers: ApprovalAnswers,
    /// Ids of the approval requests that were read so far.
    seen: BTreeSet<String>,
    /// Results that follow the last of several consecutive calls, where providers require them.
    results: Vec<HistoryPiece>,
    history: History,
}

/// The client's answers to approval requests, and which of the calls were run already.
#[derive(Default)]
struct ApprovalAnswers {
    approved: BTreeMap<String, Result<(), String>>,
    asked: BTreeSet<String>,
    done: BTreeSet<String>,
}

impl History {
    /// Reads the items of an input. `None` if none of them is of a declared type.
    ///
    /// # Errors
    /// 400 for an answer to an approval request that is not in the input, and for the approval of a
    /// call that this host has not asked about.
    pub(super) async fn read(
        items: Vec<PlainItem>,
        offer: &Offer,
        approvals: &Approvals,
    ) -> Result<Option<Self>, Refusal> {
        let roles = roles(offer);
        let mut breath = Breath::default();
        let mut declared = Vec::new();
        for item in walk(&items) {
            if let PlainItem::Declared(json) = item {
                breath.step().await;
                declared.push(known(json, &roles).ok_or_else(Refusal::internal)?);
            }
        }
        if declared.is_empty() {
            return Ok(None);
        }
        let answers = ApprovalAnswers::of(&declared)?;
        let (seen, results, history) = (BTreeSet::new(), Vec::new(), Self::default());
        let mut reader = HistoryReader { offer, approvals, answers, seen, results, history };
        let mut declared = declared.into_iter();
        for item in walk(items) {
            breath.step().await;
            match item {
                PlainItem::Call(json) => reader.push(json),
                PlainItem::Other(json) => {
                    reader.end_calls();
                    reader.push(json);
                }
                PlainItem::Declared(_) => {
                    let (role, item) = declared.next().ok_or_else(Refusal::internal)?;
                    reader.declared(role, &item)?;
                }
            }
        }
        reader.end_calls();
        Ok(Some(reader.history))
    }

    /// Whether the client has an opening item of this type and label.
    pub(super) fn has(&self, item_type: &str, label: &str) -> bool {
        self.listed.contains(&(item_type.to_owned(), label.to_owned()))
    }

    /// The items as rendered for models, comma-separated. `results` are those of the approved
    /// calls.
    pub(super) fn write(&self, results: &[String]) -> Bytes {
        let written = walk(&self.pieces).map(|piece| match piece {
            HistoryPiece::Item(item) => item.clone(),
            HistoryPiece::Approved(index) => {
                let call_id = self.approved.get(*index).map_or("", |approved| &approved.id);
                let output = results.get(*index).map_or("", String::as_str);
                HostItem::FunctionCallOutput { call_id, output }.to_json()
            }
        });
        Bytes::from(written.collect::<Vec<_>>().join(&b','))
    }
}

impl HistoryReader<'_> {
    fn push(&mut self, json: Bytes) {
        self.history.pieces.push(HistoryPiece::Item(json));
    }

    fn end_calls(&mut self) {
        self.history.pieces.append(&mut self.results);
    }

    fn declared(&mut self, role: &ToolRole<'_>, item: &HistoryItem) -> Result<(), Refusal> {
        match role {
            ToolRole::Opening => {
                let listed = (text(item, "type").to_owned(), text(item, "server_label").to_owned());
                self.history.listed.insert(listed);
            }
            ToolRole::Answer => {}
            ToolRole::Call(tool) => {
                let call_id = match text(item, "id") {
                    "" => format!("call_before_{}", self.history.pieces.len()),
                    id => id.to_owned(),
                };
                self.call(
                    &call_id,
                    self.offer.function_like(item).or_else(|| self.offer.first_of(tool)),
                    item,
                );
                self.result(&call_id, &result_of(item));
            }
            ToolRole::Asks(table) => self.ask(table, item)?,
        }
        Ok(())
    }

    fn ask(&mut self, table: &ItemTable, item: &HistoryItem) -> Result<(), Refusal> {
        let id = text(item, "id");
        if self.answers.done.contains(id) || !self.seen.insert(id.to_owned()) {
            // If the call was run, its own item renders it. A repeated approval request is handled
            // once.
            return Ok(());
        }
        let function = self.offer.function_like(item);
        self.call(id, function, item);
        let answer = match self.answers.approved.get(id) {
            None => "The user has not said whether this call may be made.".to_owned(),
            Some(Err(reason)) if reason.is_empty() => "The user does not allow this call.".to_owned(),
            Some(Err(reason)) => format!("The user does not allow this call: {reason}"),
            Some(Ok(())) => {
                check(item, id, function, self.offer, self.approvals)?;
                let mut members = item.clone();
                members.insert("approval_request_id".to_owned(), Value::from(id));
                self.results.push(HistoryPiece::Approved(self.history.approved.len()));
                self.history.approved.push(Approved {
                    id: id.to_owned(),
                    function: function.map(str::to_owned),
                    arguments: text(item, "arguments").to_owned(),
                    item_type: table.asks.as_ref().map(|asks| asks.approved.clone()).unwrap_or_default(),
                    members,
                });
                return Ok(());
            }
        };
        self.result(id, &answer);
        Ok(())
    }

    fn call(&mut self, call_id: &str, function: Option<&str>, item: &HistoryItem) {
        let arguments = match text(item, "arguments") {
            "" => "{}",
            arguments => arguments,
        };
        // The tool does not exist any more, but its calls are still in the history.
        let name = function.unwrap_or("unknown_tool");
        self.push(HostItem::FunctionCall { call_id, name, arguments }.to_json());
    }

    fn result(&mut self, call_id: &str, output: &str) {
        let json = HostItem::FunctionCallOutput { call_id, output }.to_json();
        self.results.push(HistoryPiece::Item(json));
    }
}

impl ApprovalAnswers {
    fn of(items: &[(&ToolRole<'_>, HistoryItem)]) -> Result<Self, Refusal> {
        let mut answers = Self::default();
        for (role, item) in walk(items) {
            match role {
                ToolRole::Call(_) => {
                    answers.done.insert(text(item, "approval_request_id").to_owned());
                }
                ToolRole::Asks(_) => {
                    answers.asked.insert(text(item, "id").to_owned());
                }
                ToolRole::Answer => answers.take(item)?,
                ToolRole::Opening => {}
            }
        }
        Ok(answers)
    }

    fn take(&mut self, item: &HistoryItem) -> Result<(), Refusal> {
        let id = text(item, "approval_request_id");
        if !self.asked.contains(id) {
            return Err(unasked(item, id));
        }
        let answer = match item.get("approve") {
            Some(Value::Bool(true)) => Ok(()),
            _ => Err(text(item, "reason").to_owned()),
        };
        // If there are several answers, a refusal takes precedence.
        let known = self.approved.entry(id.to_owned()).or_insert_with(|| answer.clone());
        if known.is_ok() {
            *known = answer;
        }
        Ok(())
    }
}

/// Checks an approval. It holds only for the call that this host asked this account about: a client
/// can write any item of a history, but only this host can make the id.
///
/// # Errors
/// 400 for any other id.
fn check(
    item: &HistoryItem,
    id: &str,
    function: Option<&str>,
    offer: &Offer,
    approvals: &Approvals,
) -> Result<(), Refusal> {
    let label = text(item, "server_label");
    let owner =
        function.and_then(|function| offer.owner(function)).map(|tool| approvals.bind(&tool.settings));
    // The server may no longer have the tool; then the label identifies the server.
    let mut servers = offer.server_tools().filter(|tool| tool.asks_client());
    let binding = owner.or_else(|| {
        servers.find_map(|tool| Some(approvals.bind(&tool.settings)).filter(|server| server.label() == label))
    });
    let (name, arguments) = (text(item, "name"), text(item, "arguments"));
    if binding.is_some_and(|binding| binding.has_made(id, name, arguments)) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "input approves \"{}\", and this host has not asked for that: an approval holds for one call of one server, \
         as it was asked, by the same workspace or intern",
        printable(id)
    )))
}

fn unasked(item: &HistoryItem, id: &str) -> Refusal {
    Refusal::invalid(format!(
        "input has an item {} for \"{}\", which does not stand before it; this service is stateless: send the \
         request for approval too",
        printable(text(item, "type")),
        printable(id)
    ))
}

/// The types of items that the request's tools declare.
pub(super) fn declared_types(offer: &Offer) -> Vec<String> {
    roles(offer).into_keys().map(str::to_owned).collect()
}

/// The items that the request's tools declare, by type.
fn roles(offer: &Offer) -> BTreeMap<&str, ToolRole<'_>> {
    let mut roles = BTreeMap::new();
    // The items of tools that never ask the client are rendered by the parser, as calls of
    // functions.
    for tool in offer.server_tools().filter(|tool| tool.asks_client()) {
        let items = tool.plugin.manifest().tool.iter().flat_map(|table| &table.items);
        // What the client answers itself is in items of its own.
        for table in items.filter(|table| !table.halts) {
            if let Some(asks) = &table.asks {
                roles.insert(asks.answer.as_str(), ToolRole::Answer);
                roles.insert(table.item_type.as_str(), ToolRole::Asks(table));
            } else if table.opening.is_some() {
                roles.insert(table.item_type.as_str(), ToolRole::Opening);
            } else {
                roles.insert(table.item_type.as_str(), ToolRole::Call(tool));
            }
        }
    }
    roles
}

fn known<'r, 'o>(
    json: &[u8],
    roles: &'r BTreeMap<&str, ToolRole<'o>>,
) -> Option<(&'r ToolRole<'o>, HistoryItem)> {
    let item: HistoryItem = serde_json::from_slice(json).ok()?;
    Some((roles.get(text(&item, "type"))?, item))
}

fn text<'i>(item: &'i HistoryItem, name: &str) -> &'i str {
    item.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The result of an earlier call, for the model: its output, or else its error. A client may add any other
/// member, which moderation need not have read.
fn result_of(item: &HistoryItem) -> String {
    if let Some(Value::String(output)) = item.get("output") {
        return output.clone();
    }
    let error = item.get("error").filter(|error| !error.is_null());
    Value::Object(error.map(|error| ("error".to_owned(), error.clone())).into_iter().collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_result_of_a_call_is_its_output_or_its_error_and_no_other_member() {
        let call = |members: Value| {
            let mut item = json!({"type": "mcp_call", "id": "m", "status": "failed", "server_label": "l",
                "name": "n", "arguments": "{}", "role": "x", "audio_url": "x", "file_id": "x", "other": "x"});
            item.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            result_of(item.as_object().unwrap())
        };
        for (members, told) in [
            (json!({"output": "3", "error": "e"}), "3"),
            (json!({"output": null, "error": "e"}), r#"{"error":"e"}"#),
            (
                json!({"error": {"type": "http_error", "code": 502}}),
                r#"{"error":{"type":"http_error","code":502}}"#,
            ),
            (json!({"error": null}), "{}"),
            (json!({}), "{}"),
        ] {
            assert_eq!(call(members.clone()), told, "{members}");
        }
    }
}
