//! How the calls of a tool's function are shown: what its manifest declares for the type of item, and what the
//! tool says of this function in the member `x-item` of its schema, which no model sees.

use crate::assembler::Shown;
use crate::refusal::Refusal;
use cofferdam_runtime::Plugin;
use cofferdam_runtime::manifest::{ItemTable, ToolTable};
use serde_json::{Map, Value};

/// The member of a function's schema that is for the host.
const ITEM: &str = "x-item";

/// Takes what is for the host out of a function's schema. `item_type` is that of the tool's calls where the
/// function names none; `include` what the request asks for.
///
/// # Errors
/// 500 when the tool names an item that its manifest does not declare.
pub(super) fn of(
    plugin: &Plugin,
    item_type: &str,
    parameters: &mut Map<String, Value>,
    include: &[String],
) -> Result<Shown, Refusal> {
    let mut members = match parameters.shift_remove(ITEM) {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    let named = match members.shift_remove("type") {
        Some(Value::String(named)) => Some(named),
        _ => None,
    };
    let tool = plugin.manifest().tool.as_ref();
    let declared = |item: &str| tool.and_then(|tool| tool.item(item));
    let (item_type, table) = match named {
        Some(named) => match declared(&named) {
            Some(table) => (named, table),
            None => {
                tracing::error!(
                    plugin = plugin.name(),
                    "a tool names a type of item that its manifest does not"
                );
                return Err(Refusal::internal());
            }
        },
        None => {
            let own = tool.filter(|_| item_type.contains(':')).map(ToolTable::own_item);
            let table = declared(own.as_deref().unwrap_or(item_type));
            (item_type.to_owned(), table.unwrap_or_default())
        }
    };
    let withheld = withheld(&item_type, &table, include);
    Ok(Shown { item_type, table, members, withheld })
}

fn withheld(item_type: &str, table: &ItemTable, include: &[String]) -> Vec<String> {
    let is_included = |member: &str| {
        include.iter().any(|asked| {
            asked.strip_prefix(item_type).and_then(|rest| rest.strip_prefix('.')) == Some(member)
        })
    };
    table.on_request.iter().filter(|member| !is_included(member)).cloned().collect()
}
