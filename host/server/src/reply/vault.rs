//! The vault's part of the table: statuses and messages of interface.md 7.2.

use std::borrow::Cow;

use cofferdam_store::{QuotaExceeded, QuotaScope};
use http::StatusCode;
use serde_json::{Value, json};

use super::Line;

/// What the vault refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VaultFault {
    /// It is asked on a host name that serves one region.
    Regional,
    /// The key acts in no workspace.
    NoScope,
    /// It is switched off.
    Unavailable,
    /// Clients cannot change anything in it.
    WritesDisabled,
    /// Requests of this key, or refused tokens from this address, come too often.
    TooManyRequests {
        /// How long to wait.
        wait_s: u64,
    },
    /// Something in the request does not have the form it must have.
    Invalid(Flaw),
    /// The vault, or the workspace with its interns, would hold more than it may.
    Full(QuotaExceeded),
    /// A secret without hosts is not copied.
    Unbound,
    /// The time for the request passed before the store took it.
    TooLate,
    /// The store took the request and did not answer in time.
    TimedOut,
    /// What the store holds does not prove to be what was stored.
    InvalidResponse,
    /// The store does not work.
    Failed,
}

/// Which part of a request is wrong, and how. Never what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// Such as `hosts[2]` or `limit`.
    pub(crate) path: Cow<'static, str>,
    /// Such as `must be an exact host name`.
    pub(crate) reason: &'static str,
}

impl Flaw {
    /// A flaw at a path that is always the same.
    pub(crate) fn at(path: &'static str, reason: &'static str) -> Self {
        Self { path: Cow::Borrowed(path), reason }
    }

    /// A flaw in one element of a list.
    pub(crate) fn in_list(list: &'static str, index: usize, reason: &'static str) -> Self {
        Self { path: Cow::Owned(format!("{list}[{index}]")), reason }
    }

    /// What stands in `error.metadata` beside the type.
    pub(super) fn details(&self) -> Value {
        let Self { path, reason } = self;
        json!({"path": path, "reason": reason})
    }
}

impl VaultFault {
    pub(super) fn line(&self) -> Line {
        use StatusCode as S;
        match self {
            Self::Invalid(_) => Line(S::BAD_REQUEST, "invalid_request", "Invalid vault request"),
            Self::Regional => Line(
                S::FORBIDDEN,
                "permission_denied",
                "The Intern API does not support regional data residency yet; use the global endpoint",
            ),
            Self::NoScope => Line(S::FORBIDDEN, "permission_denied", "Vault scope is unavailable"),
            Self::TooLate => Line(S::REQUEST_TIMEOUT, "timeout", "Vault request timed out"),
            Self::Unbound => Line(
                S::CONFLICT,
                "precondition_failed",
                "A secret without hosts cannot be copied; store it again with hosts",
            ),
            Self::Full(_) => Line(S::PAYLOAD_TOO_LARGE, "payload_too_large", "The vault is full"),
            Self::TooManyRequests { .. } => {
                Line(S::TOO_MANY_REQUESTS, "rate_limit_exceeded", "Too many vault requests")
            }
            Self::InvalidResponse => Line(S::BAD_GATEWAY, "server", "Invalid vault response"),
            Self::Failed => Line(S::BAD_GATEWAY, "provider_unavailable", "Vault request failed"),
            Self::Unavailable => {
                Line(S::SERVICE_UNAVAILABLE, "provider_unavailable", "Vault service is unavailable")
            }
            Self::WritesDisabled => {
                Line(S::SERVICE_UNAVAILABLE, "provider_unavailable", "Vault writes are not enabled")
            }
            Self::TimedOut => Line(S::GATEWAY_TIMEOUT, "timeout", "Vault request timed out"),
        }
    }

    /// What stands in `error.metadata` beside the type.
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

    /// The message where it is more than a fixed text.
    pub(super) fn message(&self) -> Option<String> {
        match self {
            Self::Full(exceeded) => Some(format!("The vault is full: {exceeded}; delete secrets first")),
            _ => None,
        }
    }
}
