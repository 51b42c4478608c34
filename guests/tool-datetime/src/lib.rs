//! The server tool `datetime`: the date and time in a time zone.
//!
//! It is the worked example of a tool: one function, one setting, one import. The time zone
//! database is compiled in, because a guest cannot read files.

mod moment;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::clock;
use cofferdam_guest_kit::bindings::tools::{Function, Guest, Output, ToolError};
use cofferdam_guest_kit::bindings::types::{CallContext, Json};
use cofferdam_guest_kit::tool::{schema, unknown_function};
use serde::Deserialize;
use serde_json::{Value, json};

use moment::Moment;

/// The only function, named like the tool.
const NAME: &str = "datetime";

struct DateTime;

cofferdam_guest_kit::export!(tool: DateTime);

/// The client's settings and the model's arguments, which have the same field.
#[derive(Deserialize)]
struct Zone {
    timezone: Option<String>,
}

impl Guest for DateTime {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        let default = default_zone(&settings)?;
        let properties = json!({
            "timezone": {
                "type": "string",
                "description": format!("IANA time zone such as Europe/Berlin; {default} when left out")
            }
        });
        Ok(vec![Function::new(
            NAME,
            "Tells the current date and time, day of the week and offset from UTC in a time zone.",
            schema(properties, &[]),
        )])
    }

    fn invoke(
        function: String,
        arguments: Json,
        settings: Json,
        _: CallContext,
    ) -> Result<Output, ToolError> {
        let default = default_zone(&settings)?;
        if function != NAME {
            return Err(unknown_function(&function));
        }
        tell(clock::now_ms(), &arguments, default)
    }
}

/// The zone that the client chose as the default.
fn default_zone(settings: &[u8]) -> Result<String, ToolError> {
    let invalid = |message: &str| ToolError::InvalidSettings(message.to_owned());
    let zone = read(settings).map_err(|()| invalid("parameters.timezone must be a string"))?;
    match moment::canonical_name(&zone) {
        Some(name) => Ok(name),
        None => Err(invalid("parameters.timezone is not a known IANA time zone")),
    }
}

fn tell(now_ms: u64, arguments: &[u8], default: String) -> Result<Output, ToolError> {
    let invalid = |message: &str| ToolError::InvalidArguments(message.to_owned());
    // Some models send no arguments at all, or an empty name.
    let asked = match arguments.trim_ascii() {
        b"" => default,
        arguments => match serde_json::from_slice::<Zone>(arguments) {
            Ok(Zone { timezone: Some(zone) }) if !zone.trim().is_empty() => zone,
            Ok(_) => default,
            Err(_) => return Err(invalid("timezone must be a string")),
        },
    };
    let moment = Moment::new(now_ms, &asked)
        .ok_or_else(|| invalid("timezone is not a known IANA time zone; an example is Europe/Berlin"))?;
    let item = json!({ "datetime": moment.datetime, "timezone": moment.timezone });
    let mut answer = item.clone();
    if let Value::Object(fields) = &mut answer {
        fields.insert("weekday".to_owned(), Value::String(moment.weekday.to_owned()));
    }
    Ok(Output::new(answer.to_string(), item))
}

/// The zone in the settings; UTC when they have none.
fn read(settings: &[u8]) -> Result<String, ()> {
    let settings = settings.trim_ascii();
    if matches!(settings, b"" | b"null") {
        return Ok("UTC".to_owned());
    }
    let zone: Zone = serde_json::from_slice(settings).map_err(|_| ())?;
    Ok(zone.timezone.unwrap_or_else(|| "UTC".to_owned()))
}
