//! Failures in the contract's canonical vocabulary, as far as these dialects can distinguish
//! them.

/// The kind of a failure. The names are those of `error-kind` in the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    ContextLengthExceeded,
    MaxTokensExceeded,
    TokenLimitExceeded,
    StringTooLong,
    Authentication,
    PermissionDenied,
    PaymentRequired,
    RateLimitExceeded,
    ProviderOverloaded,
    ProviderUnavailable,
    InvalidRequest,
    InvalidPrompt,
    NotFound,
    PreconditionFailed,
    PayloadTooLarge,
    Unprocessable,
    ContentPolicyViolation,
    InvalidImage,
    ImageTooLarge,
    ImageTooSmall,
    UnsupportedImageFormat,
    ImageNotFound,
    ImageDownloadFailed,
    Server,
    Timeout,
    Unmapped,
}

/// An expected failure, in the form of `failure` in the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: Kind,
    /// For the client. It never holds a credential.
    pub message: String,
    /// The provider's own code.
    pub code: Option<String>,
    pub retry_after_ms: Option<u64>,
}

impl Failure {
    /// A failure with this text and nothing else.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, retry_after_ms: None }
    }

    /// The provider's answer does not have the form of its dialect.
    #[must_use]
    pub fn malformed() -> Self {
        Self::new(Kind::ProviderUnavailable, "The provider's answer was not understood.")
    }

    /// This dialect cannot carry the value at `path` of the request.
    #[must_use]
    pub fn unsupported(path: &str, what: &str) -> Self {
        Self::new(Kind::InvalidRequest, format!("{path}: {what} cannot be sent to this provider"))
    }

    /// The host passed a request that does not match the contract.
    #[must_use]
    pub fn unreadable_request() -> Self {
        Self::new(Kind::Server, "The request could not be translated.")
    }
}

impl Kind {
    /// Whether the request itself is the cause. Only then does the provider's message help the
    /// client. All other failures concern the operator's account at the provider: credentials, quotas,
    /// outages.
    pub(crate) fn lies_in_the_request(self) -> bool {
        use Kind::{
            ContentPolicyViolation, ContextLengthExceeded, ImageDownloadFailed, ImageNotFound, ImageTooLarge,
            ImageTooSmall, InvalidImage, InvalidPrompt, InvalidRequest, MaxTokensExceeded, NotFound,
            PayloadTooLarge, PreconditionFailed, StringTooLong, TokenLimitExceeded, Unprocessable,
            UnsupportedImageFormat,
        };
        matches!(
            self,
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
    pub(crate) fn generic_message(self) -> &'static str {
        match self {
            Kind::ContextLengthExceeded => "The input is longer than the model's context.",
            Kind::MaxTokensExceeded | Kind::TokenLimitExceeded => "The request asks for too many tokens.",
            Kind::StringTooLong => "A text of the request is too long.",
            Kind::Authentication => "The provider did not accept the credential.",
            Kind::PermissionDenied => "The provider refused access.",
            Kind::PaymentRequired => "The provider's account has no credit left.",
            Kind::RateLimitExceeded => "The provider's rate limit was reached.",
            Kind::ProviderOverloaded => "The provider is overloaded.",
            Kind::ProviderUnavailable => "The provider is not available.",
            Kind::NotFound => "The provider does not know this model.",
            Kind::PayloadTooLarge => "The request is too large for the provider.",
            Kind::ContentPolicyViolation => "The provider's content policy does not allow this request.",
            Kind::InvalidImage
            | Kind::ImageTooLarge
            | Kind::ImageTooSmall
            | Kind::UnsupportedImageFormat
            | Kind::ImageNotFound
            | Kind::ImageDownloadFailed => "The provider could not use an image of the request.",
            Kind::InvalidRequest | Kind::InvalidPrompt | Kind::PreconditionFailed | Kind::Unprocessable => {
                "The provider refused the request as invalid."
            }
            Kind::Timeout => "The provider took too long.",
            Kind::Server => "The provider failed.",
            Kind::Unmapped => "The provider answered with an error.",
        }
    }
}
