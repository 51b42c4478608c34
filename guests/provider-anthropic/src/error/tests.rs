use cofferdam_guest_kit::bindings::dialect::ResponseHead;
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use proptest::prelude::{any, proptest};

use super::{clean, from_answer, from_event};
use crate::wire::ErrorBody;

fn answer(status: u16, body: &str) -> Failure {
    let headers = vec![("retry-after".to_owned(), "1.5".to_owned())];
    from_answer(&ResponseHead { status, headers, streamed: false }, body.as_bytes())
}

fn typed(status: u16, kind: &str, message: &str) -> Failure {
    let error =
        serde_json::json!({"type":"error","error":{"type":kind,"message":message},"request_id":"req_1"});
    answer(status, &error.to_string())
}

#[test]
fn types_and_statuses_become_canonical_kinds() {
    let cases = [
        (400, "invalid_request_error", "messages: field required", ErrorKind::InvalidRequest),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 208310 tokens > 200000 maximum",
            ErrorKind::ContextLengthExceeded,
        ),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
            ErrorKind::ContextLengthExceeded,
        ),
        (
            400,
            "invalid_request_error",
            "max_tokens: 99999 > 8192, which is the maximum allowed number of output tokens for m",
            ErrorKind::MaxTokensExceeded,
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API.",
            ErrorKind::PaymentRequired,
        ),
        (
            400,
            "invalid_request_error",
            "Output blocked by content filtering policy",
            ErrorKind::ContentPolicyViolation,
        ),
        (
            400,
            "invalid_request_error",
            "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 6 bytes > 5 bytes",
            ErrorKind::ImageTooLarge,
        ),
        (400, "invalid_request_error", "Could not process image", ErrorKind::InvalidImage),
        (
            400,
            "invalid_request_error",
            "Unable to download the file. Please verify the URL and try again.",
            ErrorKind::ImageDownloadFailed,
        ),
        (401, "authentication_error", "invalid x-api-key", ErrorKind::Authentication),
        (402, "billing_error", "billing", ErrorKind::PaymentRequired),
        (403, "permission_error", "no", ErrorKind::PermissionDenied),
        (404, "not_found_error", "model: claude-9", ErrorKind::NotFound),
        (413, "request_too_large", "too large", ErrorKind::PayloadTooLarge),
        (422, "invalid_request_error", "unprocessable", ErrorKind::Unprocessable),
        (429, "rate_limit_error", "slow down", ErrorKind::RateLimitExceeded),
        (500, "api_error", "Internal server error", ErrorKind::ProviderUnavailable),
        (504, "timeout_error", "timed out", ErrorKind::Timeout),
        (529, "overloaded_error", "Overloaded", ErrorKind::ProviderOverloaded),
        (503, "", "", ErrorKind::ProviderUnavailable),
        (418, "teapot", "short and stout", ErrorKind::InvalidRequest),
    ];
    for (status, kind, message, expected) in cases {
        let failure = typed(status, kind, message);
        assert_eq!(failure.kind, expected, "{status} {message}");
        assert_eq!(failure.code.as_deref(), Some(kind).filter(|kind| !kind.is_empty()), "{status}");
        assert_eq!(failure.retry_after_ms, Some(1500), "{status}");
        let verbatim = status < 500 && !message.is_empty();
        assert_eq!(failure.message == message, verbatim, "{status} {message}: {}", failure.message);
    }
}

#[test]
fn answers_of_proxies_go_by_their_status() {
    let cases = [
        ("<html>502 Bad Gateway</html>", 502, ErrorKind::ProviderUnavailable),
        ("", 429, ErrorKind::RateLimitExceeded),
        (r#"{"error":"nope"}"#, 401, ErrorKind::Authentication),
        (r#"{"error":{"message":5}}"#, 408, ErrorKind::Timeout),
        ("[]", 400, ErrorKind::InvalidRequest),
    ];
    for (body, status, expected) in cases {
        let failure = answer(status, body);
        assert_eq!(failure.kind, expected, "{body}");
        assert!(!failure.message.is_empty() && !failure.message.contains("html"), "{body}");
    }
}

#[test]
fn errors_inside_a_stream_go_by_their_type() {
    let event = |json: &str| from_event(&serde_json::from_str::<ErrorBody<'_>>(json).expect("an error"));
    let overloaded = event(r#"{"type":"overloaded_error","message":"Overloaded"}"#);
    assert_eq!(overloaded.kind, ErrorKind::ProviderOverloaded);
    assert_eq!(overloaded.message, "The provider is overloaded.");
    assert_eq!(
        event(r#"{"type":"api_error","message":"trace at 10.0.0.1"}"#).message,
        "The provider failed."
    );
    let long = event(r#"{"type":"invalid_request_error","message":"prompt is too long"}"#);
    assert_eq!(long.kind, ErrorKind::ContextLengthExceeded);
    assert_eq!(event("{}").kind, ErrorKind::ProviderUnavailable);
}

#[test]
fn messages_are_cut_and_hold_no_credentials() {
    let cases = [
        ("bad key sk-ant-api03-abcdef.", "bad key [removed]"),
        ("header \"Bearer abc\" refused", "header \"Bearer [removed]\" refused"),
        ("key=AKIAIOSFODNN7EXAMPLE;", "key=[removed];"),
        ("0123456789abcdef0123456789abcdef01234567", "[removed]"),
        ("model: claude-sonnet-4-5-20250929", "model: claude-sonnet-4-5-20250929"),
        (
            "messages.0.content.12.tool_result.content.0.text",
            "messages.0.content.12.tool_result.content.0.text",
        ),
        ("line\nnext\u{7}\u{1b}[31m", "line next[31m"),
    ];
    for (message, expected) in cases {
        assert_eq!(clean(message), expected);
    }
    assert_eq!(clean(&"é".repeat(9000)).chars().count(), 500);
}

proptest! {
    #[test]
    fn arbitrary_answers_never_panic(status in any::<u16>(), body in any::<Vec<u8>>(), retry in any::<String>()) {
        let headers = vec![("retry-after".to_owned(), retry)];
        let failure = from_answer(&ResponseHead { status, headers, streamed: false }, &body);
        assert!(failure.message.chars().count() <= 500);
    }

    #[test]
    fn arbitrary_messages_are_cut_and_plain(message in any::<String>()) {
        let cleaned = clean(&message);
        assert!(cleaned.chars().count() <= 500 && !cleaned.contains(char::is_control));
    }
}

#[test]
fn a_refused_seal_has_a_code() {
    let refused =
        typed(400, "invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block");
    assert_eq!(refused.code.as_deref(), Some("invalid_encrypted_content"));
    let other = typed(400, "invalid_request_error", "messages.1.content.0: Invalid text");
    assert_eq!(other.code.as_deref(), Some("invalid_request_error"));
}
