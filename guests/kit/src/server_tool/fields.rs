//! The JSON that a tool reads: settings, arguments and configuration.

use crate::bindings::tools::ToolError;

/// An object whose fields are read one by one.
pub type Fields = crate::fields::Fields<ToolError>;

impl Fields {
    /// Reads the `parameters` of a request's tool entry. Absent parameters (no bytes, or `null`)
    /// are an empty object.
    ///
    /// # Errors
    ///
    /// Invalid settings, when the bytes are not a JSON object.
    pub fn settings(json: &[u8]) -> Result<Self, ToolError> {
        Self::read(json, "parameters.".to_owned(), ToolError::InvalidSettings)
            .ok_or_else(|| ToolError::InvalidSettings("parameters must be an object".to_owned()))
    }

    /// Reads the arguments of a call. No bytes mean no arguments: some models send nothing.
    ///
    /// # Errors
    ///
    /// Invalid arguments, when the bytes are not a JSON object.
    pub fn arguments(json: &[u8]) -> Result<Self, ToolError> {
        Self::read(json, String::new(), ToolError::InvalidArguments)
            .ok_or_else(|| ToolError::InvalidArguments("the arguments must be a JSON object".to_owned()))
    }

    /// Reads the operator's configuration of the plugin. An error in it is not the client's fault, so
    /// it makes the call fail instead of refusing the request.
    ///
    /// # Errors
    ///
    /// When the bytes are not a JSON object.
    pub fn configuration(json: &[u8]) -> Result<Self, ToolError> {
        Self::read(json, "config.".to_owned(), ToolError::Failed)
            .ok_or_else(|| ToolError::Failed("config must be a table".to_owned()))
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
