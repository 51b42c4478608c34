//! The client's settings: `parameters` of the tool entry.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::{Fields, Manner};

use crate::preset;

/// The tool's type, and the name of its only function.
pub(crate) const TYPE: &str = "fusion";
/// The largest number of models in a panel.
const MODELS_MAX: usize = 8;
/// The default and the limit for the number of calls of the panel's own tools.
const CALLS_DEFAULT: u32 = 4;
const CALLS_MAX: u32 = 16;

/// Validated settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The models of the panel: at least one, without duplicates.
    pub(crate) panel: Vec<String>,
    /// The settings of the questions; `model` is the judge.
    pub(crate) manner: Manner,
}

impl Settings {
    /// Reads the settings. `config` is the operator's configuration, `catalog` the models of this host;
    /// both are JSON.
    ///
    /// # Errors
    ///
    /// When a field is wrong; the message names it.
    pub(crate) fn read(fields: &Fields, config: &[u8], catalog: &[u8]) -> Result<Self, ToolError> {
        let chosen = fields.text("preset")?.map(|preset| named(fields, preset)).transpose()?;
        let panel = match fields.texts("analysis_models", MODELS_MAX)? {
            Some(models) if models.is_empty() => {
                return Err(
                    fields.wrong("analysis_models", &format!("must be a list of 1 to {MODELS_MAX} models"))
                );
            }
            Some(models) => models.into_iter().map(str::to_owned).collect(),
            None => preset::models(chosen.unwrap_or(preset::DEFAULT), config, catalog, MODELS_MAX),
        };
        let panel = once(panel);
        if panel.is_empty() {
            return Err(
                fields.wrong("analysis_models", "is required: this host serves no model to choose from")
            );
        }
        Ok(Self { panel, manner: Manner::read(fields, TYPE, CALLS_DEFAULT, CALLS_MAX)? })
    }
}

fn named(fields: &Fields, preset: &str) -> Result<&'static str, ToolError> {
    let known = preset::ALL.into_iter().find(|known| *known == preset);
    known.ok_or_else(|| fields.wrong("preset", &format!("must be one of {}", preset::ALL.join(", "))))
}

/// Removes duplicates: the same model twice is no second opinion.
fn once(models: Vec<String>) -> Vec<String> {
    let mut panel: Vec<String> = Vec::with_capacity(models.len());
    for model in models {
        if !panel.contains(&model) {
            panel.push(model);
        }
    }
    panel
}
