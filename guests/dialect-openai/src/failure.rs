//! The failures of these dialects and their messages.

use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};

/// The message for an answer that does not have the form of its dialect.
pub const MALFORMED: &str = "The provider's answer was not understood.";

/// The provider's answer does not have the form of its dialect.
pub(crate) fn malformed() -> Failure {
    Failure::new(ErrorKind::ProviderUnavailable, MALFORMED)
}

/// This dialect cannot carry the value at `path` of the request.
#[must_use]
pub fn unsupported(path: &str, what: &str) -> Failure {
    Failure::new(ErrorKind::InvalidRequest, format!("{path}: {what} cannot be sent to this provider"))
}

/// The host passed a request that does not match the contract.
#[must_use]
pub fn unreadable_request() -> Failure {
    Failure::new(ErrorKind::Server, "The request could not be translated.")
}

/// Whether the request itself is the cause. Only then does the provider's message help the
/// client. All other failures concern the operator's account at the provider: credentials, quotas,
/// outages.
pub(crate) fn lies_in_the_request(kind: ErrorKind) -> bool {
    use ErrorKind::{
        ContentPolicyViolation, ContextLengthExceeded, ImageDownloadFailed, ImageNotFound, ImageTooLarge,
        ImageTooSmall, InvalidImage, InvalidPrompt, InvalidRequest, MaxTokensExceeded, NotFound,
        PayloadTooLarge, PreconditionFailed, StringTooLong, TokenLimitExceeded, Unprocessable,
        UnsupportedImageFormat,
    };
    matches!(
        kind,
        ContentPolicyViolation
            | ContextLengthExceeded
            | ImageDownloadFailed
            | ImageNotFound
            | ImageTooLarge
            | ImageTooSmall
            | InvalidImage
            | InvalidPrompt
            | InvalidRequest
            | MaxTokensExceeded
            | NotFound
            | PayloadTooLarge
            | PreconditionFailed
            | StringTooLong
            | TokenLimitExceeded
            | Unprocessable
            | UnsupportedImageFormat
    )
}

/// The message to use when the provider's message is absent or not meant for the client.
pub(crate) fn generic_message(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ContextLengthExceeded => "The input is longer than the model's context.",
        ErrorKind::MaxTokensExceeded | ErrorKind::TokenLimitExceeded => {
            "The request asks for too many tokens."
        }
        ErrorKind::StringTooLong => "A text of the request is too long.",
        ErrorKind::Authentication => "The provider did not accept the credential.",
        ErrorKind::PermissionDenied => "The provider refused access.",
        ErrorKind::PaymentRequired => "The provider's account has no credit left.",
        ErrorKind::RateLimitExceeded => "The provider's rate limit was reached.",
        ErrorKind::ProviderOverloaded => "The provider is overloaded.",
        ErrorKind::ProviderUnavailable => "The provider is not available.",
        ErrorKind::NotFound => "The provider does not know this model.",
        ErrorKind::PayloadTooLarge => "The request is too large for the provider.",
        ErrorKind::ContentPolicyViolation => "The provider's content policy does not allow this request.",
        ErrorKind::InvalidImage
        | ErrorKind::ImageTooLarge
        | ErrorKind::ImageTooSmall
        | ErrorKind::UnsupportedImageFormat
        | ErrorKind::ImageNotFound
        | ErrorKind::ImageDownloadFailed => "The provider could not use an image of the request.",
        ErrorKind::InvalidRequest
        | ErrorKind::InvalidPrompt
        | ErrorKind::PreconditionFailed
        | ErrorKind::Unprocessable => "The provider refused the request as invalid.",
        ErrorKind::Timeout => "The provider took too long.",
        ErrorKind::Server => "The provider failed.",
        ErrorKind::Refusal | ErrorKind::Unmapped => "The provider answered with an error.",
    }
}
