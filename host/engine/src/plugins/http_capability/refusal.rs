//! Why a guest's request was not sent, for three readers: the guest, who gets one of a few words that tell
//! nothing of the network, of the vault or of other scopes (R21); the audit log; and the operator, who is told
//! the line of configuration that would allow it.

use cofferdam_egress::{Error, Reason, SlotError, TargetError};
use cofferdam_runtime::wire::HttpError;
use cofferdam_store::{ReleaseError, RequestRefusal, SecretName};

/// A request that is not sent.
#[derive(Debug)]
pub(crate) struct Refused {
    /// For the guest.
    pub(crate) error: HttpError,
    /// For the audit log, with the secret it is about; `None` when the store has told it already, or when the
    /// request was no request at all.
    pub(crate) audit: Option<(RequestRefusal, Option<SecretName>)>,
    /// For the operator. Names of hosts, secrets and settings, never content.
    pub(crate) log: String,
}

impl Refused {
    /// A request that makes no sense, whatever is granted.
    pub(crate) fn invalid(why: impl ToString) -> Self {
        Self { error: HttpError::Invalid, audit: None, log: why.to_string() }
    }

    /// A request that a grant would allow.
    pub(crate) fn denied(reason: RequestRefusal, secret: Option<SecretName>, log: String) -> Self {
        Self { error: HttpError::Denied, audit: Some((reason, secret)), log }
    }

    /// A secret that this guest does not get here, for whatever reason: that is all it learns.
    pub(crate) fn unavailable(reason: RequestRefusal, secret: Option<SecretName>, log: String) -> Self {
        Self { error: HttpError::SecretUnavailable, audit: Some((reason, secret)), log }
    }

    /// The vault did not release a secret; the store has written it down.
    pub(crate) fn not_released(secret: &SecretName, error: &ReleaseError) -> Self {
        let log = format!("the secret {secret} is not released: {error}");
        Self { error: HttpError::SecretUnavailable, audit: None, log }
    }
}

impl Refused {
    /// Says which secrets went along, where one of them is at fault and the reason does not tell which.
    pub(crate) fn about<'s>(mut self, secrets: impl Iterator<Item = &'s SecretName>) -> Self {
        let names: Vec<&str> = secrets.map(SecretName::as_str).collect();
        if let (HttpError::SecretUnavailable, false) = (self.error, names.is_empty()) {
            self.log = format!("{} ({})", self.log, names.join(", "));
        }
        self
    }
}

impl From<TargetError> for Refused {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Downgrade => Self::denied(RequestRefusal::Rule, None, error.to_string()),
            error => Self::invalid(error),
        }
    }
}

impl From<SlotError> for Refused {
    fn from(error: SlotError) -> Self {
        Self::invalid(error)
    }
}

impl From<Reason> for Refused {
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

impl From<Error> for Refused {
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
