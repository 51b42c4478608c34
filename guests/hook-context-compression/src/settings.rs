//! The settings in the request's plugin entry and in the operator's configuration.

use serde::Deserialize;
use serde_json::{Value, from_slice};

/// The effective settings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) enabled: bool,
    /// Tokens of input and output together. The value comes from the plugin entry, where the host
    /// puts the model's context length, otherwise from the operator's configuration.
    pub(crate) context_length: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Operator {
    context_length: Option<u32>,
}

impl Settings {
    /// # Errors
    /// The first invalid field, as a sentence.
    pub(crate) fn read(entry: &[u8], operator: &[u8]) -> Result<Self, String> {
        let malformed = |field: &str, rule: &str| Err(format!("context-compression{field} must be {rule}"));
        let entry: Value = from_slice(entry).unwrap_or(Value::Bool(false));
        let field = |name: &str| entry.get(name).filter(|value| !value.is_null());
        if !entry.is_object() {
            return malformed("", "an object");
        }
        let enabled = match field("enabled").map(Value::as_bool) {
            None => true,
            Some(Some(enabled)) => enabled,
            Some(None) => return malformed(".enabled", "true or false"),
        };
        if field("engine").is_some_and(|engine| engine != "middle-out") {
            return malformed(".engine", "one of middle-out");
        }
        let length = match field("context_length") {
            None => None,
            Some(length) => match length.as_u64().and_then(|length| u32::try_from(length).ok()) {
                Some(length) => Some(length),
                None => return malformed(".context_length", "a number of tokens"),
            },
        };
        let operator: Operator = from_slice(operator).unwrap_or_default();
        // The host uses zero for an unknown length.
        let context_length = length.or(operator.context_length).filter(|length| *length > 0);
        Ok(Self { enabled, context_length })
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn the_entry_comes_before_the_operator() {
        let cases = [
            ("{}", "{}", true, None),
            (r#"{"id":"context-compression","engine":"middle-out","enabled":null}"#, "{}", true, None),
            (r#"{"enabled":false}"#, "{}", false, None),
            (r#"{"context_length":8192}"#, r#"{"context_length":4096}"#, true, Some(8192)),
            ("{}", r#"{"context_length":4096}"#, true, Some(4096)),
            ("{}", r#"{"context_length":"many"}"#, true, None),
            (r#"{"context_length":0}"#, "{}", true, None),
        ];
        for (entry, operator, enabled, context_length) in cases {
            let settings = Settings::read(entry.as_bytes(), operator.as_bytes());
            assert_eq!(settings, Ok(Settings { enabled, context_length }), "{entry} {operator}");
        }
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        let cases = [
            ("7", "context-compression must be an object"),
            ("", "context-compression must be an object"),
            (r#"{"enabled":1}"#, "context-compression.enabled must be true or false"),
            (r#"{"engine":"zip"}"#, "context-compression.engine must be one of middle-out"),
            (r#"{"context_length":-1}"#, "context-compression.context_length must be a number of tokens"),
        ];
        for (entry, message) in cases {
            assert_eq!(Settings::read(entry.as_bytes(), b"{}"), Err(message.to_owned()), "{entry}");
        }
    }
}
