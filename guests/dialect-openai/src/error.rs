//! Translates errors of OpenAI and of servers that imitate it. The provider's code is the most
//! precise, then its type, then the status. Some servers report an input that is too long only
//! in the message text, so the text is searched for that case.

use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use cofferdam_guest_kit::{kind_of_status, retry_after_ms, wait_ms};
use serde_json::{Map, Value};

use crate::failure::{generic_message, lies_in_the_request};
use crate::message::clean;

/// Translates an error answer. `headers` have lower-case names.
#[must_use]
pub fn map_error(status: u16, headers: &[(String, String)], body: &[u8]) -> Failure {
    let reported = serde_json::from_slice(body).map(|value| read(&value)).unwrap_or_default();
    let mut failure = translate(Some(status), &reported);
    failure.retry_after_ms = retry_after(headers);
    failure
}

/// Translates an error that is part of an answer. `json` is the value of an `error` field or the
/// whole object around it.
#[must_use]
pub fn map_reported(json: &str) -> Failure {
    let reported = serde_json::from_str(json).map(|value| read(&value)).unwrap_or_default();
    translate(reported.status, &reported)
}

/// The fields of an error body, in whichever of the known shapes it came.
#[derive(Default)]
struct Reported {
    message: Option<String>,
    code: Option<String>,
    kind: Option<String>,
    status: Option<u16>,
}

fn read(value: &Value) -> Reported {
    match value {
        Value::String(message) => Reported { message: Some(message.clone()), ..Reported::default() },
        // Google's compatible endpoint wraps the envelope in an array.
        Value::Array(values) => match values.first() {
            Some(first @ Value::Object(_)) => read(first),
            _ => Reported::default(),
        },
        Value::Object(fields) => match fields.get("error") {
            Some(Value::Object(error)) => read_fields(error),
            Some(Value::String(message)) if !message.is_empty() => {
                Reported { message: Some(message.clone()), ..read_fields(fields) }
            }
            _ => read_fields(fields),
        },
        _ => Reported::default(),
    }
}

fn read_fields(fields: &Map<String, Value>) -> Reported {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let status = ["code", "status_code", "status"].into_iter().find_map(|name| status(fields.get(name)?));
    Reported {
        message: text("message").or_else(|| fields.get("detail").and_then(detail)).or_else(|| text("msg")),
        code: text("code").filter(|code| code.parse::<u16>().is_err()),
        kind: text("type").filter(|kind| kind != "error").or_else(|| text("status")),
        status,
    }
}

fn status(value: &Value) -> Option<u16> {
    let number = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.and_then(|number| u16::try_from(number).ok()).filter(|number| (400..600).contains(number))
}

/// FastAPI's `detail`: a text, or a list of validation errors with a message each.
fn detail(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(problems) => problems.first()?.get("msg")?.as_str().map(str::to_owned),
        Value::Object(fields) => fields.get("message")?.as_str().map(str::to_owned),
        _ => None,
    }
}

fn translate(status: Option<u16>, reported: &Reported) -> Failure {
    let kind = classify(status, reported);
    let theirs = reported
        .message
        .as_deref()
        .filter(|_| lies_in_the_request(kind) && status.is_none_or(|status| status < 500))
        .map(clean)
        .filter(|message| !message.is_empty());
    Failure {
        code: reported.code.as_deref().or(reported.kind.as_deref()).and_then(code),
        ..Failure::new(kind, theirs.unwrap_or_else(|| generic_message(kind).to_owned()))
    }
}

/// The provider's code, if it has the form of a code and is not prose.
fn code(text: &str) -> Option<String> {
    let is_code = (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    is_code.then(|| text.to_owned())
}

fn classify(status: Option<u16>, reported: &Reported) -> ErrorKind {
    let words = [&reported.code, &reported.kind];
    if let Some(kind) = words.into_iter().flatten().find_map(|word| by_word(&word.to_ascii_lowercase())) {
        return kind;
    }
    let in_request = status.is_none_or(|status| matches!(status, 400 | 413 | 422));
    if in_request && reported.message.as_deref().is_some_and(tells_of_context) {
        return ErrorKind::ContextLengthExceeded;
    }
    status.map_or(ErrorKind::Server, by_status)
}

fn tells_of_context(message: &str) -> bool {
    let message: String = message.chars().take(2000).collect::<String>().to_ascii_lowercase();
    [
        "maximum context length",
        "context length exceeded",
        "exceeds the context",
        "context window",
        "context size",
    ]
    .iter()
    .any(|phrase| message.contains(phrase))
}

/// Codes and types that have one meaning with every status. General ones
/// (`invalid_request_error`, `server_error`) are left to the status.
fn by_word(word: &str) -> Option<ErrorKind> {
    Some(match word {
        "context_length_exceeded" | "exceed_context_size_error" => ErrorKind::ContextLengthExceeded,
        "max_tokens_exceeded" => ErrorKind::MaxTokensExceeded,
        "token_limit_exceeded" => ErrorKind::TokenLimitExceeded,
        "string_above_max_length" | "string_too_long" => ErrorKind::StringTooLong,
        "invalid_api_key"
        | "authentication_error"
        | "invalid_authentication"
        | "account_deactivated"
        | "invalid_organization" => ErrorKind::Authentication,
        "permission_denied"
        | "permission_error"
        | "insufficient_permissions"
        | "unsupported_country_region_territory"
        | "data_residency_mismatch" => ErrorKind::PermissionDenied,
        "insufficient_quota"
        | "insufficient_balance"
        | "billing_hard_limit_reached"
        | "billing_not_active"
        | "payment_required" => ErrorKind::PaymentRequired,
        "rate_limit_exceeded" | "rate_limit_error" | "too_many_requests" => ErrorKind::RateLimitExceeded,
        "overloaded"
        | "overloaded_error"
        | "engine_overloaded"
        | "engine_overloaded_error"
        | "server_overloaded"
        | "server_is_overloaded"
        | "slow_down" => ErrorKind::ProviderOverloaded,
        "service_unavailable" | "unavailable_error" | "model_not_ready" => ErrorKind::ProviderUnavailable,
        "invalid_prompt" => ErrorKind::InvalidPrompt,
        "model_not_found" | "not_found" | "not_found_error" => ErrorKind::NotFound,
        "payload_too_large" | "request_too_large" => ErrorKind::PayloadTooLarge,
        "content_policy_violation"
        | "content_filter"
        | "moderation_blocked"
        | "cyber_policy"
        | "bio_policy"
        | "misalignment_policy_violation"
        | "image_content_policy_violation"
        | "responsibleaipolicyviolation" => ErrorKind::ContentPolicyViolation,
        "timeout" | "request_timeout" | "vector_store_timeout" => ErrorKind::Timeout,
        other => return by_image_word(other),
    })
}

fn by_image_word(word: &str) -> Option<ErrorKind> {
    Some(match word {
        "invalid_image"
        | "invalid_base64_image"
        | "invalid_image_url"
        | "invalid_image_mode"
        | "image_parse_error"
        | "empty_image_file" => ErrorKind::InvalidImage,
        "invalid_image_format" | "unsupported_image_media_type" => ErrorKind::UnsupportedImageFormat,
        "image_too_large" | "image_file_too_large" => ErrorKind::ImageTooLarge,
        "image_too_small" => ErrorKind::ImageTooSmall,
        "image_file_not_found" | "image_not_found" => ErrorKind::ImageNotFound,
        "failed_to_download_image" | "image_download_failed" => ErrorKind::ImageDownloadFailed,
        _ => return None,
    })
}

fn by_status(status: u16) -> ErrorKind {
    match status {
        502 => ErrorKind::ProviderUnavailable,
        503 => ErrorKind::ProviderOverloaded,
        _ => kind_of_status(status).unwrap_or(match status {
            500..=599 => ErrorKind::Server,
            _ => ErrorKind::Unmapped,
        }),
    }
}

/// OpenAI also sends the wait in milliseconds, which is more precise.
fn retry_after(headers: &[(String, String)]) -> Option<u64> {
    let fine = headers.iter().find(|(header, _)| header == "retry-after-ms");
    let fine = fine.and_then(|(_, value)| value.trim().parse::<f64>().ok());
    fine.and_then(|ms| wait_ms(ms / 1000.0)).or_else(|| retry_after_ms(headers))
}

#[cfg(test)]
mod tests;
