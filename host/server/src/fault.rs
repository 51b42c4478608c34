//! The table of the server's own faults: status, error type and message. A refusal of the engine
//! brings its own status. Messages are fixed texts or name a limit or a field; internal causes go
//! only to the log, with the request id.

use std::borrow::Cow;

use cofferdam_engine::Refusal;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{Error, QuotaExceeded, QuotaScope};
use http::Method;
use http::header::{ALLOW, HeaderName, HeaderValue, UPGRADE, WWW_AUTHENTICATE};
use serde_json::{Value, json};

use crate::limits::admission::Limited;
use crate::limits::rate::KEY_CHANGES_PER_MINUTE;

/// `Retry-After` when no better estimate exists.
const RETRY_AFTER_S: u64 = 1;

/// Every refusal of the server, and refusals of the engine.
#[derive(Debug)]
pub(crate) enum Fault {
    MissingKey,
    /// The token is malformed, unknown, revoked, disabled or expired, or its key does not work on
    /// this route. On a route of the vault also: there is no token.
    InvalidKey,
    /// This kind of key cannot be used for inference.
    NoInference,
    /// The route is for provisioning keys only.
    ManagementOnly,
    /// The resource does not exist, or is hidden from this key.
    NotFound,
    /// A route of another API. The text says what this host serves instead.
    NotServed(&'static str),
    NoUpgrade,
    /// The method is not allowed; the route has these.
    WrongMethod(&'static [Method]),
    /// The path, a header or the body is malformed. The text says which.
    Malformed(&'static str),
    /// A parameter is invalid.
    Flawed(FieldError),
    /// The workspace has the maximum number of keys.
    TooManyKeys,
    /// The key changes other keys too often.
    TooManyChanges {
        /// How long to wait, in seconds.
        wait_s: u64,
    },
    /// The store accepted a change but did not report its outcome in time.
    OutcomeUnknown,
    UriTooLong,
    HeadersTooLarge,
    BodyTooLarge,
    BodyTimedOut,
    /// Too many request bodies are in memory, the store takes no further changes, or this host has no
    /// contact with the database of its store.
    Busy,
    /// The disk has too little space left for changes.
    StoreFull,
    /// A limit of the key or its workspace is exceeded.
    Limited(Box<Limited>),
    /// The request for the vault came in on a host name that serves a single region.
    RegionalHost,
    /// The key belongs to no workspace, and the vault needs one.
    NoScope,
    /// The vault is switched off, or the disk has too little space left for changes.
    VaultUnavailable,
    /// Writes to the vault by clients are switched off.
    VaultWritesDisabled,
    /// Too many vault requests of this key, or too many refused tokens from this address.
    TooManyVaultRequests {
        /// How long to wait, in seconds.
        wait_s: u64,
    },
    /// A part of a vault request is invalid.
    InvalidVaultRequest(FieldError),
    /// The vault, or the workspace with its interns, would exceed a quota.
    VaultFull(QuotaExceeded),
    /// The secret to copy has no hosts, so nothing would limit where the copy is sent.
    UnboundSecret,
    /// The vault request timed out before the store accepted it: nothing was changed.
    VaultTooLate,
    /// The store accepted the vault request but did not finish in time: the outcome is unknown.
    VaultTimedOut,
    /// Stored data failed its integrity check.
    VaultDamaged,
    /// The store does not work.
    VaultFailed,
    /// An internal error; its cause is in the log.
    Internal,
    /// A refusal of the engine, which brings its own status, type and message.
    Refused {
        refusal: Box<Refusal>,
        /// The top-level field for the routing metadata, if the client asked for it.
        field: Option<&'static str>,
    },
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
}

impl Fault {
    /// The fault for records of the store that could not be read.
    pub(crate) fn unread(error: Error) -> Self {
        // The store has logged the reason.
        if matches!(error, Error::NoContact | Error::Busy | Error::NotWritable | Error::Closed) {
            return Self::Busy;
        }
        tracing::error!(%error, "the store could not be read");
        Self::Internal
    }

    /// The table: status, error type and message.
    pub(crate) fn line(&self) -> (u16, ErrorKind, &str) {
        use ErrorKind as K;
        match self {
            Self::MissingKey => (401, K::Authentication, "Missing Authentication header"),
            Self::InvalidKey => (401, K::Authentication, "Invalid or missing API key"),
            Self::NoInference => (403, K::PermissionDenied, "This kind of key cannot be used for inference"),
            Self::ManagementOnly => {
                (403, K::PermissionDenied, "Only management keys can perform this operation")
            }
            Self::NotFound => (404, K::NotFound, "Not found"),
            Self::NotServed(what) => (404, K::NotFound, what),
            Self::NoUpgrade => (
                426,
                K::InvalidRequest,
                "This route is served over HTTP only: send a POST request, with stream set to true for events",
            ),
            Self::WrongMethod(_) => (405, K::InvalidRequest, "Method not allowed"),
            Self::Malformed(what) => (400, K::InvalidRequest, what),
            Self::Flawed(_) => (400, K::InvalidRequest, "Invalid request parameters"),
            Self::TooManyKeys => {
                (409, K::PreconditionFailed, "The workspace has too many keys; delete some first")
            }
            Self::TooManyChanges { .. } | Self::Limited(_) => {
                (429, K::RateLimitExceeded, "Rate limit exceeded")
            }
            Self::OutcomeUnknown => {
                (504, K::Timeout, "It is not known whether the change was made; look before you repeat it")
            }
            Self::UriTooLong => (414, K::InvalidRequest, "Request path and query too long"),
            Self::HeadersTooLarge => (431, K::InvalidRequest, "Request headers too large"),
            Self::BodyTooLarge => (413, K::PayloadTooLarge, "Request payload too large"),
            Self::BodyTimedOut => (408, K::Timeout, "Request body timed out"),
            Self::Busy => (503, K::ProviderOverloaded, "Service temporarily unavailable"),
            Self::StoreFull => {
                (503, K::ProviderUnavailable, "The store of this host is out of space; nothing was changed")
            }
            Self::RegionalHost => (
                403,
                K::PermissionDenied,
                "The Intern API does not support regional data residency yet; use the global endpoint",
            ),
            Self::NoScope => (403, K::PermissionDenied, "Vault scope is unavailable"),
            Self::VaultUnavailable => (503, K::ProviderUnavailable, "Vault service is unavailable"),
            Self::VaultWritesDisabled => (503, K::ProviderUnavailable, "Vault writes are not enabled"),
            Self::TooManyVaultRequests { .. } => (429, K::RateLimitExceeded, "Too many vault requests"),
            Self::InvalidVaultRequest(_) => (400, K::InvalidRequest, "Invalid vault request"),
            Self::VaultFull(_) => (413, K::PayloadTooLarge, "The vault is full"),
            Self::UnboundSecret => (
                409,
                K::PreconditionFailed,
                "A secret without hosts cannot be copied; store it again with hosts",
            ),
            Self::VaultTooLate => (408, K::Timeout, "Vault request timed out"),
            Self::VaultTimedOut => (504, K::Timeout, "Vault request timed out"),
            Self::VaultDamaged => (502, K::Server, "Invalid vault response"),
            Self::VaultFailed => (502, K::ProviderUnavailable, "Vault request failed"),
            Self::Internal => (500, K::Server, "Internal Server Error"),
            Self::Refused { refusal, .. } => (refusal.status, refusal.kind, &refusal.message),
        }
    }

    /// The message of the table, or one that names the limit or the field.
    pub(crate) fn message(&self) -> Cow<'_, str> {
        match self {
            Self::Limited(limited) => limited.message().into(),
            Self::TooManyChanges { .. } => format!(
                "Rate limit exceeded: this host allows this API key {KEY_CHANGES_PER_MINUTE} changes of keys per minute"
            )
            .into(),
            Self::Flawed(FieldError { path, reason }) => format!("{path} {reason}").into(),
            Self::VaultFull(exceeded) => {
                format!("The vault is full: {exceeded}; delete secrets first").into()
            }
            fault => fault.line().2.into(),
        }
    }

    /// Further members of `error.metadata`.
    pub(crate) fn details(&self) -> Value {
        match self {
            Self::Limited(limited) => limited.details(),
            Self::Flawed(FieldError { path, reason })
            | Self::InvalidVaultRequest(FieldError { path, reason }) => {
                json!({"path": path, "reason": reason})
            }
            Self::VaultFull(QuotaExceeded { scope, measure, max }) => {
                let scope = match scope {
                    QuotaScope::Vault => "vault",
                    QuotaScope::Workspace => "workspace",
                };
                json!({"limit": measure.key(), "scope": scope, "max": max})
            }
            Self::Refused { refusal, .. } => (*refusal.metadata).clone(),
            _ => Value::Null,
        }
    }

    /// The routing metadata with the field that the client asked for.
    pub(crate) fn routing(&self) -> Option<(&'static str, &Value)> {
        let Self::Refused { refusal, field } = self else { return None };
        field.zip(refusal.service_metadata.as_deref())
    }

    /// The value of `Retry-After`.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Busy => Some(RETRY_AFTER_S),
            Self::TooManyChanges { wait_s } | Self::TooManyVaultRequests { wait_s } => Some(*wait_s),
            Self::Limited(limited) => Some(limited.wait_s),
            Self::Refused { refusal, .. } => {
                refusal.retry_after_s.or_else(|| matches!(refusal.status, 429 | 503).then_some(RETRY_AFTER_S))
            }
            _ => None,
        }
    }

    /// The header that HTTP requires beside the status.
    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::WrongMethod(methods) => {
                let methods: Vec<&str> = methods.iter().map(Method::as_str).collect();
                Some((ALLOW, HeaderValue::try_from(methods.join(", ")).ok()?))
            }
            // RFC 9110, section 15.5.2: a 401 response must say how to authenticate.
            Self::MissingKey | Self::InvalidKey => {
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            // RFC 9110, section 15.5.22: a 426 response must name the protocols to upgrade to.
            Self::NoUpgrade => Some((UPGRADE, HeaderValue::from_static("HTTP/1.1"))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod page;
