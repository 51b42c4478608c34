//! The server tool `experimental__search_models`: searches the models of this host by words,
//! abilities, context length and price.

mod model;
mod search;

#[cfg(test)]
mod tests;

use cofferdam_toolbox::bindings::cofferdam::plugin::catalog;
use cofferdam_toolbox::bindings::cofferdam::plugin::types::{CallContext, Json};
use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use cofferdam_toolbox::{Fields, clip};
use serde_json::json;

use search::Search;

/// The only function.
const NAME: &str = "search_models";
/// The default and the limit of `parameters.max_results`.
const RESULTS_DEFAULT: u32 = 5;
const RESULTS_MAX: u32 = 20;
/// The longest query that the item repeats, in characters.
const QUERY_CHARS_MAX: usize = 1_000;
/// The longest arguments that the item repeats, in bytes.
const ARGUMENTS_BYTES_MAX: usize = 4 * 1024;

struct SearchModels;

cofferdam_toolbox::export_tool!(SearchModels);

impl Guest for SearchModels {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        results_max(&settings)?;
        let parameters = json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Words to look for in id, name, description, provider and abilities, \
                        such as \"claude\" or \"embeddings\". Leave it out to look by the other fields alone."
                },
                "supports": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Abilities that one endpoint of the model must have all, such as \"tools\" or \"images\"."
                },
                "min_context_length": {
                    "type": "integer",
                    "description": "Least tokens of input and output together."
                },
                "max_input_price": {
                    "type": "number",
                    "description": "Most dollars per million tokens of input."
                },
                "max_output_price": {
                    "type": "number",
                    "description": "Most dollars per million tokens of output."
                },
                "sort": {
                    "type": "string",
                    "enum": ["relevance", "price", "context_length"],
                    "description": "Best match (default), cheapest, or longest context first."
                }
            },
            "additionalProperties": false
        });
        Ok(vec![Function {
            name: NAME.to_owned(),
            description:
                "Searches the models that this service offers, with context length, abilities and prices \
                in dollars per million tokens."
                    .to_owned(),
            parameters: parameters.to_string().into_bytes(),
        }])
    }

    fn invoke(
        function: String,
        arguments: Json,
        settings: Json,
        _: CallContext,
    ) -> Result<Output, ToolError> {
        let results_max = results_max(&settings)?;
        if function != NAME {
            return Err(ToolError::InvalidArguments(format!("there is no function {function}")));
        }
        tell(&arguments, &catalog::models(), results_max)
    }
}

/// The number of results: `parameters.max_results` or the default.
fn results_max(settings: &[u8]) -> Result<usize, ToolError> {
    let settings = Fields::settings(settings)?;
    let results = settings.integer("max_results", 1..=RESULTS_MAX)?;
    Ok(results.unwrap_or(RESULTS_DEFAULT) as usize)
}

/// Searches `models`, a JSON array of model objects.
fn tell(arguments: &[u8], models: &[u8], results_max: usize) -> Result<Output, ToolError> {
    let search = Search::read(&Fields::arguments(arguments)?)?;
    let models = model::read(models);
    let found = search.run(&models);
    let told: Vec<_> = found.iter().take(results_max).map(|model| model.told()).collect();
    let for_model = json!({
        "models": told,
        "found": found.len(),
        "offered": models.len(),
        "prices": "dollars per million tokens",
    });
    let arguments = std::str::from_utf8(arguments).unwrap_or_default();
    let arguments = if arguments.len() > ARGUMENTS_BYTES_MAX { "" } else { arguments };
    let query = clip(&search.query, QUERY_CHARS_MAX).text;
    Ok(Output {
        for_model: for_model.to_string(),
        item: json!({ "query": query, "arguments": arguments }).to_string().into_bytes(),
        annotations: Vec::new(),
        cost_pico: 0,
    })
}
