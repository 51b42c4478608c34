//! Whose fault a failed attempt was, and whether it passes by itself.

use crate::failure::{AttemptFailure, Cause};
use cofferdam_runtime::wire::ErrorKind;
use std::time::Duration;

/// Whom a failed attempt speaks against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The endpoint: whoever asks it now is likely to fare the same.
    Endpoint,
    /// Nobody, but the provider wants to be left alone by this host for a while.
    Limit,
    /// The request, its caller, its client or this host.
    Other,
}

impl AttemptFailure {
    /// Whom it speaks against.
    pub(crate) fn blame(&self) -> Blame {
        match self.cause {
            // A credential of the operator's that is missing or refused fails every request.
            Cause::Endpoint
            | Cause::Unreachable
            | Cause::Credential
            | Cause::NoCredential
            | Cause::Late { total: false, .. } => Blame::Endpoint,
            // The limit of a caller's own credential is nobody else's.
            Cause::Limited if !self.is_byok => Blame::Limit,
            // A plugin that breaks may have been made to by the request; so may an answer without content.
            Cause::Limited
            | Cause::Request
            | Cause::Dialect
            | Cause::Empty
            | Cause::CallersCredential
            | Cause::Withdrawn
            | Cause::Late { total: true, .. }
            | Cause::Saturated
            | Cause::Plugin => Blame::Other,
        }
    }

    /// How long its provider wants to be left alone before the same request is sent again; none for a failure
    /// that does not pass by itself, or might have been an answer that was paid for.
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
