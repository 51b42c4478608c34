//! JSON as TOML, which has no null.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

/// Makes TOML of values, and notes what a case cannot say.
#[derive(Default)]
pub(super) struct PlainValues {
    notes: BTreeSet<String>,
}

impl PlainValues {
    /// Adds a comment for the file.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.insert(note.into());
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }

    /// A value without its members that are null. `what` names the value in messages.
    ///
    /// # Errors
    ///
    /// The value is null, or a list has one.
    pub(super) fn plain(&mut self, value: &Value, what: &str) -> Result<toml::Value, String> {
        Ok(match value {
            Value::Null => return Err(format!("{what} have null in a list, which TOML does not have")),
            Value::Bool(flag) => toml::Value::Boolean(*flag),
            Value::Number(number) => match number.as_i64() {
                Some(number) => toml::Value::Integer(number),
                None => toml::Value::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => toml::Value::String(text.clone()),
            Value::Array(values) => {
                let values = values.iter().map(|value| self.plain(value, what));
                toml::Value::Array(values.collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                if members.values().any(Value::is_null) {
                    self.note(format!("TOML has no null: members that were null are left out of {what}."));
                }
                let members = members.iter().filter(|(_, value)| !value.is_null());
                let members = members.map(|(name, value)| Ok((name.clone(), self.plain(value, what)?)));
                toml::Value::Table(members.collect::<Result<_, String>>()?)
            }
        })
    }
}

/// A record of the contract without the members that a case has by default: no value, zero, false, nothing in a list.
/// `written` are members that a case writes in another way, such as JSON in place of its bytes.
pub(super) fn brief<const N: usize>(record: &impl Serialize, written: [(&str, Value); N]) -> Value {
    // Records of the contract can always be written.
    let mut record = serde_json::to_value(record).unwrap_or_default();
    let names = written.each_ref().map(|(name, _)| *name);
    if let Value::Object(members) = &mut record {
        members.retain(|name, value| !names.contains(&name.as_str()) && is_told(value));
        members.extend(written.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    record
}

/// Whether anything is left of a value without its members that a case has by default.
fn is_told(value: &mut Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(values) => !values.is_empty(),
        Value::Object(members) => {
            members.retain(|_, value| is_told(value));
            !members.is_empty()
        }
        Value::Bool(true) | Value::String(_) => true,
    }
}
