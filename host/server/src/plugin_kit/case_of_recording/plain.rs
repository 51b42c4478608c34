//! JSON as TOML, which has no null.

use std::collections::BTreeSet;

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
