//! How clients see a tool's calls: the item that the manifest declares, and what a function adds
//! for its own calls.
//!
//! A function's schema may have a member `x-item`, which models do not get: an object with the
//! members that the item of a call has from its beginning on. Its `type`, if any, is one of the
//! types that the manifest declares. Without a `type`, a hosted substitute has the first declared
//! item, and other tools their own.

use crate::assembler::CallItem;
use crate::request::RequestTool;
use cofferdam_protocol::ToolPrefix;
use cofferdam_runtime::manifest::{Arguments, ItemTable, ToolTable};
use serde_json::{Map, Value};

/// The member of the schema for the host.
const ITEM: &str = "x-item";

/// Takes the member for the host out of a function's schema and makes the item of its calls.
/// `include` is the request's `include`, which lists members that are otherwise withheld.
///
/// # Errors
/// The type that the function names and the manifest does not declare.
pub(crate) fn item_of(
    schema: &mut Map<String, Value>,
    table: &ToolTable,
    tool: &RequestTool,
    include: &[String],
) -> Result<CallItem, String> {
    let mut members = match schema.shift_remove(ITEM) {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    let declared = match members.shift_remove("type") {
        Some(Value::String(named)) => Some(table.item(&named).ok_or(named)?),
        _ if tool.stands_in => table.items.first(),
        _ => None,
    };
    let mut item = match declared {
        Some(declared) => self::declared(declared),
        None => own_item(table, tool),
    };
    item.members.extend(members);
    let withheld = declared.or_else(|| table.own_item()).map_or(&[][..], |declared| &declared.on_request);
    let is_included = |member: &str| include.contains(&format!("{}.{member}", item.item_type));
    item.withheld = withheld.iter().filter(|member| !is_included(member)).cloned().collect();
    Ok(item)
}

/// The tool's own item. Its type has the prefix that the client used.
fn own_item(table: &ToolTable, tool: &RequestTool) -> CallItem {
    let item_type = format!("{}{}", tool.prefix.unwrap_or(ToolPrefix::Service).as_str(), table.tool_type);
    let plain = CallItem::own(item_type);
    match table.own_item() {
        Some(own) => CallItem { item_type: plain.item_type, members: plain.members, ..declared(own) },
        None => plain,
    }
}

/// An item as a manifest declares it.
pub(crate) fn declared(table: &ItemTable) -> CallItem {
    let word = table.events.as_ref().unwrap_or(&table.item_type);
    let full = |names: &[String]| -> Vec<String> {
        names.iter().map(|name| format!("response.{word}.{name}")).collect()
    };
    CallItem {
        item_type: table.item_type.clone(),
        id_prefix: table.id_prefix.clone(),
        members: table.members.clone(),
        is_stateless: !table.status,
        shows_arguments: table.arguments != Arguments::Hidden,
        streams_arguments: table.arguments == Arguments::Streamed,
        added: full(&table.added),
        running: full(&table.running),
        completed: full(&table.completed),
        failed: full(&table.failed),
        fails_by_error: table.error_type.is_some() || table.opening.is_some(),
        error_type: table.error_type.clone(),
        text: table.text.clone(),
        questions: table.questions.then(|| word.clone()),
        withheld: Vec::new(),
        asks: None,
        halts: table.halts,
    }
}
