//! The plain types of the contract in one module: the inputs and outputs of guests. All are
//! generated from `wit/`, where they are documented. None of them holds a reference into a guest.

use std::str::FromStr;

pub use crate::bindings::cofferdam::plugin::hooks::Action;
pub use crate::bindings::cofferdam::plugin::http::{
    HttpError, Injection, Placement, Request as HttpRequest, Response as HttpResponse,
};
pub use crate::bindings::cofferdam::plugin::model::Answer;
pub use crate::bindings::cofferdam::plugin::scratch::ScratchError;
pub use crate::bindings::cofferdam::plugin::tool_call::ToolCallError;
pub use crate::bindings::cofferdam::plugin::types::{ErrorKind, Failure, Usage};
pub use crate::bindings::exports::cofferdam::plugin::dialect::{ResponseHead, Target, UpstreamRequest};
pub use crate::bindings::exports::cofferdam::plugin::embedding::{
    EmbeddingFailure, Embeddings, PreparedEmbeddings,
};
pub use crate::bindings::exports::cofferdam::plugin::generation::{
    CallDelta, CallStart, Event, Finish, FinishReason, Frame, Image, Prepared, ReasoningSeal, SummaryDelta,
    TextDelta,
};
pub use crate::bindings::exports::cofferdam::plugin::model_choice::{Choice, Model, TextFacts};
pub use crate::bindings::exports::cofferdam::plugin::routing::{
    Candidate, Decision, Percentiles, Price, Purpose, RequestSummary, Statistics,
};
pub use crate::bindings::exports::cofferdam::plugin::tools::{Function, Output, ToolError};

/// Every canonical error type with its name in the API.
pub const ERROR_KINDS: [(ErrorKind, &str); 27] = [
    (ErrorKind::ContextLengthExceeded, "context_length_exceeded"),
    (ErrorKind::MaxTokensExceeded, "max_tokens_exceeded"),
    (ErrorKind::TokenLimitExceeded, "token_limit_exceeded"),
    (ErrorKind::StringTooLong, "string_too_long"),
    (ErrorKind::Authentication, "authentication"),
    (ErrorKind::PermissionDenied, "permission_denied"),
    (ErrorKind::PaymentRequired, "payment_required"),
    (ErrorKind::RateLimitExceeded, "rate_limit_exceeded"),
    (ErrorKind::ProviderOverloaded, "provider_overloaded"),
    (ErrorKind::ProviderUnavailable, "provider_unavailable"),
    (ErrorKind::InvalidRequest, "invalid_request"),
    (ErrorKind::InvalidPrompt, "invalid_prompt"),
    (ErrorKind::NotFound, "not_found"),
    (ErrorKind::PreconditionFailed, "precondition_failed"),
    (ErrorKind::PayloadTooLarge, "payload_too_large"),
    (ErrorKind::Unprocessable, "unprocessable"),
    (ErrorKind::ContentPolicyViolation, "content_policy_violation"),
    (ErrorKind::Refusal, "refusal"),
    (ErrorKind::InvalidImage, "invalid_image"),
    (ErrorKind::ImageTooLarge, "image_too_large"),
    (ErrorKind::ImageTooSmall, "image_too_small"),
    (ErrorKind::UnsupportedImageFormat, "unsupported_image_format"),
    (ErrorKind::ImageNotFound, "image_not_found"),
    (ErrorKind::ImageDownloadFailed, "image_download_failed"),
    (ErrorKind::Server, "server"),
    (ErrorKind::Timeout, "timeout"),
    (ErrorKind::Unmapped, "unmapped"),
];

impl ErrorKind {
    /// The canonical name, as in the field `error_type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        ERROR_KINDS.iter().find(|(kind, _)| *kind == self).map_or("unmapped", |(_, name)| name)
    }
}

/// The name is not a canonical error type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a canonical error type")]
pub struct UnknownErrorKind;

impl FromStr for ErrorKind {
    type Err = UnknownErrorKind;

    fn from_str(name: &str) -> Result<Self, UnknownErrorKind> {
        ERROR_KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind).ok_or(UnknownErrorKind)
    }
}

impl Failure {
    /// A failure without a provider's code and without a delay for a retry.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, retry_after_ms: None }
    }
}

impl Purpose {
    /// The name in the API: `responses` or `embeddings`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ERROR_KINDS, ErrorKind};

    #[test]
    fn every_error_kind_has_one_name_and_reads_back() {
        for (kind, name) in ERROR_KINDS {
            assert_eq!(kind.as_str(), name);
            assert_eq!(name.parse::<ErrorKind>(), Ok(kind));
        }
        assert!("Server".parse::<ErrorKind>().is_err());
    }
}
