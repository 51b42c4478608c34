//! `vault audit`: a page of the audit log, filtered by action, key, secret and day.

use cofferdam_store::{AuditAction, AuditRecord, KeyId, SecretName, Store, UsageDay};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{CommandError, CommandOutcome};
use crate::timestamp::timestamp;

/// Audit records that are read for one reply.
const PAGE: usize = 1000;

/// Which records of the audit log to print.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// Only entries about secrets of this name, of any vault
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub secret: Option<String>,
    /// Only records of this day of UTC, such as 2026-01-31
    #[arg(long)]
    pub day: Option<UsageDay>,
    /// Only the newest records, at most so many
    #[arg(long, value_name = "N", conflicts_with = "since", value_parser = clap::value_parser!(u32).range(1..=1000))]
    #[serde(default)]
    pub newest: Option<u32>,
    /// With `--newest`: only records before this number; it is of the same kind as the one of `--since`
    #[arg(long, value_name = "SEQ", requires = "newest")]
    #[serde(default)]
    pub before: Option<u64>,
}

/// The parsed filter.
struct Filter<'f> {
    action: Option<&'f str>,
    key: Option<String>,
    secret: Option<SecretName>,
    day: Option<UsageDay>,
}

/// One page of records.
///
/// Without `newest` it has those after `since`. `next` is `since` for the next page, and null at the end of the log.
/// With `newest` it has the newest ones before `before`. `previous` is `before` for the page of older ones, and null at
/// the beginning of the log. Such a page may have fewer records than wanted: those that a filter leaves out count among
/// the records that one page reads.
pub(super) async fn page(wanted: &AuditFilter, store: &Store) -> Result<CommandOutcome, CommandError> {
    let filter = Filter::parse(wanted)?;
    let Some(newest) = wanted.newest else {
        let records = store.placed_audit_records(wanted.since, PAGE).await?;
        let next = records.last().map(|(position, _)| *position);
        let shown = records.iter().filter_map(|record| filter.show(record, store)).collect();
        return Ok(outcome(shown, "next", next));
    };
    let newest = newest as usize;
    let limit = if filter.is_open() { newest } else { PAGE };
    // One more tells whether there are older ones.
    let records = store.newest_audit_records(wanted.before, limit + 1).await?;
    let (mut shown, mut read) = (Vec::new(), 0);
    for record in records.iter().rev().take(limit) {
        if shown.len() == newest {
            break;
        }
        read += 1;
        shown.extend(filter.show(record, store));
    }
    shown.reverse();
    let oldest = records.iter().rev().nth(read - usize::from(read > 0)).map(|(position, _)| *position);
    Ok(outcome(shown, "previous", oldest.filter(|_| read < records.len())))
}

fn outcome(shown: Vec<Value>, cursor: &'static str, at: Option<u64>) -> CommandOutcome {
    let text = shown.iter().map(|document| format!("{document}\n")).collect();
    CommandOutcome { document: json!({"records": shown, cursor: at}), text }
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
        let secret = wanted.secret.as_deref().map(|secret| {
            let name: Result<SecretName, _> = secret.parse();
            name.map_err(|error| fault(secret, error.to_string()))
        });
        Ok(Self {
            action: wanted.action.as_deref(),
            key: key.transpose()?,
            secret: secret.transpose()?,
            day: wanted.day,
        })
    }

    /// Whether it lets every entry pass.
    fn is_open(&self) -> bool {
        self.names_no_entry() && self.day.is_none()
    }

    /// Whether it lets every entry of a record pass.
    fn names_no_entry(&self) -> bool {
        self.action.is_none() && self.key.is_none() && self.secret.is_none()
    }

    /// The record with the matching entries, and its position where that is not its number.
    fn show(&self, (position, record): &(u64, AuditRecord), store: &Store) -> Option<Value> {
        let mut shown = self.apply(record)?;
        // In a database the numbers of several chains are not in one order, nor are those that come from one.
        if (store.database_hosts().is_some() || *position != record.seq)
            && let Some(fields) = shown.as_object_mut()
        {
            fields.insert("position".to_owned(), (*position).into());
        }
        Some(shown)
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
        if self.names_no_entry() {
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
            && self.secret.as_ref().is_none_or(|secret| is_about(entry, secret.as_str()))
    }
}

/// Whether an entry is about a secret of this name: alone, as one of several, or as one that was copied.
fn is_about(entry: &Value, secret: &str) -> bool {
    let several = |member: &str| entry[member].as_array().into_iter().flatten();
    // What else has a name has an id too.
    (entry["name"] == secret && entry.get("id").is_none())
        || several("names").any(|name| name == secret)
        || several("secrets").any(|it| *it == secret || it["name"] == secret)
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
