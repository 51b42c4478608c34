//! Chooses the model that generates the image.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::Fields;
use serde_json::Value;

use crate::settings::Settings;

/// The ability of endpoints that generate images.
const ABILITY: &str = "image_output";

/// The model that the client names, otherwise the one in the operator's `config`, otherwise the first
/// model of the `catalog` that generates images. A tool entry of the client's own type may name a
/// model of the client's usual provider: such a name counts if a model of the catalog has it after
/// its vendor prefix, and is ignored otherwise.
///
/// # Errors
///
/// When there is no such model, or a named model is unknown.
pub(crate) fn model(
    settings: &Settings,
    fields: &Fields,
    config: &[u8],
    catalog: &[u8],
) -> Result<String, ToolError> {
    let config: Value = serde_json::from_slice(config).unwrap_or_default();
    let models: Vec<Value> = serde_json::from_slice(catalog).unwrap_or_default();
    let id = |model: &Value| model["id"].as_str().map(str::to_owned);
    if let Some(named) = settings.model.as_deref() {
        let is_it = |model: &&Value| {
            let id = model["id"].as_str().unwrap_or_default();
            id == named || settings.is_clients && id.split_once('/').is_some_and(|(_, name)| name == named)
        };
        match models.iter().find(is_it).and_then(id) {
            Some(found) => return Ok(found),
            None if settings.is_clients => {}
            None => return Err(fields.wrong("model", "names no model of this host")),
        }
    }
    if let Some(configured) = config.get("model").and_then(Value::as_str) {
        return Ok(configured.to_owned());
    }
    let makes = |endpoint: &Value| {
        endpoint["supports"]
            .as_array()
            .is_some_and(|supports| supports.iter().any(|ability| ability == ABILITY))
    };
    let able =
        models.iter().find(|model| model["endpoints"].as_array().is_some_and(|all| all.iter().any(makes)));
    able.and_then(id).ok_or_else(|| {
        fields.wrong(
            "model",
            "is needed: no model of this host says that it makes images (supports = [\"image_output\"])",
        )
    })
}
