//! The audit log and the usage rows: written, read and checked.

use std::net::IpAddr;

use super::Store;
use crate::audit::{Actor, AuditAction, AuditEntry, AuditRecord};
use crate::error::{Error, QueueFull};
use crate::ids::WorkspaceId;
use crate::token::KeyId;
use crate::usage::UsageRow;

/// Invalid tokens that one address used, for the audit log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RefusedTokens {
    /// The address of the client; `None` for several addresses together.
    pub address: Option<IpAddr>,
    /// Number of tokens.
    pub tokens: u64,
    /// Revoked, disabled or expired keys among them.
    pub keys: Vec<KeyId>,
}

impl Store {
    /// Hands an audit entry about refused tokens to the writer without waiting: a kill of the
    /// process may lose those of the last second.
    ///
    /// # Errors
    /// [`QueueFull`] when 4,096 entries wait or the store no longer writes.
    pub fn record_refused_tokens(&self, refused: RefusedTokens) -> Result<(), QueueFull> {
        let RefusedTokens { address, tokens, keys } = refused;
        let action = AuditAction::TokensRefused { address, tokens, keys };
        self.0.queues.push_audit(AuditEntry { actor: Actor::System, action })
    }

    /// Hands an audit entry about a request of the console's playground to the writer without
    /// waiting: a kill of the process may lose those of the last second.
    ///
    /// # Errors
    /// [`QueueFull`] when 4,096 entries wait or the store no longer writes.
    pub fn record_playground_use(&self, key: KeyId, workspace: WorkspaceId) -> Result<(), QueueFull> {
        let action = AuditAction::PlaygroundUsed { key, workspace };
        self.0.queues.push_audit(AuditEntry { actor: Actor::Operator, action })
    }

    /// The newest usage rows, newest first, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`], [`Error::Closed`].
    pub async fn usage_rows(&self, limit: usize) -> Result<Vec<UsageRow>, Error> {
        self.aside(move |store| store.0.engine.usage_rows(limit)).await
    }

    /// Audit records after the position `since`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`], [`Error::Closed`].
    pub async fn audit_records(&self, since: u64, limit: usize) -> Result<Vec<AuditRecord>, Error> {
        let placed = self.placed_audit_records(since, limit).await?;
        Ok(placed.into_iter().map(|(_, record)| record).collect())
    }

    /// [`Store::audit_records`], each with its position. In the embedded engine that is the number of
    /// its commit. In a database the commits of each chain have numbers of their own, and positions
    /// order those of all chains.
    ///
    /// # Errors
    /// Those of [`Store::audit_records`].
    pub async fn placed_audit_records(
        &self,
        since: u64,
        limit: usize,
    ) -> Result<Vec<(u64, AuditRecord)>, Error> {
        self.aside(move |store| store.0.engine.audit_records(since, limit)).await
    }

    /// The newest audit records before the position `before`, or the newest of all, oldest first, at most `limit`,
    /// each with its position.
    ///
    /// # Errors
    /// Those of [`Store::audit_records`].
    pub async fn newest_audit_records(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, AuditRecord)>, Error> {
        let before = before.unwrap_or(u64::MAX);
        self.aside(move |store| store.0.engine.audit_records_before(before, limit)).await
    }
}
