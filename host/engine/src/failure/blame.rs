//! Whether a failed attempt counts against the endpoint, and whether the failure passes by itself.

use crate::failure::{AttemptFailure, Cause};
use cofferdam_runtime::wire::ErrorKind;
use std::time::Duration;

/// What a failed attempt counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The endpoint: other requests to it are likely to fail in the same way now.
    Endpoint,
    /// The provider's rate limit: the endpoint works, but should be avoided for a while.
    Limit,
    /// The request, its caller, its client or this host. The endpoint is not blamed.
    Other,
}

impl AttemptFailure {
    pub(crate) fn blame(&self) -> Blame {
        match self.cause {
            // Without a working credential of the operator's every request to the endpoint fails.
            Cause::Endpoint
            | Cause::Unreachable
            | Cause::Credential
            | Cause::NoCredential
            | Cause::Late { total: false, .. } => Blame::Endpoint,
            // The limit of a caller's own credential does not affect other callers.
            Cause::Limited if !self.is_byok => Blame::Limit,
            // A request can make a plugin fail on purpose, and can be the reason for an answer
            // without content, so neither counts against the endpoint.
            Cause::Limited
            | Cause::Request
            | Cause::Dialect
            | Cause::Empty
            | Cause::CallersCredential
            | Cause::Withdrawn
            | Cause::UnfitCredential
            | Cause::Late { total: true, .. }
            | Cause::Saturated
            | Cause::Store
            | Cause::Plugin => Blame::Other,
        }
    }

    /// How long to wait before the same request may be sent again. `None` for a failure that does
    /// not pass by itself, or after which the provider may have charged for an answer.
    pub(crate) fn passes_after(&self) -> Option<Duration> {
        let asked = self.failure.retry_after_ms.map(Duration::from_millis);
        match self.cause {
            Cause::Unreachable => Some(Duration::ZERO),
            Cause::Limited => asked,
            Cause::Endpoint if self.is_overload() => Some(asked.unwrap_or_default()),
            _ => None,
        }
    }

    /// Whether the provider was reached at all.
    pub(crate) fn has_reached(&self) -> bool {
        self.status.is_some() || matches!(self.cause, Cause::Endpoint | Cause::Empty | Cause::Late { .. })
    }

    fn is_overload(&self) -> bool {
        matches!(self.status, Some(503 | 529)) || self.failure.kind == ErrorKind::ProviderOverloaded
    }
}
