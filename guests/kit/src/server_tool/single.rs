//! Tools that offer one function, and the schema of a function.

use serde_json::{Map, Value};

use super::fields::Fields;
use crate::bindings::tools::{Function, Guest, Output, ToolError};
use crate::bindings::types::{CallContext, Json};

/// A tool that offers one function.
pub trait SingleFunction {
    /// The name of the function.
    const NAME: &'static str;
    /// The client's settings, validated.
    type Settings;

    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// When a setting is wrong; the message names it.
    fn settings(fields: &Fields) -> Result<Self::Settings, ToolError>;

    /// The name of the function for these settings.
    fn name(_settings: &Self::Settings) -> &str {
        Self::NAME
    }

    /// The function that the model sees. The same settings give the same bytes.
    ///
    /// # Errors
    ///
    /// When the function cannot be offered with these settings.
    fn function(settings: &Self::Settings, context: &CallContext) -> Result<Function, ToolError>;

    /// Executes one call.
    ///
    /// # Errors
    ///
    /// When the arguments are wrong, or the call fails.
    fn call(arguments: &[u8], settings: &Self::Settings, context: &CallContext) -> Result<Output, ToolError>;
}

impl<T: SingleFunction> Guest for T {
    fn functions(settings: Json, context: CallContext) -> Result<Vec<Function>, ToolError> {
        let settings = T::settings(&Fields::settings(&settings)?)?;
        Ok(vec![T::function(&settings, &context)?])
    }

    fn invoke(
        function: String,
        arguments: Json,
        settings: Json,
        context: CallContext,
    ) -> Result<Output, ToolError> {
        let settings = T::settings(&Fields::settings(&settings)?)?;
        if function != T::name(&settings) {
            return Err(unknown_function(&function));
        }
        T::call(&arguments, &settings, &context)
    }
}

/// The error for a call of a function that the tool does not have.
#[must_use]
pub fn unknown_function(name: &str) -> ToolError {
    ToolError::InvalidArguments(format!("there is no function {name}"))
}

/// A JSON Schema for arguments with these members and no others.
#[must_use]
pub fn schema(properties: impl Into<Value>, required: &[&str]) -> Map<String, Value> {
    let mut schema = Map::from_iter([
        ("type".to_owned(), Value::from("object")),
        ("properties".to_owned(), properties.into()),
    ]);
    if !required.is_empty() {
        schema.insert("required".to_owned(), Value::from(required));
    }
    schema.insert("additionalProperties".to_owned(), Value::from(false));
    schema
}
