//! The server tool `mcp`: remote servers of the Model Context Protocol (MCP) over streamable HTTP.
//! Each tool of a server becomes a function for the model.
//!
//! [`settings`] reads the client's entry; [`session`] speaks the protocol on top of [`rpc`];
//! [`listing`] is the list of a server's [`tool`]s, kept for the request; [`names`] makes the names of
//! the functions; [`content`] renders results as text.

mod content;
mod listing;
mod names;
mod rpc;
mod session;
mod settings;
mod sse;
mod tool;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::log::{self, Level};
use cofferdam_guest_kit::bindings::scratch;
use cofferdam_guest_kit::bindings::tools::{Function, Guest, Output, ToolError};
use cofferdam_guest_kit::bindings::types::{CallContext, Json};
use cofferdam_guest_kit::server_tool::{Streaming, Wire, unknown_function};
use serde_json::{Map, Value, json};

use listing::Listing;
use rpc::Trouble;
use session::Session;
use settings::Settings;

/// The function for the item `mcp_list_tools`; the manifest names it.
const LIST_TOOLS: &str = "list_tools";
/// The function that the host calls at the end of the request; the manifest names it.
const END_SESSION: &str = "end_session";

struct Mcp;

cofferdam_guest_kit::export!(tool: Mcp);

impl Guest for Mcp {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        let settings = Settings::read(&settings)?;
        let listing = listed(&settings, &mut Wire)?;
        if let Some(line) = &listing.left_out {
            log::write(Level::Info, line);
        }
        keep(&settings, &listing)?;
        Ok(listing.functions(&settings))
    }

    fn invoke(
        function: String,
        arguments: Json,
        settings: Json,
        _: CallContext,
    ) -> Result<Output, ToolError> {
        let settings = Settings::read(&settings)?;
        let kept = scratch::get(&settings.key()).and_then(|json| Listing::read(&json));
        if function == END_SESSION {
            let session = kept.map(|listing| listing.session).unwrap_or_default();
            session.end(&settings, &mut Wire);
            return Ok(Output::new("", json!({})));
        }
        let listing =
            kept.ok_or_else(|| ToolError::Failed("The tools of the server are not known.".to_owned()))?;
        if function == LIST_TOOLS {
            return Ok(Output::new("", listing.item(&settings)));
        }
        let Some(tool) = listing.tool(&settings, &function).map(|tool| tool.name.clone()) else {
            return Err(unknown_function(&function));
        };
        let keep = |listing: &Listing| keep(&settings, listing);
        call_and_keep(&tool, &arguments, &settings, listing, &mut Wire, keep)
    }
}

/// Asks the server for its tools. A failure of the server does not fail the request: the model
/// continues without the tools, and the client gets the error in the item.
///
/// # Errors
///
/// When the request asks for a server or a secret that it may not use.
fn listed(settings: &Settings, network: &mut impl Streaming) -> Result<Listing, ToolError> {
    match session::list(settings, network) {
        Ok((session, listed)) => {
            let left_out = listed.left_out(settings);
            Ok(Listing { session, tools: listed.tools, error: None, left_out })
        }
        Err(Trouble::Request { field, problem }) => Err(settings::wrong(field, problem)),
        Err(Trouble::Server(fault)) => Ok(Listing { error: Some(fault.words), ..Listing::default() }),
    }
}

fn keep(settings: &Settings, listing: &Listing) -> Result<(), ToolError> {
    scratch::set(&settings.key(), &listing.write()).map_err(|_| {
        settings::wrong(
            "server_label",
            "has more tools, together with the other servers, than fit into 1 MiB",
        )
    })
}

/// Calls a tool of the server, and keeps the session that the server may have started meanwhile.
///
/// # Errors
///
/// Those of [`call`] and `keep`.
fn call_and_keep(
    tool: &str,
    arguments: &[u8],
    settings: &Settings,
    mut listing: Listing,
    network: &mut impl Streaming,
    keep: impl FnOnce(&Listing) -> Result<(), ToolError>,
) -> Result<Output, ToolError> {
    let before = listing.session.clone();
    let called = call(tool, arguments, settings, &mut listing.session, network);
    // Other calls run at the same time. One of them may have kept a newer session than `before`.
    if listing.session != before {
        keep(&listing)?;
    }
    called
}

/// Calls a tool of the server. Errors of the server are passed on to the model and the client.
///
/// # Errors
///
/// When the arguments are not a JSON object, or the host refuses the request.
fn call(
    tool: &str,
    arguments: &[u8],
    settings: &Settings,
    session: &mut Session,
    network: &mut impl Streaming,
) -> Result<Output, ToolError> {
    let arguments: Map<String, Value> = serde_json::from_slice(arguments)
        .map_err(|_| ToolError::InvalidArguments("the arguments must be a JSON object".to_owned()))?;
    let result = match session.call(tool, arguments, settings, network) {
        Ok(result) => result,
        Err(Trouble::Request { field, problem }) => {
            return Err(ToolError::Failed(format!("{field} {problem}")));
        }
        Err(Trouble::Server(fault)) => return Ok(failed(fault.json(), fault.words)),
    };
    let text = content::text(&result);
    if result.get("isError").and_then(Value::as_bool) == Some(true) {
        let for_model =
            if text.is_empty() { "The tool failed and does not say why.".to_owned() } else { text };
        let error =
            json!({ "type": "mcp_tool_execution_error", "content": [{ "type": "text", "text": for_model }] });
        return Ok(failed(error, format!("The tool reports an error:\n{for_model}")));
    }
    let for_model = if text.is_empty() { "(no output)".to_owned() } else { text.clone() };
    Ok(Output::new(for_model, json!({ "output": text, "error": null })))
}

/// The output of a failed call, with the error for its item.
fn failed(error: Value, for_model: String) -> Output {
    Output::new(for_model, json!({ "error": error, "output": null }))
}
