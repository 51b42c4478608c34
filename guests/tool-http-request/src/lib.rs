//! The server tool `http_request`: sends a request to an API that the operator granted. The host
//! checks the destination and adds credentials. This guest names secrets and never sees their
//! values.

mod answer;
mod credentials;
mod draft;
mod headers;
mod offer;
mod settings;

#[cfg(test)]
mod tests;

use cofferdam_toolbox::bindings::cofferdam::plugin::types::{CallContext, Json};
use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use cofferdam_toolbox::{Fields, Network, Wire, sentence};

use draft::Draft;
use settings::Settings;

/// The only function, named like the tool.
const NAME: &str = "http_request";

struct HttpRequest;

cofferdam_toolbox::export_tool!(HttpRequest);

impl Guest for HttpRequest {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        Ok(vec![offer::function(&Settings::read(&Fields::settings(&settings)?)?)])
    }

    fn invoke(
        function: String,
        arguments: Json,
        settings: Json,
        _: CallContext,
    ) -> Result<Output, ToolError> {
        let settings = Settings::read(&Fields::settings(&settings)?)?;
        if function != NAME {
            return Err(ToolError::InvalidArguments(format!("there is no function {function}")));
        }
        run(&arguments, &settings, &mut Wire)
    }
}

fn run(arguments: &[u8], settings: &Settings, network: &mut impl Network) -> Result<Output, ToolError> {
    let draft = Draft::read(&Fields::arguments(arguments)?, settings)?;
    let response =
        network.send(&draft.request).map_err(|error| ToolError::Failed(sentence(error).to_owned()))?;
    Ok(answer::output(&draft, &response, settings))
}
