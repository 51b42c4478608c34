//! The audit log: one chained record per commit, in the same batch as the changes it records.
//!
//! Each record contains the head of the chain before it; the head after it is a MAC over both. The
//! newest head is in the anchor. Records contain names, ids and decisions, never a value, a token
//! or the content of a request.

mod action;
mod finding;
mod guests;
mod release;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::hex;
use crate::spend::UsageDay;
use crate::token::KeyId;

pub use action::{AuditAction, CopiedSecret};
pub use finding::{VaultFinding, VaultPart};
pub use guests::{Reflection, RefusedRequest, RequestRefusal};
pub use release::{Purpose, ReleaseRefusal};

/// The origin of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// The operator: the command line or the admin socket.
    Operator,
    /// A client that authenticated with this API key.
    Key(KeyId),
    /// The host itself, at the first start or while opening.
    System,
}

impl AuditEntry {
    pub(crate) fn of_damage(finding: VaultFinding) -> AuditEntry {
        let VaultFinding { vault, name, part } = finding;
        AuditEntry { actor: Actor::System, action: AuditAction::DamageFound { vault, name, part } }
    }
}

/// One mutation, or another event that is recorded.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct AuditEntry {
    /// Origin of the change.
    pub actor: Actor,
    /// What was done.
    #[serde(flatten)]
    pub action: AuditAction,
}

/// The audit record of one commit.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct AuditRecord {
    /// Sequence number of the commit.
    pub seq: u64,
    /// Time of the commit, Unix milliseconds.
    pub at_ms: u64,
    /// The head of the chain before this record.
    #[serde(with = "hex")]
    pub(crate) previous: Digest,
    /// The mutations, in the order they were applied.
    pub entries: Vec<AuditEntry>,
    /// Number of usage rows in the commit.
    pub usage_rows: usize,
    /// Digest over those rows, so that they cannot be edited either.
    #[serde(with = "hex")]
    pub(crate) usage_digest: Digest,
}

impl AuditRecord {
    /// Whether sequence numbers may be missing before this record.
    pub(crate) fn accepts_gap(&self) -> bool {
        let accepts = |action: &AuditAction| {
            matches!(action, AuditAction::RollbackAccepted { .. } | AuditAction::ChainsImported { .. })
        };
        self.entries.iter().any(|entry| accepts(&entry.action))
    }

    /// How far other chains were, by the record.
    pub(crate) fn witnessed_chains(&self) -> impl Iterator<Item = ([u8; 16], u64)> {
        let chains = self.entries.iter().filter_map(|entry| match &entry.action {
            AuditAction::ChainsWitnessed { chains } => Some(chains),
            _ => None,
        });
        chains.flatten().filter_map(|(chain, seq)| Some((hex::decode(chain)?.try_into().ok()?, *seq)))
    }

    /// The first day whose usage rows were kept when earlier ones were dropped, by the record.
    pub(crate) fn dropped_before(&self) -> Option<UsageDay> {
        let days = self.entries.iter().filter_map(|entry| match entry.action {
            AuditAction::UsageDropped { before, .. } => Some(before),
            _ => None,
        });
        days.max()
    }

    /// Number and set of the chains that came from a database before this record, if it names them.
    pub(crate) fn imported_chains(&self) -> Option<(u64, Digest)> {
        self.entries.iter().find_map(|entry| match entry.action {
            AuditAction::ChainsImported { chains, ends } => Some((chains, ends)),
            _ => None,
        })
    }
}
