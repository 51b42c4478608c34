//! Why a guest's request was not sent, for three readers. The guest gets one of a few fixed errors
//! that reveal nothing about the network, the vault or other scopes (egress rule R21). The audit
//! log gets the reason. The operator's log gets the line of configuration that would allow the
//! request.

use cofferdam_egress::{Error, PlacementError, Reason, TargetError};
use cofferdam_store::{ReleaseError, RequestRefusal, SecretName};

use crate::wire::HttpError;

/// A request that is not sent.
#[derive(Debug)]
pub struct UnsentRequest {
    /// For the guest.
    pub error: HttpError,
    /// For the audit log, with the secret it is about. `None` when the store has written a record
    /// already, or when the request was malformed.
    pub audit: Option<(RequestRefusal, Option<SecretName>)>,
    /// For the operator's log. It contains names of hosts, secrets and settings, never content.
    pub log: String,
}

impl UnsentRequest {
    /// A request that is malformed under any grant.
    #[must_use]
    pub fn invalid(why: impl ToString) -> Self {
        Self { error: HttpError::Invalid, audit: None, log: why.to_string() }
    }

    /// A request that another grant would allow.
    pub(super) fn denied(reason: RequestRefusal, secret: Option<SecretName>, log: String) -> Self {
        Self { error: HttpError::Denied, audit: Some((reason, secret)), log }
    }

    /// A secret that this guest does not get here. The guest does not learn the reason.
    #[must_use]
    pub fn unavailable(reason: RequestRefusal, secret: Option<SecretName>, log: String) -> Self {
        Self { error: HttpError::SecretUnavailable, audit: Some((reason, secret)), log }
    }

    /// The vault did not release a secret. The store has already audited this.
    #[must_use]
    pub fn not_released(secret: &SecretName, error: &ReleaseError) -> Self {
        let log = format!("the secret {secret} is not released: {error}");
        Self { error: HttpError::SecretUnavailable, audit: None, log }
    }

    /// Adds the names of the secrets that were sent to the log text, where one of them is at fault
    /// and the reason does not say which.
    #[must_use]
    pub fn about<'s>(mut self, secrets: impl Iterator<Item = &'s SecretName>) -> Self {
        let names: Vec<&str> = secrets.map(SecretName::as_str).collect();
        if let (HttpError::SecretUnavailable, false) = (self.error, names.is_empty()) {
            self.log = format!("{} ({})", self.log, names.join(", "));
        }
        self
    }
}

impl From<TargetError> for UnsentRequest {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Downgrade => Self::denied(RequestRefusal::Rule, None, error.to_string()),
            error => Self::invalid(error),
        }
    }
}

impl From<PlacementError> for UnsentRequest {
    fn from(error: PlacementError) -> Self {
        Self::invalid(error)
    }
}

impl From<Reason> for UnsentRequest {
    fn from(reason: Reason) -> Self {
        let log = reason.to_string();
        match reason {
            Reason::Path(_)
            | Reason::HeadersTooLarge
            | Reason::Placeholder
            | Reason::JsonBody
            | Reason::TooManySecrets => Self::invalid(log),
            Reason::SecretHost | Reason::SecretNotHeaderSafe | Reason::SecretLength => {
                Self::unavailable(RequestRefusal::Rule, None, log)
            }
            _ => Self::denied(RequestRefusal::Rule, None, log),
        }
    }
}

impl From<Error> for UnsentRequest {
    fn from(error: Error) -> Self {
        let failed = |error: HttpError, log: &Error| Self { error, audit: None, log: log.to_string() };
        match error {
            Error::Refused { reason } => reason.into(),
            Error::Unreachable(_) => failed(HttpError::Unreachable, &error),
            Error::Untrusted(_) => failed(HttpError::Untrusted, &error),
            Error::TimedOut => failed(HttpError::Timeout, &error),
            Error::TooLarge => failed(HttpError::TooLarge, &error),
            Error::Broken => failed(HttpError::Broken, &error),
        }
    }
}
