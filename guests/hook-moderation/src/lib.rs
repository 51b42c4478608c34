//! Moderates input with the operator's rules and with a moderation endpoint in the form of OpenAI's.
//!
//! All text that a model would read is checked, in any role and at any position. A request is passed
//! on unchanged or rejected. If there is no verdict, the request is refused, unless the operator
//! configures otherwise.

mod endpoint;
mod operator;
mod rules;
mod texts;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::hooks::Action;
use cofferdam_guest_kit::bindings::http::{self, HttpError, Request, Response};
use cofferdam_guest_kit::bindings::on_request::Guest;
use cofferdam_guest_kit::bindings::types::{CallContext, ErrorKind, Failure, Json};
use cofferdam_guest_kit::bindings::{config, log};

use endpoint::Trouble;
use operator::{OnError, Operator};
use texts::Texts;

struct Moderation;

cofferdam_guest_kit::export!(request_hook: Moderation);

impl Guest for Moderation {
    fn handle(request: Json, _: Json, _: CallContext) -> Result<Action, Failure> {
        handled(&request, &config::settings(), &mut Host)
    }
}

/// The imports that this guest uses. There are two implementations: the host, and scripted answers for
/// tests.
trait Outside {
    /// Sends one request and waits for the whole answer.
    fn send(&mut self, request: &Request) -> Result<Response, HttpError>;

    /// Writes a line to the operator's log.
    fn log(&mut self, level: log::Level, line: &str);
}

struct Host;

impl Outside for Host {
    fn send(&mut self, request: &Request) -> Result<Response, HttpError> {
        http::send(request)
    }

    fn log(&mut self, level: log::Level, line: &str) {
        log::write(level, line);
    }
}

/// A text that was flagged, and the reasons.
#[derive(Debug, PartialEq, Eq)]
struct Flagged {
    reasons: Vec<String>,
    /// The JSON pointer of the text in the request.
    pointer: String,
}

fn handled(request: &[u8], operator: &[u8], outside: &mut impl Outside) -> Result<Action, Failure> {
    let operator = Operator::read(operator).map_err(|message| {
        outside.log(log::Level::Error, &format!("[plugins.hook-moderation.config] {message}"));
        broken()
    })?;
    if operator.rules.is_empty() && operator.endpoint.is_none() {
        // The host replaces the id at the start of the message by `plugins[i]`.
        let message = "moderation is not set up on this host: it has neither rules nor an endpoint";
        return Err(Failure::new(ErrorKind::InvalidRequest, message));
    }
    let texts = texts::read(request).ok_or_else(broken)?;
    if let Some(flagged) = rules::flagged(&operator.rules, &texts) {
        return Ok(reject(&flagged));
    }
    let Some(endpoint) = &operator.endpoint else { return Ok(Action::Pass) };
    match endpoint::flagged(endpoint, &texts, outside) {
        Ok(Some(flagged)) => Ok(reject(&flagged)),
        Ok(None) => Ok(Action::Pass),
        Err(trouble) => {
            outside.log(log::Level::Warn, &format!("the moderation endpoint: {}", trouble.line()));
            match (operator.on_error, &trouble) {
                // The client determines its input: if input that is too long or refused passed, a client could
                // switch this hook off.
                (OnError::Allow, Trouble::Passing { .. } | Trouble::Lasting(_)) => Ok(Action::Pass),
                _ => Err(refusal(&trouble)),
            }
        }
    }
}

/// `code` holds the reasons and the pointer, as described in `wit/hook.wit`.
fn reject(flagged: &Flagged) -> Action {
    let reasons = flagged.reasons.join(",");
    Action::Reject(Failure {
        message: format!("The input was flagged by moderation: {}", flagged.reasons.join(", ")),
        code: Some(format!("{reasons}#{}", flagged.pointer)),
        ..Failure::new(ErrorKind::ContentPolicyViolation, "")
    })
}

fn refusal(trouble: &Trouble) -> Failure {
    match trouble {
        Trouble::Passing { retry_after_ms, .. } => Failure {
            retry_after_ms: *retry_after_ms,
            ..Failure::new(
                ErrorKind::ProviderOverloaded,
                "The input could not be moderated: the moderation endpoint does not answer. Please try again shortly.",
            )
        },
        Trouble::Lasting(_) => broken(),
        Trouble::TooLong => Failure::new(
            ErrorKind::ContextLengthExceeded,
            "The input is longer than what can be moderated on this host.",
        ),
        Trouble::Refused(_) => Failure::new(
            ErrorKind::InvalidRequest,
            "The input could not be moderated: the moderation endpoint of this host refuses it. If it refuses every \
             input, the operator finds the status in the log.",
        ),
    }
}

fn broken() -> Failure {
    Failure::new(
        ErrorKind::Server,
        "The input could not be moderated: moderation is not set up correctly on this host. \
         Its operator finds the cause in the log.",
    )
}
