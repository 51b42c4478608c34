//! Drops the middle of a conversation until it fits into the model's context.
//!
//! Instructions, system and developer messages, the first turn and the last turn stay. The turns
//! between them are dropped from the middle outwards. A call is never separated from its output, nor
//! a reasoning item from what follows it. The token count is a rough one, a quarter of the
//! characters, as everywhere in this host.

mod count;
mod middle_out;
mod settings;
mod units;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::config;
use cofferdam_guest_kit::bindings::hooks::Action;
use cofferdam_guest_kit::bindings::on_request::Guest;
use cofferdam_guest_kit::bindings::types::{CallContext, ErrorKind, Failure, Json};

use settings::Settings;

struct Compression;

cofferdam_guest_kit::export!(request_hook: Compression);

impl Guest for Compression {
    fn handle(request: Json, settings: Json, _: CallContext) -> Result<Action, Failure> {
        handled(&request, &settings, &config::settings())
    }
}

/// Compresses `request` if necessary. `operator` is the guest's configuration.
fn handled(request: &[u8], settings: &[u8], operator: &[u8]) -> Result<Action, Failure> {
    let settings = Settings::read(settings, operator)
        .map_err(|message| Failure::new(ErrorKind::InvalidRequest, message))?;
    // Without a known length there is no limit to keep.
    let Some(context_length) = settings.context_length.filter(|_| settings.enabled) else {
        return Ok(Action::Pass);
    };
    Ok(middle_out::compressed(request, context_length).map_or(Action::Pass, Action::Replace))
}
