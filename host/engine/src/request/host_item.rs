//! Items that this host writes for models.

use bytes::Bytes;
use cofferdam_protocol::write_value;
use serde::Serialize;

/// An item that this host writes for models. Its JSON has the members in the order of the fields.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum HostItem<'a> {
    FunctionCall { call_id: &'a str, name: &'a str, arguments: &'a str },
    FunctionCallOutput { call_id: &'a str, output: &'a str },
    Message { role: &'a str, content: [TextPart<'a>; 1] },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum TextPart<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
}

impl<'a> HostItem<'a> {
    /// A message with one text part.
    pub(crate) fn message(role: &'a str, text: &'a str) -> Self {
        let part = match role {
            "assistant" => TextPart::OutputText { text },
            _ => TextPart::InputText { text },
        };
        Self::Message { role, content: [part] }
    }

    /// Appends the JSON.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_value(self, out);
    }

    pub(crate) fn to_json(&self) -> Bytes {
        let mut out = Vec::with_capacity(256);
        self.write(&mut out);
        Bytes::from(out)
    }
}
