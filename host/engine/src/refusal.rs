//! Why a request gets an error instead of an answer: the status, the canonical type, a message for
//! the client and metadata about earlier attempts. This module has no HTTP types; the server turns
//! a refusal into the error envelope.

use crate::request::{InvalidKind, InvalidRequest};
use cofferdam_runtime::wire::{ErrorKind, Failure};
use serde_json::{Value, json};

/// The beginning of a message about a provider's failure.
pub(crate) const PROVIDER_FAILED: &str = "Provider returned error";

/// The message when a provider's plugin failed, and not the provider.
pub(crate) const PLUGIN_FAILED: &str = "A plugin of this host failed while it spoke to the provider";

/// The message when the deadline of the whole request passed.
pub(crate) const TIMED_OUT: &str = "Request timed out. Please try again later.";

/// The message when the time for one step passed.
pub(crate) const STEP_TIMED_OUT: &str = "The operation was aborted due to timeout";

/// The message when this host has no capacity.
pub(crate) const SATURATED: &str = "Service temporarily unavailable";

/// The message when this host failed.
pub(crate) const INTERNAL: &str = "Internal Server Error";

/// Which side refused a request or failed. Clients see it as `refused_by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedBy {
    Host,
    Provider,
}

impl RefusedBy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Provider => "provider",
        }
    }
}

/// A request that ends in an error before anything was sent to the client.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The HTTP status to answer with.
    pub status: u16,
    /// The canonical error type.
    pub kind: ErrorKind,
    /// For the client. It names the problem and its place in the request, and never quotes content
    /// or secrets.
    pub message: String,
    /// Further members of `error.metadata` besides `error_type`, a JSON object or null.
    pub metadata: Box<Value>,
    /// Seconds for `Retry-After`.
    pub retry_after_s: Option<u64>,
    /// Routing metadata, when the client asked for it and routing took place.
    pub service_metadata: Option<Box<Value>>,
}

impl Refusal {
    /// A refusal without metadata.
    pub fn new(status: u16, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: message.into(),
            metadata: Box::default(),
            retry_after_s: None,
            service_metadata: None,
        }
    }

    /// 400: the request itself is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, ErrorKind::InvalidRequest, message)
    }

    /// 404: what the request names does not exist here.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, ErrorKind::NotFound, message)
    }

    /// 404: no endpoint of the model can serve the request.
    pub(crate) fn no_endpoints() -> Self {
        Self::not_found("No endpoints found for this model")
    }

    /// 524: the deadline of the whole request passed after an answer had begun.
    pub(crate) fn late_answer() -> Self {
        Self::new(524, ErrorKind::Timeout, TIMED_OUT)
    }

    /// 503: this host has no capacity now. The client may try again shortly.
    pub fn saturated() -> Self {
        Self { retry_after_s: Some(1), ..Self::new(503, ErrorKind::ProviderOverloaded, SATURATED) }
    }

    /// 500: this host failed. The cause is only in the log.
    pub fn internal() -> Self {
        Self::new(500, ErrorKind::Server, INTERNAL)
    }

    /// 502: an answer failed after it had begun.
    pub(crate) fn broken(by: RefusedBy, kind: ErrorKind, message: impl Into<String>) -> Self {
        let metadata = Box::new(json!({ "refused_by": by.as_str() }));
        Self { metadata, ..Self::new(502, kind, message) }
    }

    /// 502: the provider failed after its answer had begun, and its own words are not shown.
    pub(crate) fn provider_broke() -> Self {
        Self::broken(RefusedBy::Provider, ErrorKind::ProviderUnavailable, PROVIDER_FAILED)
    }

    /// The refusal for a guest's failure, with the status of its kind.
    pub fn from_failure(failure: &Failure) -> Self {
        let mut refusal = Self::new(status_of(failure.kind), failure.kind, failure.message.clone());
        refusal.retry_after_s = failure.retry_after_ms.map(|ms| ms.div_ceil(1000));
        if let Some(code) = &failure.code {
            refusal.metadata = Box::new(json!({ "provider_code": code }));
        }
        refusal
    }
}

impl From<InvalidRequest> for Refusal {
    fn from(error: InvalidRequest) -> Self {
        match error.kind {
            InvalidKind::NotFound => Self::not_found(error.to_string()),
            InvalidKind::InvalidRequest | InvalidKind::PayloadTooLarge => Self::invalid(error.to_string()),
        }
    }
}

/// The HTTP status of a canonical error type.
pub(crate) fn status_of(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::ContextLengthExceeded
        | ErrorKind::MaxTokensExceeded
        | ErrorKind::TokenLimitExceeded
        | ErrorKind::StringTooLong
        | ErrorKind::InvalidRequest
        | ErrorKind::InvalidPrompt
        | ErrorKind::ContentPolicyViolation
        | ErrorKind::Refusal
        | ErrorKind::InvalidImage
        | ErrorKind::ImageTooLarge
        | ErrorKind::ImageTooSmall
        | ErrorKind::UnsupportedImageFormat
        | ErrorKind::ImageDownloadFailed => 400,
        ErrorKind::Authentication => 401,
        ErrorKind::PaymentRequired => 402,
        ErrorKind::PermissionDenied => 403,
        ErrorKind::NotFound | ErrorKind::ImageNotFound => 404,
        ErrorKind::PreconditionFailed => 412,
        ErrorKind::PayloadTooLarge => 413,
        ErrorKind::Unprocessable => 422,
        ErrorKind::RateLimitExceeded => 429,
        ErrorKind::ProviderOverloaded => 503,
        ErrorKind::ProviderUnavailable => 502,
        ErrorKind::Timeout => 504,
        ErrorKind::Server | ErrorKind::Unmapped => 500,
    }
}

/// The string for `error.code` of a `response.failed` event. It has a smaller set than the
/// canonical types.
#[must_use]
pub fn stream_code(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::RateLimitExceeded => "rate_limit_exceeded",
        ErrorKind::ContextLengthExceeded | ErrorKind::InvalidRequest | ErrorKind::InvalidPrompt => {
            "invalid_prompt"
        }
        ErrorKind::ContentPolicyViolation => "image_content_policy_violation",
        _ => "server_error",
    }
}

/// Whether a failure in the middle of an answer means that the answer is complete except for its
/// length.
pub(crate) fn is_length(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ContextLengthExceeded
            | ErrorKind::MaxTokensExceeded
            | ErrorKind::TokenLimitExceeded
            | ErrorKind::StringTooLong
    )
}

/// The message for the client about a provider's failure: that the provider failed, and the
/// provider's own words where the client can act on them.
pub(crate) fn client_message(failure: &Failure) -> String {
    match failure.kind {
        ErrorKind::Timeout => STEP_TIMED_OUT.to_owned(),
        _ => match words(failure) {
            Some(words) => format!("{PROVIDER_FAILED}: {words}"),
            None => PROVIDER_FAILED.to_owned(),
        },
    }
}

/// The provider's words, if a client can act on them.
pub(crate) fn words(failure: &Failure) -> Option<&str> {
    let is_far =
        matches!(failure.kind, ErrorKind::Server | ErrorKind::Unmapped | ErrorKind::ProviderUnavailable);
    (!is_far && !failure.message.is_empty()).then_some(failure.message.as_str())
}

/// A client's text, shortened and escaped so that it can be repeated in a message.
pub(crate) fn printable(word: &str) -> String {
    let cut: String = word.chars().take(128).collect();
    cut.escape_debug().to_string()
}
