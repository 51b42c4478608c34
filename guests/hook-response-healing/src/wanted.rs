//! What kind of JSON the client asked for.

use serde::Deserialize;
use serde_json::{Value, from_slice};

/// What the outermost value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Object,
    Array,
    /// The schema does not say, or says both.
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
    /// What `request` asks for; `None` when that is text, or JSON that has no
    /// brackets to recognize it by.
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
}

/// Whether the request's plugin entry switches the hook off.
pub(crate) fn is_disabled(settings: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Settings {
        enabled: Option<bool>,
    }
    from_slice::<Settings>(settings).is_ok_and(|settings| settings.enabled == Some(false))
}
