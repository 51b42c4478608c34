//! Converts the plain types of the shared crate into the generated types of this guest.

use cofferdam_dialect_openai as shared;

use crate::bindings::cofferdam::plugin::types::{ErrorKind, Failure};
use crate::bindings::exports::cofferdam::plugin::dialect::UpstreamRequest;
use crate::bindings::exports::cofferdam::plugin::embedding::{EmbeddingFailure, Embeddings};

/// A request without additional headers.
pub(crate) fn post(path: &str, body: Vec<u8>, streamed: bool) -> UpstreamRequest {
    UpstreamRequest { path: path.to_owned(), headers: Vec::new(), body, streamed }
}

impl From<shared::Failure> for Failure {
    fn from(failure: shared::Failure) -> Self {
        let shared::Failure { kind, message, code, retry_after_ms } = failure;
        Failure { kind: kind.into(), message, code, retry_after_ms }
    }
}

impl From<shared::EmbeddingFailure> for EmbeddingFailure {
    fn from(failure: shared::EmbeddingFailure) -> Self {
        match failure {
            shared::EmbeddingFailure::UnsupportedInput(index) => EmbeddingFailure::UnsupportedInput(index),
            shared::EmbeddingFailure::Failed(failure) => EmbeddingFailure::Failed(failure.into()),
        }
    }
}

impl From<shared::Embeddings> for Embeddings {
    fn from(embeddings: shared::Embeddings) -> Self {
        let shared::Embeddings { vectors, prompt_tokens, total_tokens, cost_dollars } = embeddings;
        // Only text goes upstream, so there is one modality and no details to report.
        Embeddings { vectors, prompt_tokens, total_tokens, cost_dollars, prompt_tokens_details: Vec::new() }
    }
}

impl From<shared::Kind> for ErrorKind {
    fn from(kind: shared::Kind) -> Self {
        use shared::Kind;
        match kind {
            Kind::ContextLengthExceeded => ErrorKind::ContextLengthExceeded,
            Kind::MaxTokensExceeded => ErrorKind::MaxTokensExceeded,
            Kind::TokenLimitExceeded => ErrorKind::TokenLimitExceeded,
            Kind::StringTooLong => ErrorKind::StringTooLong,
            Kind::Authentication => ErrorKind::Authentication,
            Kind::PermissionDenied => ErrorKind::PermissionDenied,
            Kind::PaymentRequired => ErrorKind::PaymentRequired,
            Kind::RateLimitExceeded => ErrorKind::RateLimitExceeded,
            Kind::ProviderOverloaded => ErrorKind::ProviderOverloaded,
            Kind::ProviderUnavailable => ErrorKind::ProviderUnavailable,
            Kind::InvalidRequest => ErrorKind::InvalidRequest,
            Kind::InvalidPrompt => ErrorKind::InvalidPrompt,
            Kind::NotFound => ErrorKind::NotFound,
            Kind::PreconditionFailed => ErrorKind::PreconditionFailed,
            Kind::PayloadTooLarge => ErrorKind::PayloadTooLarge,
            Kind::Unprocessable => ErrorKind::Unprocessable,
            Kind::ContentPolicyViolation => ErrorKind::ContentPolicyViolation,
            Kind::InvalidImage => ErrorKind::InvalidImage,
            Kind::ImageTooLarge => ErrorKind::ImageTooLarge,
            Kind::ImageTooSmall => ErrorKind::ImageTooSmall,
            Kind::UnsupportedImageFormat => ErrorKind::UnsupportedImageFormat,
            Kind::ImageNotFound => ErrorKind::ImageNotFound,
            Kind::ImageDownloadFailed => ErrorKind::ImageDownloadFailed,
            Kind::Server => ErrorKind::Server,
            Kind::Timeout => ErrorKind::Timeout,
            Kind::Unmapped => ErrorKind::Unmapped,
        }
    }
}
