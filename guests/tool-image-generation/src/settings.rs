//! The client's settings for its images.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::Fields;
use serde_json::{Map, Value};

/// Settings that do not describe the image itself.
const OWN: [&str; 6] = ["type", "model", "action", "input_image_mask", "input_fidelity", "partial_images"];
/// The largest number of settings for one image.
const IMAGE_SETTINGS_MAX: usize = 32;

/// Validated settings of a tool entry.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The model that the client names.
    pub(crate) model: Option<String>,
    /// The settings that are sent as `image_config`.
    pub(crate) image: Map<String, Value>,
    /// Whether the entry has the client's own tool type. Its calls are then shown with that type.
    pub(crate) is_clients: bool,
}

impl Settings {
    /// # Errors
    ///
    /// When a setting has the wrong type, or asks for something that is not available.
    pub(crate) fn read(fields: &Fields) -> Result<Self, ToolError> {
        let is_clients = fields.value("type").is_some();
        if fields.value("input_image_mask").is_some() {
            return Err(fields
                .wrong("input_image_mask", "is not available on this host: pictures are made, not edited"));
        }
        if fields.text("action")?.is_some_and(|action| action == "edit") {
            return Err(
                fields.wrong("action", "edit is not available on this host: pictures are made, not edited")
            );
        }
        let mut image = Map::new();
        for (name, value) in fields.members().filter(|(name, value)| !OWN.contains(name) && !value.is_null())
        {
            if !matches!(value, Value::String(_) | Value::Number(_) | Value::Array(_)) {
                return Err(fields.wrong(name, "must be a string, a number or an array"));
            }
            image.insert(name.to_owned(), value.clone());
        }
        if image.len() > IMAGE_SETTINGS_MAX {
            let takes = format!("has more settings than {IMAGE_SETTINGS_MAX}");
            return Err(fields.wrong("size", &takes));
        }
        Ok(Self { model: fields.text("model")?.map(str::to_owned), image, is_clients })
    }
}
