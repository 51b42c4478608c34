//! The outcome of a response after its provider has answered, failed or fallen silent.

use crate::assembler::{Ended, Malformed, Outcome};
use crate::authentication::UsedCredential;
use crate::lifecycle::deadline::{Deadline, Late, STOPPING};
use crate::money::ledger::Unreported;
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

/// How long a client has to keep this host from reading a turn in all, before it may be the reason that the
/// provider ended the connection.
const SLOW_CLIENT: Duration = Duration::from_secs(5);

fn is_slow_client(deadline: &Deadline, held_before: Duration) -> bool {
    deadline.held().saturating_sub(held_before) >= SLOW_CLIENT
}

/// How reading one turn ended.
pub(super) struct TurnEnd {
    pub(super) outcome: Outcome,
    /// For a failure: whether it counts against the endpoint.
    pub(super) is_endpoints_fault: bool,
    /// What is charged beyond what the provider has reported.
    pub(super) unreported: Unreported,
}

impl TurnEnd {
    /// The plugin's events do not make a valid answer. The request may have caused that, so the
    /// endpoint is not blamed, except for an item that the provider must not make.
    pub(super) fn malformed(malformed: Malformed) -> Self {
        let is_endpoints_fault = malformed == Malformed::Forged;
        Self { outcome: refused(malformed), is_endpoints_fault, unreported: Unreported::Arrived }
    }

    /// The provider ended the turn itself.
    pub(super) fn reported(outcome: Outcome) -> Self {
        let is_endpoints_fault =
            matches!(&outcome, Outcome::Failed(refusal) if status_of(refusal.kind) >= 500);
        Self { outcome, is_endpoints_fault, unreported: Unreported::Nothing }
    }

    /// The provider ended the connection before its answer was complete. `held_before` is as for
    /// [`Self::broken`]. A provider does that with a connection that is not read from, and a client must
    /// not get the answer for nothing by being slow.
    pub(super) fn unfinished(deadline: &Deadline, held_before: Duration) -> Self {
        let unreported =
            if is_slow_client(deadline, held_before) { Unreported::Unseen } else { Unreported::Nothing };
        Self { unreported, ..Self::reported(Outcome::Failed(Refusal::provider_broke())) }
    }

    /// The provider or its plugin reported a failure.
    pub(super) fn failure(failure: &Failure) -> Self {
        let end = Self::reported(failed(failure));
        match end.outcome {
            // The client gets an answer, although the provider ends it like a failure, without usage.
            Outcome::Incomplete(_) => Self { unreported: Unreported::Arrived, ..end },
            _ => end,
        }
    }

    /// Reading failed. `held_before` is how long the client had kept this host from reading when the turn
    /// began.
    pub(super) fn broken(error: ReadError, deadline: &Deadline, held_before: Duration) -> Self {
        let cut_here = |kind, message: &'static str| Self {
            outcome: host_failed(kind, message),
            is_endpoints_fault: false,
            unreported: Unreported::Arrived,
        };
        let broke = || Self::reported(Outcome::Failed(Refusal::provider_broke()));
        match error {
            ReadError::Late(Late::Total) => {
                let unreported = if deadline.is_cut_short() {
                    Unreported::Arrived
                } else if is_slow_client(deadline, held_before) {
                    Unreported::Unseen
                } else {
                    Unreported::Produced
                };
                Self { unreported, ..cut_here(ErrorKind::Timeout, TIMED_OUT) }
            }
            ReadError::Call(error) => {
                tracing::warn!(plugin = %error.plugin, %error, "a provider plugin failed");
                cut_here(ErrorKind::ProviderUnavailable, PLUGIN_FAILED)
            }
            ReadError::OutOfMemory => cut_here(ErrorKind::ProviderOverloaded, SATURATED),
            ReadError::Late(Late::Step) | ReadError::Upstream(EgressError::TimedOut) => Self {
                unreported: Unreported::Arrived,
                ..Self::reported(host_failed(ErrorKind::Timeout, STEP_TIMED_OUT))
            },
            ReadError::Upstream(EgressError::TooLarge) | ReadError::TooLong => {
                Self { unreported: Unreported::Arrived, ..broke() }
            }
            ReadError::Upstream(_) => Self::unfinished(deadline, held_before),
            ReadError::Guest(failure) => Self::failure(&failure),
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

fn failed(failure: &Failure) -> Outcome {
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
