//! The server tool `experimental__search_models`: searches the models of this host by words,
//! abilities, context length and price.

mod model;
mod search;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::catalog;
use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{Fields, SingleFunction, clip, schema};
use serde_json::json;

use search::Search;

/// The default and the limit of `parameters.max_results`.
const RESULTS_DEFAULT: u32 = 5;
const RESULTS_MAX: u32 = 20;
/// The longest query that the item repeats, in characters.
const QUERY_CHARS_MAX: usize = 1_000;
/// The longest arguments that the item repeats, in bytes.
const ARGUMENTS_BYTES_MAX: usize = 4 * 1024;

struct SearchModels;

cofferdam_guest_kit::export!(tool: SearchModels);

impl SingleFunction for SearchModels {
    const NAME: &'static str = "search_models";
    /// The largest number of results.
    type Settings = usize;

    fn settings(fields: &Fields) -> Result<usize, ToolError> {
        let results = fields.integer("max_results", 1..=RESULTS_MAX)?;
        Ok(results.unwrap_or(RESULTS_DEFAULT) as usize)
    }

    fn function(_: &usize, _: &CallContext) -> Result<Function, ToolError> {
        let properties = json!({
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
        });
        Ok(Function::new(
            Self::NAME,
            "Searches the models that this service offers, with context length, abilities and prices \
                in dollars per million tokens.",
            schema(properties, &[]),
        ))
    }

    fn call(arguments: &[u8], results_max: &usize, _: &CallContext) -> Result<Output, ToolError> {
        render(arguments, &catalog::models(), *results_max)
    }
}

/// Searches `models`, a JSON array of model objects.
fn render(arguments: &[u8], models: &[u8], results_max: usize) -> Result<Output, ToolError> {
    let search = Search::read(&Fields::arguments(arguments)?)?;
    let models = model::read(models);
    let found = search.run(&models);
    let rendered: Vec<_> = found.iter().take(results_max).map(|model| model.rendered()).collect();
    let for_model = json!({
        "models": rendered,
        "found": found.len(),
        "offered": models.len(),
        "prices": "dollars per million tokens",
    });
    let arguments = std::str::from_utf8(arguments).unwrap_or_default();
    let arguments = if arguments.len() > ARGUMENTS_BYTES_MAX { "" } else { arguments };
    let query = clip(&search.query, QUERY_CHARS_MAX).text;
    Ok(Output::new(for_model.to_string(), json!({ "query": query, "arguments": arguments })))
}
