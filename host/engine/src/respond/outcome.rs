//! The outcome of a response after its provider has answered, failed or fallen silent.

use crate::assembler::{Ended, Malformed, Outcome};
use crate::authentication::UsedCredential;
use crate::lifecycle::deadline::{Late, STOPPING};
use crate::plugins::hooks::HELD_BYTES_MAX;
use crate::refusal::{self, PLUGIN_FAILED, PROVIDER_FAILED, Refusal, client_message, is_length};
use crate::upstream::reading::ReadError;
use cofferdam_runtime::wire::{ErrorKind, Failure, FinishReason};
use cofferdam_store::UsageOutcome;
use serde_json::json;

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
            matches!(&outcome, Outcome::Failed(kind, _) if refusal::status_of(*kind) >= 500);
        Self { outcome, is_endpoints_fault, is_cut_here: false }
    }

    /// Reading failed.
    pub(super) fn broken(error: &ReadError) -> Self {
        let outcome = broken(error);
        match error {
            // The deadline of the whole request passed, or a plugin failed.
            ReadError::Late(Late::Total) | ReadError::Call(_) => {
                let is_cut_here = matches!(error, ReadError::Late(_));
                Self { outcome, is_endpoints_fault: false, is_cut_here }
            }
            _ => Self::reported(outcome),
        }
    }
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
    Outcome::Failed(failure.kind, client_message(failure))
}

pub(super) fn refused(malformed: Malformed) -> Outcome {
    tracing::warn!(error = %malformed, "a provider plugin's events do not make an answer");
    Outcome::Failed(ErrorKind::ProviderUnavailable, PLUGIN_FAILED.to_owned())
}

/// The answer is longer than what is held back for hooks. Another attempt would give as much.
pub(super) fn too_long_to_hold() -> Outcome {
    let mib = HELD_BYTES_MAX >> 20;
    let message = format!(
        "The answer is longer than the {mib} MiB that this host holds back for a plugin that looks at answers. \
         Ask for a shorter one, or for one without the plugin."
    );
    Outcome::Failed(ErrorKind::Server, message)
}

fn broken(error: &ReadError) -> Outcome {
    match error {
        ReadError::Late(Late::Total) => {
            Outcome::Failed(ErrorKind::Timeout, "Request timed out. Please try again later.".to_owned())
        }
        ReadError::Call(error) => {
            tracing::warn!(plugin = %error.plugin, %error, "a provider plugin failed");
            Outcome::Failed(ErrorKind::ProviderUnavailable, PLUGIN_FAILED.to_owned())
        }
        _ => failed(&error.failure()),
    }
}

/// The outcome of a request that ended because the host ends.
pub(super) fn cut_short(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Failed(..) => Outcome::Failed(ErrorKind::ProviderOverloaded, STOPPING.to_owned()),
        outcome => outcome,
    }
}

/// Covers the credential in a provider's message, which may repeat it.
pub(super) fn covered(outcome: Outcome, used: Option<&UsedCredential>) -> Outcome {
    match (outcome, used) {
        (Outcome::Failed(kind, message), Some(used)) => {
            Outcome::Failed(kind, used.credential.covered(message))
        }
        (outcome, _) => outcome,
    }
}

pub(super) fn settled(outcome: &Outcome) -> UsageOutcome {
    match outcome {
        Outcome::Completed => UsageOutcome::Completed,
        Outcome::Incomplete(_) => UsageOutcome::Incomplete,
        Outcome::Failed(..) | Outcome::InProgress => UsageOutcome::Failed,
    }
}

/// A whole answer that fails while it is assembled becomes an error, because nothing was sent to
/// the client.
pub(super) fn whole(body: Vec<u8>, outcome: Outcome) -> Result<Vec<u8>, Refusal> {
    match outcome {
        Outcome::Failed(kind, message) => {
            let by_provider = message.starts_with(PROVIDER_FAILED);
            let metadata = Box::new(json!({ "refused_by": if by_provider { "provider" } else { "host" } }));
            Err(Refusal { metadata, ..Refusal::new(502, kind, message) })
        }
        _ => Ok(body),
    }
}
