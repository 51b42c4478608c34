//! Translates the provider's errors into the canonical kinds.
//!
//! The provider's error types are coarse: `invalid_request_error` covers a prompt that is too long
//! as well as a blocked answer. Where clients react differently to such cases, the wording of the
//! message decides.

use cofferdam_guest_kit::bindings::dialect::ResponseHead;
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use cofferdam_guest_kit::{kind_of_status, retry_after_ms};
use serde::Deserialize;

use crate::wire::ErrorBody;

/// The longest message that a client gets, in characters.
const MESSAGE_CHARS_MAX: usize = 500;

/// Wordings of `invalid_request_error` that have a more precise meaning. Lower case.
const WORDINGS: [(&str, ErrorKind); 15] = [
    ("prompt is too long", ErrorKind::ContextLengthExceeded),
    ("exceed context limit", ErrorKind::ContextLengthExceeded),
    ("context window", ErrorKind::ContextLengthExceeded),
    ("maximum allowed number of output tokens", ErrorKind::MaxTokensExceeded),
    ("credit balance is too low", ErrorKind::PaymentRequired),
    ("content filtering policy", ErrorKind::ContentPolicyViolation),
    ("usage policy", ErrorKind::ContentPolicyViolation),
    ("image exceeds", ErrorKind::ImageTooLarge),
    ("image dimensions exceed", ErrorKind::ImageTooLarge),
    ("could not process image", ErrorKind::InvalidImage),
    ("does not match the provided media type", ErrorKind::InvalidImage),
    ("does not appear to match the provided", ErrorKind::InvalidImage),
    ("media_type: input should be 'image/", ErrorKind::UnsupportedImageFormat),
    ("unable to download", ErrorKind::ImageDownloadFailed),
    ("error while downloading", ErrorKind::ImageDownloadFailed),
];

/// The code for sealed reasoning that the provider could not check. The host then asks again without it. The provider
/// has no code of its own for this case.
const SEALS_REFUSED: &str = "invalid_encrypted_content";

/// The failure for a request that this dialect cannot carry. The host then tries another endpoint.
pub fn refuse(message: &str) -> Failure {
    Failure::new(ErrorKind::InvalidRequest, message)
}

/// An error answer: `{"type":"error","error":{...}}`, or any body that a proxy sent.
#[derive(Default, Deserialize)]
struct Answer<'a> {
    #[serde(default, borrow)]
    error: ErrorBody<'a>,
}

/// Translates an error answer.
pub fn from_answer(head: &ResponseHead, body: &[u8]) -> Failure {
    let answer: Answer<'_> = serde_json::from_slice(body).unwrap_or_default();
    let mut failure = failure(Some(head.status), &answer.error);
    failure.retry_after_ms = retry_after_ms(&head.headers);
    failure
}

/// Translates an `error` event. It has no status of its own.
pub fn from_event(error: &ErrorBody<'_>) -> Failure {
    failure(None, error)
}

fn failure(status: Option<u16>, error: &ErrorBody<'_>) -> Failure {
    let kind = error.kind.as_ref().map_or("", |kind| &kind.0);
    let message = error.message.as_ref().map_or("", |message| &message.0);
    let canonical = canonical(kind, status, message);
    let shown = if message.is_empty() || status.is_some_and(|status| status >= 500) {
        generic(canonical).to_owned()
    } else {
        match canonical {
            ErrorKind::ProviderUnavailable | ErrorKind::ProviderOverloaded | ErrorKind::Timeout => {
                generic(canonical).to_owned()
            }
            _ => clean(message),
        }
    };
    let code = if is_about_seals(message) { SEALS_REFUSED } else { kind };
    let code = Some(code).filter(|code| !code.is_empty() && code.len() <= 64).map(clean);
    Failure { kind: canonical, message: shown, code, retry_after_ms: None }
}

fn canonical(kind: &str, status: Option<u16>, message: &str) -> ErrorKind {
    match (kind, status) {
        (_, Some(413)) | ("request_too_large", _) => ErrorKind::PayloadTooLarge,
        ("authentication_error", _) => ErrorKind::Authentication,
        ("permission_error", _) => ErrorKind::PermissionDenied,
        ("billing_error", _) => ErrorKind::PaymentRequired,
        ("not_found_error", _) => ErrorKind::NotFound,
        ("rate_limit_error", _) => ErrorKind::RateLimitExceeded,
        ("overloaded_error", _) => ErrorKind::ProviderOverloaded,
        ("timeout_error", _) => ErrorKind::Timeout,
        ("api_error", _) => ErrorKind::ProviderUnavailable,
        ("invalid_request_error", None | Some(400..=499)) => refined(message, status),
        (_, Some(status)) => by_status(status),
        (_, None) => ErrorKind::ProviderUnavailable,
    }
}

fn refined(message: &str, status: Option<u16>) -> ErrorKind {
    let lower = message.to_lowercase();
    let worded = WORDINGS.iter().find(|(wording, _)| lower.contains(wording)).map(|(_, kind)| *kind);
    worded.unwrap_or_else(|| by_status(status.unwrap_or(400)))
}

fn is_about_seals(message: &str) -> bool {
    [
        "Invalid `signature` in `thinking` block",
        "Invalid `data` in `redacted_thinking` block",
        "blocks in the latest assistant message cannot be modified",
    ]
    .iter()
    .any(|wording| message.contains(wording))
}

fn by_status(status: u16) -> ErrorKind {
    kind_of_status(status).unwrap_or(ErrorKind::ProviderUnavailable)
}

fn generic(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ProviderOverloaded => "The provider is overloaded.",
        ErrorKind::Timeout => "The provider did not answer in time.",
        ErrorKind::ProviderUnavailable => "The provider failed.",
        ErrorKind::RateLimitExceeded => "The provider's rate limit was reached.",
        _ => "The provider refused the request.",
    }
}

/// The provider's message without control characters and without anything that looks like a
/// credential, at most `MESSAGE_CHARS_MAX` characters.
fn clean(message: &str) -> String {
    // Masking shortens the text: four times the limit usually leaves enough characters.
    let spaced = message.chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c });
    let plain: String =
        spaced.filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX.saturating_mul(4)).collect();
    let mut cleaned = String::with_capacity(plain.len());
    let mut after_bearer = false;
    for piece in plain.split_inclusive(is_delimiter) {
        let word = piece.trim_end_matches(is_delimiter);
        if !word.is_empty() {
            let masked = after_bearer || looks_secret(word);
            cleaned.push_str(if masked { "[removed]" } else { word });
            after_bearer = word.eq_ignore_ascii_case("bearer");
        }
        cleaned.push_str(piece.get(word.len()..).unwrap_or_default());
    }
    cleaned.chars().take(MESSAGE_CHARS_MAX).collect()
}

fn is_delimiter(c: char) -> bool {
    c.is_whitespace() || "\"'`,;:()[]{}<>=|".contains(c)
}

/// Known prefixes of keys and tokens, and long words of mixed characters.
fn looks_secret(word: &str) -> bool {
    const BEGINNINGS: [&str; 9] = ["sk-", "sk_", "pk_", "rk_", "ghp_", "xoxb-", "eyJ", "AKIA", "AIza"];
    if word.len() >= 8 && BEGINNINGS.iter().any(|start| word.starts_with(start)) {
        return true;
    }
    let is_token = |c: char| c.is_ascii_alphanumeric() || "-_+/".contains(c);
    word.len() >= 40
        && word.chars().all(is_token)
        && word.contains(|c: char| c.is_ascii_digit())
        && word.contains(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests;
