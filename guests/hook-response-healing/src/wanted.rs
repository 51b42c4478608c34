//! The kind of JSON that the client asked for.

use serde::Deserialize;
use serde_json::{Value, from_slice};

/// The allowed kinds of the outermost value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Object,
    Array,
    /// The schema states neither, or both.
    Either,
}

#[derive(Deserialize)]
struct Request {
    text: Option<Text>,
}

#[derive(Deserialize)]
struct Text {
    format: Option<Format>,
}

#[derive(Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    schema: Option<Value>,
}

impl Wanted {
    /// The kind that `request` asks for. `None` when it asks for text, or for JSON without brackets
    /// that it could be recognized by.
    pub(crate) fn by(request: &[u8]) -> Option<Self> {
        let format = from_slice::<Request>(request).ok()?.text?.format?;
        match (format.kind.as_str(), format.schema) {
            ("json_object", _) => Some(Self::Object),
            ("json_schema", schema) => {
                match schema.as_ref().and_then(|schema| schema.get("type")?.as_str()) {
                    Some("object") => Some(Self::Object),
                    Some("array") => Some(Self::Array),
                    Some(_) => None,
                    None => Some(Self::Either),
                }
            }
            _ => None,
        }
    }

    /// Whether a value of this kind can begin with `character`.
    pub(crate) fn begins_with(self, character: char) -> bool {
        match character {
            '{' => self != Self::Array,
            '[' => self != Self::Object,
            _ => false,
        }
    }

    /// Whether a value of this kind can end with `character`.
    pub(crate) fn ends_with(self, character: char) -> bool {
        match character {
            '}' => self != Self::Array,
            ']' => self != Self::Object,
            _ => false,
        }
    }
}

/// Whether the request's plugin entry disables the hook.
pub(crate) fn is_disabled(settings: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Settings {
        enabled: Option<bool>,
    }
    from_slice::<Settings>(settings).is_ok_and(|settings| settings.enabled == Some(false))
}
