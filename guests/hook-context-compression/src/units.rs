//! Splits a conversation into units of items that belong together.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;

/// Items that are kept or dropped together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) items: Range<usize>,
    /// Whether the unit must be kept.
    pub(crate) keep: bool,
}

/// Splits a conversation into units. A unit is one item; or everything from a call to its output; or a
/// reasoning item with the item after it.
pub(crate) fn units(items: &[Value]) -> Vec<Unit> {
    let last_user = items.iter().rposition(|item| role(item) == Some("user"));
    let last_user = last_user.unwrap_or(items.len().saturating_sub(1));
    let mut units: Vec<Unit> = runs(items).into_iter().map(|items| Unit { items, keep: false }).collect();
    let mut first_turn = true;
    for unit in &mut units {
        let run = items.get(unit.items.clone()).unwrap_or_default();
        let instructs = run.iter().any(|item| matches!(role(item), Some("system" | "developer")));
        // The first turn states the task. The last turn is everything from the last user message on,
        // including calls in progress.
        unit.keep = instructs || first_turn || unit.items.end > last_user;
        if !instructs {
            first_turn = false;
        }
    }
    units
}

/// Adjacent ranges such that both items of a pair are always in the same range.
fn runs(items: &[Value]) -> Vec<Range<usize>> {
    // The last index that the run of each item must include.
    let mut reach: Vec<usize> = (0..items.len()).collect();
    let mut opened: HashMap<&str, usize> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        if let Some(pair) = pair(item) {
            let first = *opened.entry(pair).or_insert(index);
            if let Some(reach) = reach.get_mut(first) {
                *reach = index;
            }
        }
        let reasons = item.get("type").and_then(Value::as_str) == Some("reasoning");
        if let (true, Some(reach)) = (reasons && index + 1 < items.len(), reach.get_mut(index)) {
            *reach = (*reach).max(index + 1);
        }
    }
    let mut runs = Vec::new();
    let (mut start, mut end) = (0, 0);
    for (index, reach) in reach.into_iter().enumerate() {
        end = end.max(reach);
        if index == end {
            runs.push(start..index + 1);
            (start, end) = (index + 1, index + 1);
        }
    }
    runs
}

/// The id that links an item to its counterpart: a call and its output, or an approval request and its
/// answer.
fn pair(item: &Value) -> Option<&str> {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    let approval = || match text("type") {
        Some("mcp_approval_request") => text("id"),
        _ => text("approval_request_id"),
    };
    text("call_id").or_else(approval)
}

/// The role of a message, including messages without a `type`.
fn role(item: &Value) -> Option<&str> {
    match item.get("type").and_then(Value::as_str) {
        None | Some("message") => item.get("role").and_then(Value::as_str),
        Some(_) => None,
    }
}
