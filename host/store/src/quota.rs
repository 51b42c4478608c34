//! Quotas: how much a vault may hold, and a workspace together with the vaults of its interns.
//!
//! The size of a vault is in its head. The sum over a workspace is computed from the heads at the
//! first write to the workspace and then kept in memory. Only the writer's thread changes it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::ids::{VaultId, WorkspaceId};

/// A workspace with all its interns may hold this many times the quota of one vault.
const WORKSPACE_FACTOR: u64 = 10;

/// What a vault holds: the number of secrets, and the bytes of their names, hosts and values.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct VaultSize {
    pub(crate) secrets: u64,
    pub(crate) bytes: u64,
}

impl VaultSize {
    /// The size of one secret of `bytes` bytes.
    pub(crate) fn of_secret(bytes: u64) -> VaultSize {
        VaultSize { secrets: 1, bytes }
    }

    pub(crate) fn plus(self, other: VaultSize) -> VaultSize {
        VaultSize {
            secrets: self.secrets.saturating_add(other.secrets),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    pub(crate) fn minus(self, other: VaultSize) -> VaultSize {
        VaultSize {
            secrets: self.secrets.saturating_sub(other.secrets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn of(self, measure: QuotaMeasure) -> u64 {
        match measure {
            QuotaMeasure::Secrets => self.secrets,
            QuotaMeasure::Bytes => self.bytes,
        }
    }
}

/// Quota of one vault. A workspace with its interns may hold ten times as much.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VaultQuota {
    /// Largest number of secrets.
    pub secrets_max: u64,
    /// Largest number of bytes of their names, hosts and values.
    pub bytes_max: u64,
}

impl Default for VaultQuota {
    fn default() -> VaultQuota {
        VaultQuota { secrets_max: 10_000, bytes_max: 64 * 1024 * 1024 }
    }
}

impl VaultQuota {
    fn of(self, measure: QuotaMeasure) -> u64 {
        match measure {
            QuotaMeasure::Secrets => self.secrets_max,
            QuotaMeasure::Bytes => self.bytes_max,
        }
    }
}

/// A quantity that has a quota.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuotaMeasure {
    /// The number of secrets.
    Secrets,
    /// The bytes of their names, hosts and values.
    Bytes,
}

impl QuotaMeasure {
    const ALL: [QuotaMeasure; 2] = [QuotaMeasure::Secrets, QuotaMeasure::Bytes];

    /// The configuration key that sets the quota of one vault.
    pub fn key(self) -> &'static str {
        match self {
            QuotaMeasure::Secrets => "vault.secrets_max",
            QuotaMeasure::Bytes => "vault.bytes_max",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            QuotaMeasure::Secrets => "secrets",
            QuotaMeasure::Bytes => "bytes of names, hosts and values",
        }
    }
}

/// What a quota applies to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuotaScope {
    /// One vault, of a workspace or of an intern.
    Vault,
    /// A workspace with all its interns.
    Workspace,
}

impl QuotaScope {
    /// The scope as it is named in messages.
    fn name(self) -> &'static str {
        match self {
            QuotaScope::Vault => "a vault",
            QuotaScope::Workspace => "a workspace with its interns",
        }
    }

    fn limit(self, quota: VaultQuota, measure: QuotaMeasure) -> u64 {
        match self {
            QuotaScope::Vault => quota.of(measure),
            QuotaScope::Workspace => quota.of(measure).saturating_mul(WORKSPACE_FACTOR),
        }
    }
}

/// A change would exceed the quota of a vault, or of a workspace with its interns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QuotaExceeded {
    /// What the quota applies to.
    pub scope: QuotaScope,
    /// The quantity that would exceed it.
    pub measure: QuotaMeasure,
    /// The quota.
    pub max: u64,
}

impl std::error::Error for QuotaExceeded {}

impl fmt::Display for QuotaExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuotaExceeded { scope, measure, max } = self;
        let (unit, key) = (measure.unit(), measure.key());
        write!(f, "{} holds at most {max} {unit} (", scope.name())?;
        match scope {
            QuotaScope::Vault => write!(f, "`{key}`)"),
            QuotaScope::Workspace => write!(f, "{WORKSPACE_FACTOR} times `{key}`)"),
        }
    }
}

/// A vault, or a workspace with its interns, holds nine tenths of a quota.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NearQuota {
    scope: QuotaScope,
    vault: VaultId,
    measure: QuotaMeasure,
    max: u64,
    held: u64,
}

impl NearQuota {
    pub(crate) fn log(&self) {
        let NearQuota { scope, vault, measure, max, held } = self;
        let limit = measure.key();
        tracing::warn!(%vault, limit, max, held, "{} holds nine tenths of its limit", scope.name());
    }
}

/// Checks a change from one size to another. A change that does not increase a quantity is never
/// refused. Adds to `near` when the change crosses nine tenths of a quota.
pub(crate) fn check(
    quota: VaultQuota,
    scope: QuotaScope,
    vault: VaultId,
    (before, after): (VaultSize, VaultSize),
    near: &mut Vec<NearQuota>,
) -> Result<(), QuotaExceeded> {
    for measure in QuotaMeasure::ALL {
        let (before, after) = (before.of(measure), after.of(measure));
        let max = scope.limit(quota, measure);
        if after > max && after > before {
            return Err(QuotaExceeded { scope, measure, max });
        }
        if !is_nearly(before, max) && is_nearly(after, max) {
            near.push(NearQuota { scope, vault, measure, max, held: after });
        }
    }
    Ok(())
}

fn is_nearly(held: u64, max: u64) -> bool {
    u128::from(held) * 10 >= u128::from(max) * 9
}

/// The quota in force, and the sums over workspaces computed so far.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    quota: ArcSwap<VaultQuota>,
    sums: Mutex<HashMap<WorkspaceId, VaultSize>>,
}

impl Quotas {
    pub(crate) fn quota(&self) -> VaultQuota {
        **self.quota.load()
    }

    pub(crate) fn set(&self, quota: VaultQuota) {
        self.quota.store(Arc::new(quota));
    }

    /// What a workspace holds with its interns, if it was computed before.
    pub(crate) fn sum(&self, workspace: WorkspaceId) -> Option<VaultSize> {
        self.sums().get(&workspace).copied()
    }

    /// Stores the sums of a write batch; `None` for a deleted workspace.
    pub(crate) fn keep(&self, sums: impl IntoIterator<Item = (WorkspaceId, Option<VaultSize>)>) {
        let mut kept = self.sums();
        for (workspace, sum) in sums {
            match sum {
                Some(sum) => drop(kept.insert(workspace, sum)),
                None => drop(kept.remove(&workspace)),
            }
        }
    }

    fn sums(&self) -> MutexGuard<'_, HashMap<WorkspaceId, VaultSize>> {
        // A panic in another thread cannot leave a sum half updated.
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: VaultQuota = VaultQuota { secrets_max: 10, bytes_max: 100 };

    fn checked(scope: QuotaScope, before: (u64, u64), after: (u64, u64)) -> Result<(), String> {
        let size = |(secrets, bytes)| VaultSize { secrets, bytes };
        let mut near = Vec::new();
        check(QUOTA, scope, VaultId::Operator, (size(before), size(after)), &mut near)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_limit_itself_is_allowed_and_one_more_is_refused_with_the_limit() {
        assert_eq!(checked(QuotaScope::Vault, (9, 0), (10, 100)), Ok(()));
        let secrets = checked(QuotaScope::Vault, (10, 0), (11, 0)).unwrap_err();
        assert_eq!(secrets, "a vault holds at most 10 secrets (`vault.secrets_max`)");
        let bytes = checked(QuotaScope::Vault, (1, 0), (1, 101)).unwrap_err();
        assert!(bytes.contains("at most 100 bytes") && bytes.contains("vault.bytes_max"), "{bytes}");
    }

    #[test]
    fn a_workspace_with_its_interns_holds_ten_times_as_much() {
        assert_eq!(checked(QuotaScope::Workspace, (99, 999), (100, 1000)), Ok(()));
        let secrets = checked(QuotaScope::Workspace, (100, 0), (101, 0)).unwrap_err();
        assert!(secrets.contains("at most 100 secrets (10 times `vault.secrets_max`)"), "{secrets}");
    }

    #[test]
    fn a_vault_over_its_quota_may_shrink_or_keep_its_size() {
        assert_eq!(checked(QuotaScope::Vault, (20, 500), (20, 400)), Ok(()));
        assert_eq!(checked(QuotaScope::Vault, (20, 500), (20, 500)), Ok(()));
        assert!(checked(QuotaScope::Vault, (20, 500), (20, 501)).is_err());
    }
}
