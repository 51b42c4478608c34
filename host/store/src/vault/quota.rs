//! How much a vault may hold, and a workspace with the vaults of its interns.
//!
//! A vault's head knows its own size. The sum over a workspace is added up from the heads when the workspace is first
//! written to, and then kept in memory: only the writer's thread changes it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::VaultId;
use crate::ids::WorkspaceId;

/// How many times the limit of one vault a workspace may hold with all its interns.
const WORKSPACE_FACTOR: u64 = 10;

/// What a vault holds: how many secrets, and the bytes of their names, hosts and values.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct VaultSize {
    pub(crate) secrets: u64,
    pub(crate) bytes: u64,
}

impl VaultSize {
    /// One secret of so many bytes.
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

/// How much one vault may hold. A workspace with its interns may hold ten times as much.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VaultQuota {
    /// Secrets.
    pub secrets_max: u64,
    /// Bytes of their names, hosts and values.
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

/// What is limited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuotaMeasure {
    /// The number of secrets.
    Secrets,
    /// The bytes of their names, hosts and values.
    Bytes,
}

impl QuotaMeasure {
    const ALL: [QuotaMeasure; 2] = [QuotaMeasure::Secrets, QuotaMeasure::Bytes];

    /// The key of the configuration that sets the limit of one vault.
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

/// Whose limit it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuotaScope {
    /// One vault: a workspace's own, or an intern's.
    Vault,
    /// A workspace with all its interns.
    Workspace,
}

impl QuotaScope {
    /// What holds it.
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

/// A change would make a vault, or a workspace with its interns, larger than it may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QuotaExceeded {
    /// Whose limit it is.
    pub scope: QuotaScope,
    /// What is limited.
    pub measure: QuotaMeasure,
    /// The limit.
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

/// Checks that a change from one size to another keeps to the limits. A change that makes nothing larger is never
/// refused. Warns in the log when it crosses nine tenths of a limit.
pub(crate) fn check(
    quota: VaultQuota,
    scope: QuotaScope,
    vault: VaultId,
    (before, after): (VaultSize, VaultSize),
) -> Result<(), QuotaExceeded> {
    for measure in QuotaMeasure::ALL {
        let (before, after) = (before.of(measure), after.of(measure));
        let max = scope.limit(quota, measure);
        if after > max && after > before {
            return Err(QuotaExceeded { scope, measure, max });
        }
        if !is_nearly(before, max) && is_nearly(after, max) {
            let limit = measure.key();
            tracing::warn!(%vault, limit, max, held = after, "{} holds nine tenths of its limit", scope.name());
        }
    }
    Ok(())
}

fn is_nearly(held: u64, max: u64) -> bool {
    u128::from(held) * 10 >= u128::from(max) * 9
}

/// The limits in force, and the sums over workspaces that were added up.
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

    /// What a workspace holds with its interns, if it was added up before.
    pub(crate) fn sum(&self, workspace: WorkspaceId) -> Option<VaultSize> {
        self.sums().get(&workspace).copied()
    }

    /// Keeps the sums that a commit ends with; `None` for a workspace that is gone.
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
        // A panic elsewhere leaves sums that are still sums.
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: VaultQuota = VaultQuota { secrets_max: 10, bytes_max: 100 };

    fn checked(scope: QuotaScope, before: (u64, u64), after: (u64, u64)) -> Result<(), String> {
        let size = |(secrets, bytes)| VaultSize { secrets, bytes };
        check(QUOTA, scope, VaultId::Operator, (size(before), size(after))).map_err(|error| error.to_string())
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
    fn what_holds_too_much_may_shrink_and_be_replaced() {
        assert_eq!(checked(QuotaScope::Vault, (20, 500), (20, 400)), Ok(()));
        assert_eq!(checked(QuotaScope::Vault, (20, 500), (20, 500)), Ok(()));
        assert!(checked(QuotaScope::Vault, (20, 500), (20, 501)).is_err());
    }
}
