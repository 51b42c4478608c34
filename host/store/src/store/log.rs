//! What was done and used: records handed over, read and checked.

use std::net::IpAddr;

use super::Store;
use crate::audit::{self, Actor, AuditAction, AuditEntry, AuditRecord, AuditSummary};
use crate::error::{Error, QueueFull};
use crate::log;
use crate::token::KeyId;
use crate::usage::UsageRow;

/// Tokens from one address that opened nothing, for the audit log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RefusedTokens {
    /// Where from; `None` for many addresses together.
    pub address: Option<IpAddr>,
    /// How many.
    pub tokens: u64,
    /// Keys that some of them were good for once.
    pub keys: Vec<KeyId>,
}

impl Store {
    /// Hands an audit record about refused tokens to the writer without waiting: a kill may cost those of the last
    /// second.
    ///
    /// # Errors
    /// [`QueueFull`] when 4,096 records wait or the store no longer writes.
    pub fn record_refused_tokens(&self, refused: RefusedTokens) -> Result<(), QueueFull> {
        let RefusedTokens { address, tokens, keys } = refused;
        let action = AuditAction::TokensRefused { address, tokens, keys };
        self.0.queue.push_audit(AuditEntry { actor: Actor::System, action })
    }

    /// The newest usage rows, newest first, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`], [`Error::Closed`].
    pub fn usage_rows(&self, limit: usize) -> Result<Vec<UsageRow>, Error> {
        log::usage_rows(&self.database()?.log, limit)
    }

    /// Audit records with numbers above `since`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`], [`Error::Closed`].
    pub fn audit_records(&self, since: u64, limit: usize) -> Result<Vec<AuditRecord>, Error> {
        log::audit_records(&self.database()?.log, since, limit)
    }

    /// Checks the whole audit chain, usage rows included, against the state of this moment.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Closed`]. A broken chain is an answer, not an error.
    pub fn verify_audit(&self) -> Result<AuditSummary, Error> {
        let log = self.database()?.log;
        // Commits made from here on are left out: their head is not this one.
        let tip = self.0.shared.tip();
        audit::verify(&self.0.keys, &tip.head, log::rows_until(&log, tip.seq))
    }
}
