//! The vault's part of the table of statuses and messages.

use std::borrow::Cow;

use cofferdam_engine::limits::rate::TooOften;
use cofferdam_store::{QuotaExceeded, QuotaScope};
use http::StatusCode;
use serde_json::{Value, json};

use super::{Fault, FaultLine};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VaultFault {
    /// The request came in on a host name that serves a single region.
    Regional,
    /// The key belongs to no workspace.
    NoScope,
    /// The vault is switched off, or the disk has too little space left for changes.
    Unavailable,
    /// Writes by clients are switched off.
    WritesDisabled,
    /// Too many requests of this key, or too many refused tokens from this address.
    TooManyRequests {
        /// How long to wait, in seconds.
        wait_s: u64,
    },
    /// A part of the request is invalid.
    Invalid(FieldError),
    /// The vault, or the workspace with its interns, would exceed a quota.
    Full(QuotaExceeded),
    /// The secret to copy has no hosts, so nothing would limit where the copy is sent.
    Unbound,
    /// The request timed out before the store accepted it: nothing was changed.
    TooLate,
    /// The store accepted the request but did not finish in time: the outcome is unknown.
    TimedOut,
    /// Stored data failed its integrity check.
    InvalidResponse,
    /// The store does not work.
    Failed,
}

/// Which part of a request is invalid and why. It never contains the value itself, which may be a
/// secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// Such as `hosts[2]` or `limit`.
    pub(crate) path: Cow<'static, str>,
    /// Such as `must be an exact host name`.
    pub(crate) reason: &'static str,
}

impl FieldError {
    pub(crate) fn at(path: &'static str, reason: &'static str) -> Self {
        Self { path: Cow::Borrowed(path), reason }
    }

    /// For an element of a list; the path becomes `list[index]`.
    pub(crate) fn in_list(list: &'static str, index: usize, reason: &'static str) -> Self {
        Self { path: Cow::Owned(format!("{list}[{index}]")), reason }
    }

    /// Further members of `error.metadata`.
    pub(super) fn details(&self) -> Value {
        let Self { path, reason } = self;
        json!({"path": path, "reason": reason})
    }
}

impl VaultFault {
    pub(super) fn line(&self) -> FaultLine {
        use StatusCode as S;
        match self {
            Self::Invalid(_) => FaultLine(S::BAD_REQUEST, "invalid_request", "Invalid vault request"),
            Self::Regional => FaultLine(
                S::FORBIDDEN,
                "permission_denied",
                "The Intern API does not support regional data residency yet; use the global endpoint",
            ),
            Self::NoScope => FaultLine(S::FORBIDDEN, "permission_denied", "Vault scope is unavailable"),
            Self::TooLate => FaultLine(S::REQUEST_TIMEOUT, "timeout", "Vault request timed out"),
            Self::Unbound => FaultLine(
                S::CONFLICT,
                "precondition_failed",
                "A secret without hosts cannot be copied; store it again with hosts",
            ),
            Self::Full(_) => FaultLine(S::PAYLOAD_TOO_LARGE, "payload_too_large", "The vault is full"),
            Self::TooManyRequests { .. } => {
                FaultLine(S::TOO_MANY_REQUESTS, "rate_limit_exceeded", "Too many vault requests")
            }
            Self::InvalidResponse => FaultLine(S::BAD_GATEWAY, "server", "Invalid vault response"),
            Self::Failed => FaultLine(S::BAD_GATEWAY, "provider_unavailable", "Vault request failed"),
            Self::Unavailable => {
                FaultLine(S::SERVICE_UNAVAILABLE, "provider_unavailable", "Vault service is unavailable")
            }
            Self::WritesDisabled => {
                FaultLine(S::SERVICE_UNAVAILABLE, "provider_unavailable", "Vault writes are not enabled")
            }
            Self::TimedOut => FaultLine(S::GATEWAY_TIMEOUT, "timeout", "Vault request timed out"),
        }
    }

    /// Further members of `error.metadata`.
    pub(super) fn details(&self) -> Value {
        match self {
            Self::Invalid(flaw) => flaw.details(),
            Self::Full(QuotaExceeded { scope, measure, max }) => {
                let scope = match scope {
                    QuotaScope::Vault => "vault",
                    QuotaScope::Workspace => "workspace",
                };
                json!({"limit": measure.key(), "scope": scope, "max": max})
            }
            _ => Value::Null,
        }
    }

    /// The message, where it is not a fixed text.
    pub(super) fn message(&self) -> Option<String> {
        match self {
            Self::Full(exceeded) => Some(format!("The vault is full: {exceeded}; delete secrets first")),
            _ => None,
        }
    }
}

/// The refusal of a vault request that exceeds its rate limit.
pub(crate) fn too_often(too_often: TooOften) -> Fault {
    Fault::Vault(VaultFault::TooManyRequests { wait_s: too_often.wait_s })
}
