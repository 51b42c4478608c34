//! Fields of a JSON object from an untrusted source: the client's settings of a tool, or the
//! arguments that a model chose.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::bindings::tools::ToolError;

/// An object whose fields are read one by one. `null` means the same as an absent field.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
    /// Put before a field's name in error messages.
    prefix: String,
    complain: fn(String) -> ToolError,
}

impl Fields {
    /// Reads the `parameters` of a request's tool entry. Absent parameters (no bytes, or `null`)
    /// are an empty object.
    ///
    /// # Errors
    ///
    /// Invalid settings, when the bytes are not a JSON object.
    pub fn settings(json: &[u8]) -> Result<Self, ToolError> {
        Self::read(json, "parameters.", ToolError::InvalidSettings)
            .ok_or_else(|| ToolError::InvalidSettings("parameters must be an object".to_owned()))
    }

    /// Reads the arguments of a call. No bytes mean no arguments: some models send nothing.
    ///
    /// # Errors
    ///
    /// Invalid arguments, when the bytes are not a JSON object.
    pub fn arguments(json: &[u8]) -> Result<Self, ToolError> {
        Self::read(json, "", ToolError::InvalidArguments)
            .ok_or_else(|| ToolError::InvalidArguments("the arguments must be a JSON object".to_owned()))
    }

    fn read(json: &[u8], prefix: &'static str, complain: fn(String) -> ToolError) -> Option<Self> {
        let json = json.trim_ascii();
        let map = match json {
            b"" | b"null" => Map::new(),
            json => serde_json::from_slice(json).ok()?,
        };
        Some(Self { map, prefix: prefix.to_owned(), complain })
    }

    /// Reads the operator's configuration of the plugin. An error in it is not the client's fault, so
    /// it makes the call fail instead of refusing the request.
    ///
    /// # Errors
    ///
    /// When the bytes are not a JSON object.
    pub fn configuration(json: &[u8]) -> Result<Self, ToolError> {
        Self::read(json, "config.", ToolError::Failed)
            .ok_or_else(|| ToolError::Failed("config must be a table".to_owned()))
    }

    /// A nested object; empty when absent. Error messages put its name before the names of its fields.
    ///
    /// # Errors
    ///
    /// When the field is not an object.
    pub fn nested(&self, name: &str) -> Result<Self, ToolError> {
        let map = self.object(name)?.cloned().unwrap_or_default();
        Ok(Self { map, prefix: format!("{}{name}.", self.prefix), complain: self.complain })
    }

    /// The names of all fields.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.map.keys().map(String::as_str)
    }

    /// The error for a wrong field: its name and what it takes.
    #[must_use]
    pub fn wrong(&self, name: &str, takes: &str) -> ToolError {
        (self.complain)(format!("{}{name} {takes}", self.prefix))
    }

    /// All fields, in their order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.map.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// A field of any type, unless it is absent or null.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A string field.
    ///
    /// # Errors
    ///
    /// When the field is not a string.
    pub fn text(&self, name: &str) -> Result<Option<&str>, ToolError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "must be a string")),
        }
    }

    /// A string field that must be present and not blank. Surrounding white space is removed.
    ///
    /// # Errors
    ///
    /// When the field is absent, blank or not a string.
    pub fn required_text(&self, name: &str) -> Result<&str, ToolError> {
        let text = self.text(name)?.map_or("", str::trim);
        if text.is_empty() { Err(self.wrong(name, "must be a string that is not empty")) } else { Ok(text) }
    }

    /// A whole number within `range`. `3.0` counts as a whole number.
    ///
    /// # Errors
    ///
    /// When the number is out of range, or the field is not a whole number.
    pub fn integer(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, ToolError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        // The cast loses nothing: the number is whole and at most 1e9.
        let small =
            |number: f64| (number.fract() == 0.0 && (0.0..=1e9).contains(&number)).then_some(number as u64);
        let whole = value.as_u64().or_else(|| value.as_f64().and_then(small));
        match whole.and_then(|whole| u32::try_from(whole).ok()) {
            Some(whole) if range.contains(&whole) => Ok(Some(whole)),
            _ => {
                let takes = format!("must be a whole number from {} to {}", range.start(), range.end());
                Err(self.wrong(name, &takes))
            }
        }
    }

    /// A number of at least zero.
    ///
    /// # Errors
    ///
    /// When the number is negative, or the field is not a number.
    pub fn amount(&self, name: &str) -> Result<Option<f64>, ToolError> {
        match self.value(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) if number >= 0.0 => Ok(Some(number)),
                _ => Err(self.wrong(name, "must be a number of at least 0")),
            },
        }
    }

    /// A list of at most `count_max` strings, none of them blank.
    ///
    /// # Errors
    ///
    /// When the field is not such a list.
    pub fn texts(&self, name: &str, count_max: usize) -> Result<Option<Vec<&str>>, ToolError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let wrong = || self.wrong(name, &format!("must be a list of at most {count_max} strings"));
        let items = value.as_array().filter(|items| items.len() <= count_max).ok_or_else(wrong)?;
        let text = |item: &'_ Value| item.as_str().map(str::trim).filter(|text| !text.is_empty()).is_some();
        if !items.iter().all(text) {
            return Err(wrong());
        }
        Ok(Some(items.iter().filter_map(Value::as_str).map(str::trim).collect()))
    }

    /// A Boolean field.
    ///
    /// # Errors
    ///
    /// When the field is not a Boolean.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ToolError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.wrong(name, "must be true or false")),
        }
    }

    /// An object field.
    ///
    /// # Errors
    ///
    /// When the field is not an object.
    pub fn object(&self, name: &str) -> Result<Option<&Map<String, Value>>, ToolError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.wrong(name, "must be an object")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Fields {
        Fields::settings(json.as_bytes()).unwrap()
    }

    fn message(error: ToolError) -> String {
        match error {
            ToolError::InvalidSettings(message) | ToolError::InvalidArguments(message) => message,
            ToolError::Failed(message) => panic!("{message}"),
        }
    }

    #[test]
    fn absent_and_null_are_the_same() {
        for json in ["", " ", "null", "{}", r#"{"a":null}"#] {
            let fields = settings(json);
            assert_eq!(fields.text("a").unwrap(), None);
            assert_eq!(fields.integer("a", 1..=2).unwrap(), None);
            assert_eq!(fields.texts("a", 2).unwrap(), None);
            assert!(fields.object("a").unwrap().is_none());
        }
    }

    #[test]
    fn errors_name_the_field_and_its_rule() {
        let fields = settings(r#"{"a":7,"b":0,"c":["x",""],"d":"x"}"#);
        assert_eq!(message(fields.text("a").unwrap_err()), "parameters.a must be a string");
        assert_eq!(
            message(fields.integer("b", 1..=50).unwrap_err()),
            "parameters.b must be a whole number from 1 to 50"
        );
        assert_eq!(
            message(fields.texts("c", 9).unwrap_err()),
            "parameters.c must be a list of at most 9 strings"
        );
        assert_eq!(message(fields.object("d").unwrap_err()), "parameters.d must be an object");
        let fields = Fields::arguments(br#"{"u":" "}"#).unwrap();
        assert_eq!(message(fields.required_text("u").unwrap_err()), "u must be a string that is not empty");
        assert!(Fields::arguments(b"[]").is_err() && Fields::settings(b"nonsense").is_err());
    }

    #[test]
    fn whole_numbers_may_be_written_with_a_point() {
        let fields = settings(r#"{"a":3.0,"b":3.5,"c":-1,"d":1e300,"e":"3"}"#);
        assert_eq!(fields.integer("a", 1..=5).unwrap(), Some(3));
        for name in ["b", "c", "d", "e"] {
            assert!(fields.integer(name, 0..=u32::MAX).is_err(), "{name}");
        }
    }
}
