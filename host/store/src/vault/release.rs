//! Release of a secret's value for one host, in one call that reads the row, checks the host,
//! decrypts, and makes the audit entry. No value is kept: a deleted or replaced secret counts from
//! the next call on.

use super::{Stored, access::VaultSnapshot};
use crate::audit::{Actor, AuditAction, AuditEntry, Purpose, ReleaseRefusal};
use crate::error::Error;
use crate::ids::{InternId, VaultId, WorkspaceId};
use crate::secret::{FingerprintPrefix, HostName, Secret, SecretName};
use crate::state::Gap;

/// Whose secrets are searched.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReleaseScope {
    /// The operator's vault.
    Operator,
    /// A workspace's vault.
    Workspace(WorkspaceId),
    /// An intern's vault, then its workspace's. If the intern has a secret of the name, it counts
    /// even if it is not bound to the host.
    Intern(InternId),
}

/// The name of a secret, and the host to which it must be bound.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BoundSecret {
    /// The name in the vault.
    pub name: SecretName,
    /// The host it is sent to.
    pub host: HostName,
}

/// A request for a release.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// On whose behalf it is released.
    pub actor: Actor,
    /// Whose secrets are searched.
    pub scope: ReleaseScope,
    /// The secret and its host.
    pub secret: BoundSecret,
    /// What it is released for.
    pub purpose: Purpose,
}

/// A value released for one host. Has no `Debug`, `Clone` or `Eq`; wiped when dropped.
pub struct Release {
    name: SecretName,
    host: HostName,
    fingerprint: Option<FingerprintPrefix>,
    value: Secret,
    version: SecretVersion,
    audit: Option<u64>,
}

/// Identifies one value of one secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SecretVersion {
    vault: VaultId,
    kid: u32,
    generation: u64,
}

impl Release {
    /// Name of the secret.
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// The only host it may be sent to.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// Identifies the value without revealing it.
    pub fn fingerprint(&self) -> Option<FingerprintPrefix> {
        self.fingerprint
    }

    /// The position of its record in the audit log, where that record was on the disk before the value was released.
    pub fn audit(&self) -> Option<u64> {
        self.audit
    }

    pub(crate) fn version(&self) -> SecretVersion {
        self.version
    }

    pub(crate) fn recorded(self, position: u64) -> Release {
        Release { audit: Some(position), ..self }
    }

    /// The value, to be written into the request to [`Release::host`] and nowhere else.
    pub fn expose(&self) -> &[u8] {
        self.value.expose()
    }
}

/// Why nothing was released, for the caller.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// No such secret for this host: it is unknown, has no hosts, or is bound to others. The audit
    /// log has the exact reason; the caller must not learn it.
    #[error("no such secret for this host")]
    Unavailable,
    /// A row that is needed is damaged.
    #[error("a row of the vault is damaged")]
    Damaged,
    /// The queue of audit entries is full, or this host has no contact with the database of the store.
    #[error("the store is busy")]
    Busy,
    /// The store failed or does not write.
    #[error(transparent)]
    Store(Error),
}

impl From<Error> for ReleaseError {
    fn from(error: Error) -> ReleaseError {
        match error {
            Error::Damaged => ReleaseError::Damaged,
            Error::Busy | Error::NoContact => ReleaseError::Busy,
            error => ReleaseError::Store(error),
        }
    }
}

/// The audit entry, and the outcome.
pub(crate) type Decision = (AuditEntry, Result<Release, ReleaseError>);
/// The secret that counts for a name, or why there is none.
type Winner = Result<Stored, ReleaseRefusal>;

impl ReleaseRequest {
    /// Decides and decrypts. Returns the audit entry together with the outcome.
    pub(crate) fn decide(&self, view: &VaultSnapshot) -> Result<Decision, Gap> {
        let (vault, winner) = winner(view, self.scope, &self.secret.name)?;
        self.settle(view, vault, winner)
    }

    /// Like [`ReleaseRequest::decide`], but `None` when there is no secret, or the one that counts is not
    /// bound to the host.
    pub(crate) fn decide_if_bound(&self, view: &VaultSnapshot) -> Result<Option<Decision>, Gap> {
        let (vault, winner) = winner(view, self.scope, &self.secret.name)?;
        match is_bound_to(&winner, &self.secret.host) {
            Ok(false) => Ok(None),
            Ok(true) | Err(Gap::Failed(Error::Damaged)) => self.settle(view, vault, winner).map(Some),
            Err(gap) => Err(gap),
        }
    }

    /// Whether this version of the secret would be released.
    pub(crate) fn would_release(&self, view: &VaultSnapshot, version: SecretVersion) -> Result<bool, Gap> {
        let (vault, winner) = winner(view, self.scope, &self.secret.name)?;
        let is_bound = is_bound_to(&winner, &self.secret.host)?;
        Ok(is_bound && winner.is_ok_and(|stored| SecretVersion::of(vault, &stored) == version))
    }

    fn settle(&self, view: &VaultSnapshot, vault: VaultId, winner: Winner) -> Result<Decision, Gap> {
        let released = match winner {
            Ok(winner) => self.open(view, vault, &winner)?,
            Err(refusal) => Err(refusal),
        };
        let (action, result) = match released {
            Ok(release) => (self.released(vault, &release), Ok(release)),
            Err(reason) => (self.refused(vault, reason), Err(reason.into())),
        };
        Ok((AuditEntry { actor: self.actor, action }, result))
    }

    fn open(
        &self,
        view: &VaultSnapshot,
        vault: VaultId,
        winner: &Stored,
    ) -> Result<Result<Release, ReleaseRefusal>, Gap> {
        let Some(hosts) = &winner.metadata.hosts else { return Ok(Err(ReleaseRefusal::Unbound)) };
        if !hosts.contains(&self.secret.host) {
            return Ok(Err(ReleaseRefusal::OtherHost));
        }
        let value = match view.value(vault, winner) {
            Err(Gap::Failed(Error::Damaged)) => return Ok(Err(ReleaseRefusal::Damaged)),
            value => value?,
        };
        #[cfg(debug_assertions)]
        crate::canaries::released(&value);
        Ok(Ok(Release {
            name: self.secret.name.clone(),
            host: self.secret.host.clone(),
            fingerprint: winner.metadata.fingerprint.map(|it| it.prefix()),
            value: Secret::from(value),
            version: SecretVersion::of(vault, winner),
            audit: None,
        }))
    }

    fn released(&self, vault: VaultId, release: &Release) -> AuditAction {
        AuditAction::SecretReleased {
            vault,
            name: self.secret.name.clone(),
            host: self.secret.host.clone(),
            fingerprint: release.fingerprint,
            purpose: self.purpose.clone(),
        }
    }

    fn refused(&self, vault: VaultId, reason: ReleaseRefusal) -> AuditAction {
        AuditAction::ReleaseRefused {
            vault,
            name: self.secret.name.clone(),
            host: self.secret.host.clone(),
            reason,
            purpose: self.purpose.clone(),
        }
    }
}

impl SecretVersion {
    fn of(vault: VaultId, stored: &Stored) -> SecretVersion {
        SecretVersion { vault, kid: stored.kid, generation: stored.generation }
    }
}

/// The secret that counts for a name, whether or not it is bound to the host.
fn winner(view: &VaultSnapshot, scope: ReleaseScope, name: &SecretName) -> Result<(VaultId, Winner), Gap> {
    let vault = match scope {
        ReleaseScope::Operator => VaultId::Operator,
        ReleaseScope::Workspace(id) => VaultId::Workspace(id),
        ReleaseScope::Intern(id) => {
            let own = VaultId::Intern(id);
            let intern = match view.intern(id) {
                Err(Gap::Failed(Error::Lookup(_))) => return Ok((own, Err(ReleaseRefusal::Unknown))),
                intern => intern?,
            };
            match found(view, own, name)? {
                // The intern has no secret of this name, so the workspace's counts.
                Err(ReleaseRefusal::Unknown) => VaultId::Workspace(intern.workspace),
                winner => return Ok((own, winner)),
            }
        }
    };
    Ok((vault, found(view, vault, name)?))
}

/// Whether the secret that counts is bound to the host.
pub(crate) fn is_bound(view: &VaultSnapshot, scope: ReleaseScope, secret: &BoundSecret) -> Result<bool, Gap> {
    is_bound_to(&winner(view, scope, &secret.name)?.1, &secret.host)
}

fn is_bound_to(winner: &Winner, host: &HostName) -> Result<bool, Gap> {
    match winner {
        Ok(stored) => Ok(stored.metadata.hosts.as_ref().is_some_and(|hosts| hosts.contains(host))),
        Err(ReleaseRefusal::Damaged) => Err(Error::Damaged.into()),
        Err(_) => Ok(false),
    }
}

fn found(view: &VaultSnapshot, vault: VaultId, name: &SecretName) -> Result<Winner, Gap> {
    match view.secret(vault, name) {
        Ok(Some(stored)) => Ok(Ok(stored)),
        Ok(None) => Ok(Err(ReleaseRefusal::Unknown)),
        Err(Gap::Failed(Error::Damaged)) => Ok(Err(ReleaseRefusal::Damaged)),
        Err(gap) => Err(gap),
    }
}

impl From<ReleaseRefusal> for ReleaseError {
    fn from(reason: ReleaseRefusal) -> ReleaseError {
        match reason {
            ReleaseRefusal::Unknown | ReleaseRefusal::Unbound | ReleaseRefusal::OtherHost => {
                ReleaseError::Unavailable
            }
            ReleaseRefusal::Damaged => ReleaseError::Damaged,
        }
    }
}
