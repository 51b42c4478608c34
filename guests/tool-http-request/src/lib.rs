//! The server tool `http_request`: sends a request to an API that the operator granted. The host
//! checks the destination and adds credentials. This guest names secrets and never sees their
//! values.

mod answer;
mod credentials;
mod draft;
mod header_name;
mod headers;
mod offer;
mod settings;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{Fields, Network, SingleFunction, Wire, sentence};

use draft::Draft;
use settings::Settings;

struct HttpRequest;

cofferdam_guest_kit::export!(tool: HttpRequest);

impl SingleFunction for HttpRequest {
    const NAME: &'static str = offer::NAME;
    type Settings = Settings;

    fn settings(fields: &Fields) -> Result<Settings, ToolError> {
        Settings::read(fields)
    }

    fn function(settings: &Settings, _: &CallContext) -> Result<Function, ToolError> {
        Ok(offer::function(settings))
    }

    fn call(arguments: &[u8], settings: &Settings, _: &CallContext) -> Result<Output, ToolError> {
        run(arguments, settings, &mut Wire)
    }
}

fn run(arguments: &[u8], settings: &Settings, network: &mut impl Network) -> Result<Output, ToolError> {
    let draft = Draft::read(&Fields::arguments(arguments)?, settings)?;
    let response =
        network.send(&draft.request).map_err(|error| ToolError::Failed(sentence(error).to_owned()))?;
    Ok(answer::output(&draft, &response, settings))
}
