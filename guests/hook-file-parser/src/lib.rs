//! Replaces PDF files by their text, so that any model can read them. Files of other kinds are not
//! changed.

mod file;
mod frame;
mod settings;
mod splice;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::hooks::Action;
use cofferdam_guest_kit::bindings::on_request::Guest;
use cofferdam_guest_kit::bindings::types::{CallContext, ErrorKind, Failure, Json};
use cofferdam_guest_kit::bindings::{config, log};

use settings::{Engine, Operator};

struct FileParser;

cofferdam_guest_kit::export!(request_hook: FileParser);

impl Guest for FileParser {
    fn handle(request: Json, settings: Json, _: CallContext) -> Result<Action, Failure> {
        let operator = Operator::read(&config::settings()).map_err(|message| {
            log::write(log::Level::Error, &format!("[plugins.hook-file-parser.config] {message}"));
            Failure::new(
                ErrorKind::Server,
                "Files cannot be read: file-parser is not set up correctly on this host.",
            )
        })?;
        handled(&request, &settings, &operator)
    }
}

fn handled(request: &[u8], settings: &[u8], operator: &Operator) -> Result<Action, Failure> {
    let engine = Engine::of(settings).map_err(|message| Failure::new(ErrorKind::InvalidRequest, message))?;
    if engine == Engine::Native {
        return Ok(Action::Pass);
    }
    // The host passes valid requests only. Other bytes are passed on for the host to refuse.
    let Ok(request) = std::str::from_utf8(request) else { return Ok(Action::Pass) };
    let replaced = splice::with_text(request, operator)
        .map_err(|message| Failure::new(ErrorKind::InvalidRequest, message))?;
    Ok(replaced.map_or(Action::Pass, |request| Action::Replace(request.into_bytes())))
}
