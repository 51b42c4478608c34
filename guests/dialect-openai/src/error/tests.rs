use cofferdam_guest_kit::bindings::types::ErrorKind;
use proptest::prelude::{any, proptest};

use super::{map_error, map_reported};

/// Status and body of an error answer, and the kind and message they must give.
const CASES: &[(u16, &str, ErrorKind, &str)] = &[
    (
        400,
        r#"{"error":{"message":"Too long.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#,
        ErrorKind::ContextLengthExceeded,
        "Too long.",
    ),
    (
        400,
        r#"{"error":{"message":"Invalid 'input'.","type":"invalid_request_error","code":"string_above_max_length"}}"#,
        ErrorKind::StringTooLong,
        "Invalid 'input'.",
    ),
    (
        401,
        r#"{"error":{"message":"Incorrect API key provided: sk-abcdefgh","type":"invalid_request_error","code":"invalid_api_key"}}"#,
        ErrorKind::Authentication,
        "The provider did not accept the credential.",
    ),
    (
        429,
        r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ErrorKind::PaymentRequired,
        "The provider's account has no credit left.",
    ),
    (
        429,
        r#"{"error":{"message":"Rate limit reached in organization org-x","type":"tokens","code":"rate_limit_exceeded"}}"#,
        ErrorKind::RateLimitExceeded,
        "The provider's rate limit was reached.",
    ),
    (
        400,
        r#"{"error":{"message":"Blocked","code":"content_policy_violation"}}"#,
        ErrorKind::ContentPolicyViolation,
        "Blocked",
    ),
    (
        400,
        r#"{"error":{"message":"Bad image","code":"invalid_image_format"}}"#,
        ErrorKind::UnsupportedImageFormat,
        "Bad image",
    ),
    (
        404,
        r#"{"error":{"message":"The model `x` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#,
        ErrorKind::NotFound,
        "The model `x` does not exist",
    ),
    (
        404,
        r#"{"error":{"message":"model 'x' not found","type":"api_error","param":null,"code":null}}"#,
        ErrorKind::NotFound,
        "model 'x' not found",
    ),
    (
        400,
        r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}"#,
        ErrorKind::ContextLengthExceeded,
        "This model's maximum context length is 4096 tokens.",
    ),
    (
        400,
        r#"{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size","type":"exceed_context_size_error","n_ctx":4096}}"#,
        ErrorKind::ContextLengthExceeded,
        "request (9000 tokens) exceeds the available context size",
    ),
    (
        503,
        r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
        ErrorKind::ProviderUnavailable,
        "The provider is not available.",
    ),
    (
        503,
        r#"{"error":{"message":"Overloaded","type":"server_error"}}"#,
        ErrorKind::ProviderOverloaded,
        "The provider is overloaded.",
    ),
    (529, "", ErrorKind::ProviderOverloaded, "The provider is overloaded."),
    (500, r#"{"error":{"message":"secret stack trace"}}"#, ErrorKind::Server, "The provider failed."),
    (
        502,
        "<html><body>Bad Gateway</body></html>",
        ErrorKind::ProviderUnavailable,
        "The provider is not available.",
    ),
    (400, "<html>nginx</html>", ErrorKind::InvalidRequest, "The provider refused the request as invalid."),
    (400, r#"{"error":"plain words"}"#, ErrorKind::InvalidRequest, "plain words"),
    (
        422,
        r#"{"detail":[{"loc":["body","model"],"msg":"field required","type":"value_error.missing"}]}"#,
        ErrorKind::Unprocessable,
        "field required",
    ),
    (404, r#"{"detail":"Not Found"}"#, ErrorKind::NotFound, "Not Found"),
    (400, r#"{"message":"flat"}"#, ErrorKind::InvalidRequest, "flat"),
    (
        400,
        r#"[{"error":{"code":400,"message":"API key AIzaSy123456 bad","status":"INVALID_ARGUMENT"}}]"#,
        ErrorKind::InvalidRequest,
        "API key [redacted] bad",
    ),
    (
        402,
        r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#,
        ErrorKind::PaymentRequired,
        "The provider's account has no credit left.",
    ),
    (418, "[]", ErrorKind::InvalidRequest, "The provider refused the request as invalid."),
    (302, "", ErrorKind::Unmapped, "The provider answered with an error."),
];

#[test]
fn codes_types_prose_and_statuses_give_the_right_kind() {
    for (status, body, kind, message) in CASES {
        let failure = map_error(*status, &[], body.as_bytes());
        assert_eq!((failure.kind, &*failure.message), (*kind, *message), "{status} {body}");
    }
}

#[test]
fn only_a_well_formed_code_is_kept() {
    let code = |body: &str| map_error(400, &[], body.as_bytes()).code;
    assert_eq!(code(r#"{"error":{"code":"a_b","type":"t"}}"#).as_deref(), Some("a_b"));
    assert_eq!(code(r#"{"error":{"code":400,"type":"t"}}"#).as_deref(), Some("t"));
    assert_eq!(code(r#"{"error":{"code":"some prose here"}}"#), None);
}

#[test]
fn errors_inside_an_answer_need_no_status() {
    let cases = [
        (r#"{"code":"rate_limit_exceeded","message":"slow"}"#, ErrorKind::RateLimitExceeded),
        (r#"{"code":"server_error","message":"boom"}"#, ErrorKind::Server),
        (r#"{"error":{"code":502,"message":"down"}}"#, ErrorKind::ProviderUnavailable),
        (r#"{"object":"error","code":"400","message":"bad"}"#, ErrorKind::InvalidRequest),
        (r#""words""#, ErrorKind::Server),
        ("null", ErrorKind::Server),
    ];
    for (json, kind) in cases {
        assert_eq!(map_reported(json).kind, kind, "{json}");
    }
}

#[test]
fn the_wait_in_milliseconds_wins_and_dates_are_ignored() {
    let wait = |headers: &[(&str, &str)]| {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        map_error(429, &headers, b"").retry_after_ms
    };
    assert_eq!(wait(&[("retry-after", "2"), ("retry-after-ms", "1500")]), Some(1500));
    assert_eq!(wait(&[("retry-after", "2")]), Some(2000));
    let until = ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT");
    assert_eq!(wait(&[until]), None);
    assert_eq!(wait(&[("date", "Wed, 21 Oct 2026 07:27:56 GMT"), until]), Some(4000));
    assert_eq!(wait(&[("retry-after-ms", "-5"), ("retry-after", "x")]), None);
}

proptest! {
    #[test]
    fn any_body_gives_a_failure(status: u16, body in any::<Vec<u8>>(), json in "[\\[\\]{}\",:a-e0-9]{0,60}") {
        assert!(!map_error(status, &[], &body).message.is_empty());
        assert!(!map_reported(&json).message.is_empty());
    }
}
