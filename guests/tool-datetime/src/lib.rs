//! The server tool `datetime`: the date and time in a time zone.
//!
//! It is the worked example of a tool: one function, one setting, one import. The time zone
//! database is compiled in, because a guest cannot read files.

mod moment;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::clock;
use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{Fields, SingleFunction, schema};
use serde_json::{Value, json};

use moment::Moment;

struct DateTime;

cofferdam_guest_kit::export!(tool: DateTime);

impl SingleFunction for DateTime {
    const NAME: &'static str = "datetime";
    /// The zone for calls that name none.
    type Settings = String;

    fn settings(fields: &Fields) -> Result<String, ToolError> {
        let zone = fields.text("timezone")?.unwrap_or("UTC");
        moment::canonical_name(zone).ok_or_else(|| fields.wrong("timezone", "is not a known IANA time zone"))
    }

    fn function(default: &String, _: &CallContext) -> Result<Function, ToolError> {
        let properties = json!({
            "timezone": {
                "type": "string",
                "description": format!("IANA time zone such as Europe/Berlin; {default} when left out")
            }
        });
        Ok(Function::new(
            Self::NAME,
            "Tells the current date and time, day of the week and offset from UTC in a time zone.",
            schema(properties, &[]),
        ))
    }

    fn call(arguments: &[u8], default: &String, _: &CallContext) -> Result<Output, ToolError> {
        render(clock::now_ms(), &Fields::arguments(arguments)?, default)
    }
}

fn render(now_ms: u64, arguments: &Fields, default: &str) -> Result<Output, ToolError> {
    // Some models send an empty name.
    let asked = arguments.text("timezone")?.filter(|zone| !zone.trim().is_empty());
    let moment = Moment::new(now_ms, asked.unwrap_or(default)).ok_or_else(|| {
        arguments.wrong("timezone", "is not a known IANA time zone; an example is Europe/Berlin")
    })?;
    let item = json!({ "datetime": moment.datetime, "timezone": moment.timezone });
    let mut answer = item.clone();
    if let Value::Object(fields) = &mut answer {
        fields.insert("weekday".to_owned(), Value::from(moment.weekday));
    }
    Ok(Output::new(answer.to_string(), item))
}
