//! The server tool `tool_search`: finds functions whose loading the client
//! deferred (`defer_loading`) and offers them to the model from the next turn on.

mod deferred;
mod query;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::deferred_tools;
use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{Fields, SingleFunction, schema};
use serde_json::json;

use deferred::Deferred;
use query::Query;

/// The default and the limit of `parameters.max_results`.
const RESULTS_DEFAULT: u32 = 5;
const RESULTS_MAX: u32 = 50;
/// The longest description in a result, in characters. The loaded tool has the whole description.
const RENDERED_CHARS_MAX: usize = 200;

struct ToolSearch;

cofferdam_guest_kit::export!(tool: ToolSearch);

impl SingleFunction for ToolSearch {
    const NAME: &'static str = "tool_search";
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
                "description": "Words to look for in names and descriptions, such as \"weather forecast\", \
                    or a regular expression of at most 200 characters, such as \"^github_.*issue\"."
            }
        });
        Ok(Function::new(
            Self::NAME,
            "Searches further functions that are not shown yet. The ones found can be called from the \
                next turn on. Search before you say that you cannot do something.",
            schema(properties, &["query"]),
        ))
    }

    fn call(arguments: &[u8], results_max: &usize, _: &CallContext) -> Result<Output, ToolError> {
        let arguments = Fields::arguments(arguments)?;
        let query = arguments.required_text("query")?;
        let found = search(query, &deferred_tools::all(), *results_max)?;
        if !found.is_empty() {
            let names: Vec<_> = found.iter().map(|tool| tool.name.clone()).collect();
            deferred_tools::load(&names);
        }
        Ok(output(query, &found))
    }
}

/// The best matches among the deferred tools (a JSON array), best first. Equal matches keep the
/// client's order.
fn search(query: &str, deferred: &[u8], results_max: usize) -> Result<Vec<Deferred>, ToolError> {
    let query = Query::parse(query).map_err(ToolError::InvalidArguments)?;
    let mut scored: Vec<_> = deferred::read(deferred)
        .into_iter()
        .map(|tool| (query.score(&tool), tool))
        .filter(|(score, _)| *score > 0)
        .collect();
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    Ok(scored.into_iter().take(results_max).map(|(_, tool)| tool).collect())
}

fn output(query: &str, found: &[Deferred]) -> Output {
    let names: Vec<_> = found.iter().map(|tool| tool.name.as_str()).collect();
    let matches: Vec<_> = found
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": cofferdam_guest_kit::server_tool::clip(&tool.description, RENDERED_CHARS_MAX).text,
            })
        })
        .collect();
    let for_model = if found.is_empty() {
        json!({ "matches": matches, "note": "Nothing matches. Try fewer or other words." })
    } else {
        json!({ "matches": matches, "note": "These functions can be called from the next turn on." })
    };
    Output::new(for_model.to_string(), json!({ "query": query, "matches": names }))
}
