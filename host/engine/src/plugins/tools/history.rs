//! Items of a request's input that stand for calls of its server tools. The model made function
//! calls and read their results, so these items are rendered for it as function calls and results.
//! A call that the client was asked about and has approved is still to be run.
//!
//! Only items that the manifests of the request's own tools declare are handled here.

use super::offer::{Offer, ServerTool};
use crate::assembler::approvals::Approvals;
use crate::refusal::Refusal;
use crate::refusal::printable;
use crate::request::walk::{Breath, walk};
use bytes::Bytes;
use cofferdam_runtime::manifest::ItemTable;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Members of a call's item that do not become part of the result for the model: those that
/// identify the call, and those whose strings are media or names, which moderation does not read.
const NOT_RESULT: [&str; 14] = [
    "type",
    "id",
    "call_id",
    "status",
    "arguments",
    "name",
    "server_label",
    "approval_request_id",
    "data",
    "file_data",
    "image_b64",
    "image_url",
    "result",
    "signature",
];

type HistoryItem = Map<String, Value>;

#[derive(Deserialize)]
struct TaggedItem<'a> {
    #[serde(rename = "type", borrow)]
    tag: Option<Cow<'a, str>>,
}

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
    Result {
        call_id: String,
        told: String,
    },
    /// The result of an approved call, by its index.
    Approved(usize),
}

/// The input of a request, split where it concerns server tools.
#[derive(Default)]
pub(super) struct History {
    pieces: Vec<HistoryPiece>,
    /// Calls to be run before the first turn.
    pub(super) approved: Vec<Approved>,
    /// Ids of the approval requests that were read so far.
    seen: BTreeSet<String>,
    /// Types and labels of the opening items that the client has already.
    listed: BTreeSet<(String, String)>,
}

/// The client's answers to approval requests, and which of the calls were run already.
#[derive(Default)]
struct ApprovalAnswers {
    approved: BTreeMap<String, Result<(), String>>,
    asked: BTreeSet<String>,
    done: BTreeSet<String>,
}

impl History {
    /// Reads the items of an input, comma-separated. `None` if none of them concerns the tools.
    ///
    /// # Errors
    /// 400 for an answer to an approval request that is not in the input, and for the approval of a
    /// call that this host has not asked about.
    pub(super) async fn read(
        input: &[u8],
        offer: &Offer,
        approvals: &Approvals,
    ) -> Result<Option<Self>, Refusal> {
        let roles = roles(offer);
        if roles.is_empty() {
            return Ok(None);
        }
        let list = [b"[".as_slice(), input, b"]"].concat();
        // The items were written by this host, so they are valid JSON.
        let items: Vec<&RawValue> = serde_json::from_slice(&list).map_err(|_| Refusal::internal())?;
        let mut breath = Breath::default();
        let mut read: Vec<Option<(&ToolRole<'_>, HistoryItem)>> = Vec::with_capacity(items.len());
        for raw in walk(&items) {
            breath.step().await;
            read.push(known(raw, &roles));
        }
        if read.iter().all(Option::is_none) {
            return Ok(None);
        }
        let answers = ApprovalAnswers::of(&read)?;
        let mut history = Self::default();
        let mut results = Vec::new();
        for (raw, known) in walk(&items).zip(read) {
            breath.step().await;
            if let Some((role, item)) = known {
                history.add(role, &item, &answers, (offer, approvals), &mut results)?;
                continue;
            }
            // Results follow the last of several consecutive calls, where providers require them.
            if !is_call(raw) {
                history.pieces.append(&mut results);
            }
            history.pieces.push(HistoryPiece::Item(Bytes::copy_from_slice(raw.get().as_bytes())));
        }
        history.pieces.append(&mut results);
        Ok(Some(history))
    }

    /// Whether the client has an opening item of this type and label.
    pub(super) fn has(&self, item_type: &str, label: &str) -> bool {
        self.listed.contains(&(item_type.to_owned(), label.to_owned()))
    }

    /// The items as rendered for models, comma-separated. `results` are those of the approved
    /// calls.
    pub(super) fn write(&self, results: &[String]) -> Bytes {
        let output = |call_id: &str, output: &str| {
            let item = json!({ "type": "function_call_output", "call_id": call_id, "output": output });
            Bytes::from(item.to_string())
        };
        let written = walk(&self.pieces).map(|piece| match piece {
            HistoryPiece::Item(item) => item.clone(),
            HistoryPiece::Result { call_id, told } => output(call_id, told),
            HistoryPiece::Approved(place) => {
                let id = self.approved.get(*place).map_or("", |approved| &approved.id);
                output(id, results.get(*place).map_or("", String::as_str))
            }
        });
        Bytes::from(written.collect::<Vec<_>>().join(&b','))
    }

    fn add(
        &mut self,
        role: &ToolRole<'_>,
        item: &HistoryItem,
        answers: &ApprovalAnswers,
        known: (&Offer, &Approvals),
        results: &mut Vec<HistoryPiece>,
    ) -> Result<(), Refusal> {
        let (offer, _) = known;
        match role {
            ToolRole::Opening => {
                self.listed.insert((text(item, "type").to_owned(), text(item, "server_label").to_owned()));
            }
            ToolRole::Answer => {}
            ToolRole::Call(tool) => {
                let call_id = self.call_id(item);
                let function = offer.function_like(item).or_else(|| offer.first_of(tool));
                self.call(&call_id, function, item);
                results.push(HistoryPiece::Result { call_id, told: result_of(item) });
            }
            ToolRole::Asks(table) => self.ask(table, item, answers, known, results)?,
        }
        Ok(())
    }

    fn ask(
        &mut self,
        table: &ItemTable,
        item: &HistoryItem,
        answers: &ApprovalAnswers,
        (offer, approvals): (&Offer, &Approvals),
        results: &mut Vec<HistoryPiece>,
    ) -> Result<(), Refusal> {
        let id = text(item, "id").to_owned();
        if answers.done.contains(&id) || !self.seen.insert(id.clone()) {
            // If the call was run, its own item renders it. A repeated approval request is handled
            // once.
            return Ok(());
        }
        let function = offer.function_like(item);
        self.call(&id, function, item);
        let told = match answers.approved.get(&id) {
            None => "The user has not said whether this call may be made.".to_owned(),
            Some(Err(reason)) if reason.is_empty() => "The user does not allow this call.".to_owned(),
            Some(Err(reason)) => format!("The user does not allow this call: {reason}"),
            Some(Ok(())) => {
                check(item, &id, function, offer, approvals)?;
                let mut members = item.clone();
                members.insert("approval_request_id".to_owned(), Value::String(id.clone()));
                let asks = table.asks.as_ref().map_or("", |asks| &asks.approved);
                results.push(HistoryPiece::Approved(self.approved.len()));
                self.approved.push(Approved {
                    id,
                    function: function.map(str::to_owned),
                    arguments: text(item, "arguments").to_owned(),
                    item_type: asks.to_owned(),
                    members,
                });
                return Ok(());
            }
        };
        results.push(HistoryPiece::Result { call_id: id, told });
        Ok(())
    }

    fn call(&mut self, call_id: &str, function: Option<&str>, item: &HistoryItem) {
        let arguments = match text(item, "arguments") {
            "" => "{}",
            arguments => arguments,
        };
        // The tool does not exist any more, but its calls are still in the history.
        let name = function.unwrap_or("unknown_tool");
        let call =
            json!({ "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments });
        self.pieces.push(HistoryPiece::Item(Bytes::from(call.to_string())));
    }

    fn call_id(&self, item: &HistoryItem) -> String {
        match text(item, "id") {
            "" => format!("call_before_{}", self.pieces.len()),
            id => id.to_owned(),
        }
    }
}

impl ApprovalAnswers {
    fn of(items: &[Option<(&ToolRole<'_>, HistoryItem)>]) -> Result<Self, Refusal> {
        let mut answers = Self::default();
        for (role, item) in walk(items).flatten() {
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
    raw: &RawValue,
    roles: &'r BTreeMap<&str, ToolRole<'o>>,
) -> Option<(&'r ToolRole<'o>, HistoryItem)> {
    let TaggedItem { tag } = serde_json::from_str(raw.get()).ok()?;
    let role = roles.get(&*tag?)?;
    Some((role, serde_json::from_str(raw.get()).ok()?))
}

fn is_call(raw: &RawValue) -> bool {
    let tagged: Option<TaggedItem<'_>> = serde_json::from_str(raw.get()).ok();
    let tag = tagged.and_then(|tagged| tagged.tag);
    tag.is_some_and(|tag| matches!(&*tag, "function_call" | "custom_tool_call"))
}

fn text<'i>(item: &'i HistoryItem, name: &str) -> &'i str {
    item.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The result of an earlier call, for the model.
fn result_of(item: &HistoryItem) -> String {
    if let Some(Value::String(output)) = item.get("output") {
        return output.clone();
    }
    let told = |(name, value): &(&String, &Value)| !value.is_null() && !NOT_RESULT.contains(&name.as_str());
    let members = item.iter().filter(told).map(|(name, value)| (name.clone(), value.clone()));
    Value::Object(members.collect()).to_string()
}
