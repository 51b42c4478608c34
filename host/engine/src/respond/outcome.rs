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

/// How reading one turn ended.
pub(super) struct TurnEnd {
    pub(super) outcome: Outcome,
    /// For a failure: whether it counts against the endpoint.
    pub(super) is_endpoints_fault: bool,
    /// This host stopped reading before the end, and the provider charges for what it has produced.
    pub(super) is_cut_here: bool,
}

impl TurnEnd {
    /// The plugin's events do not make a valid answer. The request may have caused that, so the
    /// endpoint is not blamed, except for an item that the provider must not make.
    pub(super) fn malformed(malformed: Malformed) -> Self {
        let is_endpoints_fault = malformed == Malformed::Forged;
        let is_cut_here = malformed == Malformed::TooLarge;
        Self { outcome: refused(malformed), is_endpoints_fault, is_cut_here }
    }

    /// The provider ended the turn itself.
    pub(super) fn reported(outcome: Outcome) -> Self {
        let is_endpoints_fault =
            matches!(&outcome, Outcome::Failed(refusal) if status_of(refusal.kind) >= 500);
        Self { outcome, is_endpoints_fault, is_cut_here: false }
    }

    /// Reading failed.
    pub(super) fn broken(error: ReadError) -> Self {
        match error {
            // The deadline of the whole request.
            ReadError::Late(Late::Total) => {
                let outcome = host_failed(ErrorKind::Timeout, TIMED_OUT);
                Self { outcome, is_endpoints_fault: false, is_cut_here: true }
            }
            ReadError::Call(error) => {
                tracing::warn!(plugin = %error.plugin, %error, "a provider plugin failed");
                let outcome = host_failed(ErrorKind::ProviderUnavailable, PLUGIN_FAILED);
                Self { outcome, is_endpoints_fault: false, is_cut_here: false }
            }
            ReadError::OutOfMemory => {
                let outcome = host_failed(ErrorKind::ProviderOverloaded, SATURATED);
                Self { outcome, is_endpoints_fault: false, is_cut_here: true }
            }
            ReadError::Late(Late::Step) | ReadError::Upstream(EgressError::TimedOut) => {
                Self::reported(host_failed(ErrorKind::Timeout, STEP_TIMED_OUT))
            }
            ReadError::Upstream(_) | ReadError::TooLong => {
                Self::reported(Outcome::Failed(Refusal::provider_broke()))
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
