//! The server tool `tool_search`: finds functions whose loading the client
//! deferred (`defer_loading`) and offers them to the model from the next turn on.

mod deferred;
mod query;

#[cfg(test)]
mod tests;

use cofferdam_toolbox::Fields;
use cofferdam_toolbox::bindings::cofferdam::plugin::deferred_tools;
use cofferdam_toolbox::bindings::cofferdam::plugin::types::{CallContext, Json};
use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use serde_json::json;

use deferred::Deferred;
use query::Query;

/// The only function, named like the tool.
const NAME: &str = "tool_search";
/// The default and the limit of `parameters.max_results`.
const RESULTS_DEFAULT: u32 = 5;
const RESULTS_MAX: u32 = 50;
/// The longest description in a result, in characters. The loaded tool has the whole description.
const TOLD_CHARS_MAX: usize = 200;

struct ToolSearch;

cofferdam_toolbox::export_tool!(ToolSearch);

impl Guest for ToolSearch {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        results_max(&settings)?;
        let parameters = json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Words to look for in names and descriptions, such as \"weather forecast\", \
                        or a regular expression of at most 200 characters, such as \"^github_.*issue\"."
                }
            },
            "required": ["query"],
            "additionalProperties": false
        });
        Ok(vec![Function {
            name: NAME.to_owned(),
            description:
                "Searches further functions that are not shown yet. The ones found can be called from the \
                next turn on. Search before you say that you cannot do something."
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
        let arguments = Fields::arguments(&arguments)?;
        let query = arguments.required_text("query")?;
        let found = search(query, &deferred_tools::all(), results_max)?;
        if !found.is_empty() {
            let names: Vec<_> = found.iter().map(|tool| tool.name.clone()).collect();
            deferred_tools::load(&names);
        }
        Ok(output(query, &found))
    }
}

/// The number of results: `parameters.max_results` or the default.
fn results_max(settings: &[u8]) -> Result<usize, ToolError> {
    let settings = Fields::settings(settings)?;
    let results = settings.integer("max_results", 1..=RESULTS_MAX)?;
    Ok(results.unwrap_or(RESULTS_DEFAULT) as usize)
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
    let told: Vec<_> = found
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": cofferdam_toolbox::clip(&tool.description, TOLD_CHARS_MAX).text,
            })
        })
        .collect();
    let for_model = if found.is_empty() {
        json!({ "matches": told, "note": "Nothing matches. Try fewer or other words." })
    } else {
        json!({ "matches": told, "note": "These functions can be called from the next turn on." })
    };
    Output {
        for_model: for_model.to_string(),
        item: json!({ "query": query, "matches": names }).to_string().into_bytes(),
        annotations: Vec::new(),
        cost_pico: 0,
    }
}
