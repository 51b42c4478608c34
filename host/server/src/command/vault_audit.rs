//! `vault audit`: a page of the audit log, filtered by action, key and day.

use cofferdam_store::{AuditAction, AuditRecord, KeyId, Store, UsageDay};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{CommandError, CommandOutcome};
use crate::timestamp::timestamp;

/// Audit records that are read for one reply.
const PAGE: usize = 1000;

/// Which records of the audit log to print.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
pub struct AuditFilter {
    /// Only records after this number: their `position`, or the `seq` of those that have none
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub since: u64,
    /// Only entries about this action, such as secret_stored
    #[arg(long)]
    pub action: Option<String>,
    /// Only entries by this key or about it, by its id
    #[arg(long, value_name = "ID")]
    pub key: Option<String>,
    /// Only records of this day of UTC, such as 2026-01-31
    #[arg(long)]
    pub day: Option<String>,
}

/// The parsed filter.
struct Filter<'f> {
    action: Option<&'f str>,
    key: Option<String>,
    day: Option<UsageDay>,
}

/// One page of records after `since`. `next` is the number after which the next page begins, null
/// at the end of the log.
pub(super) async fn page(wanted: &AuditFilter, store: &Store) -> Result<CommandOutcome, CommandError> {
    let filter = Filter::parse(wanted)?;
    let records = store.placed_audit_records(wanted.since, PAGE).await?;
    // In a database the numbers of several chains are not in one order, nor are those that come from one.
    let is_shared = store.database_hosts().is_some();
    let shown = records.iter().filter_map(|(position, record)| {
        filter.apply(record).map(|mut shown| {
            if (is_shared || *position != record.seq)
                && let Some(fields) = shown.as_object_mut()
            {
                fields.insert("position".to_owned(), (*position).into());
            }
            shown
        })
    });
    let shown: Vec<Value> = shown.collect();
    let text = shown.iter().map(|document| format!("{document}\n")).collect();
    let next = records.last().map(|(position, _)| *position);
    Ok(CommandOutcome { document: json!({"records": shown, "next": next}), text })
}

impl<'f> Filter<'f> {
    fn parse(wanted: &'f AuditFilter) -> Result<Self, CommandError> {
        let fault = |given: &str, what: String| CommandError::new(format!("`{given}`: {what}"));
        if let Some(action) = &wanted.action {
            AuditAction::check_name(action).map_err(|what| fault(action, what))?;
        }
        let key = wanted.key.as_deref().map(|key| {
            let id: Result<KeyId, _> = key.parse();
            id.map(|id| id.to_string()).map_err(|error| fault(key, error.to_string()))
        });
        let day = wanted.day.as_deref().map(|day| {
            let parsed: Result<UsageDay, _> = day.parse();
            parsed.map_err(|error| fault(day, error.to_string()))
        });
        Ok(Self { action: wanted.action.as_deref(), key: key.transpose()?, day: day.transpose()? })
    }

    /// The record with the matching entries; `None` if no entry matches.
    fn apply(&self, record: &AuditRecord) -> Option<Value> {
        if self.day.is_some_and(|day| UsageDay::of_ms(record.at_ms) != day) {
            return None;
        }
        let Value::Object(members) = json!(record) else { return None };
        let mut shown = Map::new();
        for (name, mut value) in members {
            if name == "entries" && !self.keep_meant(&mut value) {
                return None;
            }
            let is_time = name == "at_ms";
            shown.insert(name, value);
            if is_time {
                shown.insert("at".to_owned(), timestamp(record.at_ms).into());
            }
        }
        Some(shown.into())
    }

    /// Removes the entries that do not match; false if none is left.
    fn keep_meant(&self, entries: &mut Value) -> bool {
        if self.action.is_none() && self.key.is_none() {
            return true;
        }
        entries.as_array_mut().is_some_and(|entries| {
            entries.retain(|entry| self.is_meant(entry));
            !entries.is_empty()
        })
    }

    fn is_meant(&self, entry: &Value) -> bool {
        self.action.is_none_or(|action| entry["action"] == action)
            && self.key.as_deref().is_none_or(|key| mentions(entry, key))
    }
}

/// Whether an entry mentions a key anywhere, as its actor or as its object. A match by accident is
/// not possible, because key ids are random.
fn mentions(value: &Value, key: &str) -> bool {
    match value {
        Value::String(text) => text == key,
        Value::Array(items) => items.iter().any(|item| mentions(item, key)),
        Value::Object(members) => members.values().any(|item| mentions(item, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
