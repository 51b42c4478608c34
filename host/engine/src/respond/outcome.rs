//! The outcome of a response after its provider has answered, failed or fallen silent.

use crate::assembler::{Ended, Malformed, Outcome};
use crate::authentication::UsedCredential;
use crate::lifecycle::deadline::{Late, STOPPING};
use crate::plugins::hooks::HELD_BYTES_MAX;
use crate::refusal::{
    PLUGIN_FAILED, Refusal, RefusedBy, SATURATED, STEP_TIMED_OUT, TIMED_OUT, client_message, is_length,
    status_of,
};
use crate::upstream::reading::ReadError;
use cofferdam_egress::Error as EgressError;
use cofferdam_runtime::wire::{ErrorKind, Failure, FinishReason};
use cofferdam_store::UsageOutcome;
use std::time::Duration;

/// How long a client has to keep this host from reading, before it may be the reason that the
/// provider ended the connection.
const SLOW_CLIENT: Duration = Duration::from_secs(5);

/// How reading one turn ended.
pub(super) struct TurnEnd {
    pub(super) outcome: Outcome,
    /// For a failure: whether it counts against the endpoint.
    pub(super) is_endpoints_fault: bool,
    /// What is charged beyond what the provider has reported.
    pub(super) unreported: Unreported,
}

/// What is charged for an answer beyond what its provider has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreported {
    /// Nothing: the provider has ended the answer itself.
    Nothing,
    /// The input and what has arrived: the provider has stopped sending.
    Arrived,
    /// Also what the endpoint has produced since, by its measured speed: this host has stopped reading.
    Produced,
}

impl TurnEnd {
    /// The plugin's events do not make a valid answer. The request may have caused that, so the
    /// endpoint is not blamed, except for an item that the provider must not make.
    pub(super) fn malformed(malformed: Malformed) -> Self {
        let is_endpoints_fault = malformed == Malformed::Forged;
        Self { outcome: refused(malformed), is_endpoints_fault, unreported: Unreported::Produced }
    }

    /// The provider ended the turn itself.
    pub(super) fn reported(outcome: Outcome) -> Self {
        let is_endpoints_fault =
            matches!(&outcome, Outcome::Failed(refusal) if status_of(refusal.kind) >= 500);
        Self { outcome, is_endpoints_fault, unreported: Unreported::Nothing }
    }

    /// This host ended the turn, and does not blame the endpoint.
    fn cut_here(outcome: Outcome) -> Self {
        Self { outcome, is_endpoints_fault: false, unreported: Unreported::Produced }
    }

    /// Reading failed. `held` is how long the client kept this host from reading.
    pub(super) fn broken(error: ReadError, held: Duration) -> Self {
        match error {
            // The deadline of the whole request.
            ReadError::Late(Late::Total) => Self::cut_here(host_failed(ErrorKind::Timeout, TIMED_OUT)),
            ReadError::Call(error) => {
                tracing::warn!(plugin = %error.plugin, %error, "a provider plugin failed");
                Self::cut_here(host_failed(ErrorKind::ProviderUnavailable, PLUGIN_FAILED))
            }
            ReadError::OutOfMemory => Self::cut_here(host_failed(ErrorKind::ProviderOverloaded, SATURATED)),
            ReadError::Late(Late::Step) | ReadError::Upstream(EgressError::TimedOut) => {
                let unreported = Unreported::Arrived;
                Self { unreported, ..Self::reported(host_failed(ErrorKind::Timeout, STEP_TIMED_OUT)) }
            }
            ReadError::Upstream(EgressError::TooLarge) | ReadError::TooLong => {
                let unreported = Unreported::Produced;
                Self { unreported, ..Self::reported(Outcome::Failed(Refusal::provider_broke())) }
            }
            ReadError::Upstream(_) => {
                // A provider ends a connection that is not read from. The client must not get the
                // answer for nothing by being slow.
                let is_slow_client = held >= SLOW_CLIENT;
                let unreported = if is_slow_client { Unreported::Arrived } else { Unreported::Nothing };
                Self { unreported, ..Self::reported(Outcome::Failed(Refusal::provider_broke())) }
            }
            ReadError::Guest(failure) => Self::reported(failed(&failure)),
        }
    }
}

/// This host failed.
pub(super) fn host_failed(kind: ErrorKind, message: impl Into<String>) -> Outcome {
    Outcome::Failed(Refusal::broken(RefusedBy::Host, kind, message))
}

pub(super) fn finished(ended: &Ended) -> Outcome {
    match ended.reason {
        FinishReason::Length => Outcome::Incomplete("max_output_tokens"),
        FinishReason::ContentFilter => Outcome::Incomplete("content_filter"),
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) => Outcome::Completed,
    }
}

pub(super) fn failed(failure: &Failure) -> Outcome {
    if is_length(failure.kind) {
        return Outcome::Incomplete("max_output_tokens");
    }
    // Every timeout has the same message and names the host, also one that the provider reports.
    let by = if failure.kind == ErrorKind::Timeout { RefusedBy::Host } else { RefusedBy::Provider };
    Outcome::Failed(Refusal::broken(by, failure.kind, client_message(failure)))
}

pub(super) fn refused(malformed: Malformed) -> Outcome {
    tracing::warn!(error = %malformed, "a provider plugin's events do not make an answer");
    host_failed(ErrorKind::ProviderUnavailable, PLUGIN_FAILED)
}

/// The answer is longer than what is held back for hooks. Another attempt would give as much.
pub(super) fn too_long_to_hold() -> Outcome {
    let mib = HELD_BYTES_MAX >> 20;
    let message = format!(
        "The answer is longer than the {mib} MiB that this host holds back for a plugin that looks at answers. \
         Ask for a shorter one, or for one without the plugin."
    );
    host_failed(ErrorKind::Server, message)
}

/// The outcome of a request that ended because the host ends.
pub(super) fn cut_short(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Failed(_) => host_failed(ErrorKind::ProviderOverloaded, STOPPING),
        outcome => outcome,
    }
}

/// Covers the credential in a provider's message, which may repeat it.
pub(super) fn covered(outcome: Outcome, used: Option<&UsedCredential>) -> Outcome {
    match (outcome, used) {
        (Outcome::Failed(refusal), Some(used)) => {
            let message = used.credential.covered(refusal.message);
            Outcome::Failed(Refusal { message, ..refusal })
        }
        (outcome, _) => outcome,
    }
}

pub(super) fn settled(outcome: &Outcome) -> UsageOutcome {
    match outcome {
        Outcome::Completed => UsageOutcome::Completed,
        Outcome::Incomplete(_) => UsageOutcome::Incomplete,
        Outcome::Failed(_) | Outcome::InProgress => UsageOutcome::Failed,
    }
}
