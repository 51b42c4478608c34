//! Release: a value leaves the vault toward one host, in one call that reads the row, checks the host, decrypts
//! and writes down that it did. Nothing is cached: a deleted or replaced secret is so for the next call.

use serde::{Deserialize, Serialize};

use super::access::View;
use super::{FingerprintPrefix, HostName, SecretName, Stored, VaultId};
use crate::audit::{Actor, AuditAction, AuditEntry};
use crate::error::Error;
use crate::ids::{InternId, WorkspaceId};
use crate::secret::Secret;

/// Whose secrets are meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReleaseScope {
    /// The operator's.
    Operator,
    /// A workspace's own.
    Workspace(WorkspaceId),
    /// An intern's: its own entry of the name if there is one, bound to the host or not, else its workspace's.
    Intern(InternId),
}

/// What a value is released for; both go into the audit log.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Purpose {
    /// The provider or tool.
    pub used_by: String,
    /// The request it works for.
    pub request_id: String,
}

/// A value on its way to one host. Neither shown, copied nor compared; wiped when dropped.
pub struct Release {
    name: SecretName,
    host: HostName,
    fingerprint: Option<FingerprintPrefix>,
    value: Secret,
}

impl Release {
    /// Which secret.
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// The one host it may be sent to.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// Which value, without telling it.
    pub fn fingerprint(&self) -> Option<FingerprintPrefix> {
        self.fingerprint
    }

    /// The value, to be written into the request to [`Release::host`] and nowhere else.
    pub fn expose(&self) -> &[u8] {
        self.value.expose()
    }
}

/// Why nothing was released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// There is no such secret for this host: unknown, of another scope, without hosts or bound to other ones.
    /// Which of these it was stands in the audit log alone.
    #[error("no such secret for this host")]
    Unavailable,
    /// A row does not prove to be ours.
    #[error("a row of the vault is damaged")]
    Damaged,
    /// The audit log takes no more records for the moment.
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
            Error::Busy => ReleaseError::Busy,
            error => ReleaseError::Store(error),
        }
    }
}

/// Why nothing was released, for the audit log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseRefusal {
    /// No secret of this name.
    Unknown,
    /// It has no hosts.
    Unbound,
    /// It is bound to other hosts.
    OtherHost,
    /// A row does not prove to be ours.
    Damaged,
}

/// What is to be written down, and the outcome.
pub(crate) type Decision = (AuditEntry, Result<Release, ReleaseError>);
/// The entry that counts, or why there is none.
type Winner = Result<Stored, ReleaseRefusal>;

/// What is asked for.
pub(crate) struct Request<'a> {
    pub(crate) actor: Actor,
    pub(crate) scope: ReleaseScope,
    pub(crate) name: &'a SecretName,
    pub(crate) host: &'a HostName,
    pub(crate) purpose: &'a Purpose,
}

impl Request<'_> {
    /// Decides and decrypts; what is to be written down comes along with the outcome.
    pub(crate) fn decide(&self, view: &View) -> Result<Decision, Error> {
        let (vault, winner) = winner(view, self.scope, self.name)?;
        self.settle(view, vault, winner)
    }

    /// The same, and `None` where the entry that counts is not bound to the host or there is none.
    pub(crate) fn decide_if_bound(&self, view: &View) -> Result<Option<Decision>, Error> {
        let (vault, winner) = winner(view, self.scope, self.name)?;
        match is_bound_to(&winner, self.host) {
            Ok(false) => Ok(None),
            Ok(true) | Err(Error::Damaged) => self.settle(view, vault, winner).map(Some),
            Err(error) => Err(error),
        }
    }

    fn settle(&self, view: &View, vault: VaultId, winner: Winner) -> Result<Decision, Error> {
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
        view: &View,
        vault: VaultId,
        winner: &Stored,
    ) -> Result<Result<Release, ReleaseRefusal>, Error> {
        let Some(hosts) = &winner.metadata.hosts else { return Ok(Err(ReleaseRefusal::Unbound)) };
        if !hosts.contains(self.host) {
            return Ok(Err(ReleaseRefusal::OtherHost));
        }
        let value = match view.value(vault, winner) {
            Err(Error::Damaged) => return Ok(Err(ReleaseRefusal::Damaged)),
            value => value?,
        };
        Ok(Ok(Release {
            name: self.name.clone(),
            host: self.host.clone(),
            fingerprint: winner.metadata.fingerprint.map(|it| it.prefix()),
            value: Secret::from(value),
        }))
    }

    fn released(&self, vault: VaultId, release: &Release) -> AuditAction {
        AuditAction::SecretReleased {
            vault,
            name: self.name.clone(),
            host: self.host.clone(),
            fingerprint: release.fingerprint,
            purpose: self.purpose.clone(),
        }
    }

    fn refused(&self, vault: VaultId, reason: ReleaseRefusal) -> AuditAction {
        AuditAction::ReleaseRefused {
            vault,
            name: self.name.clone(),
            host: self.host.clone(),
            reason,
            purpose: self.purpose.clone(),
        }
    }
}

/// The entry that counts, whether or not it may go to the host.
fn winner(view: &View, scope: ReleaseScope, name: &SecretName) -> Result<(VaultId, Winner), Error> {
    let vault = match scope {
        ReleaseScope::Operator => VaultId::Operator,
        ReleaseScope::Workspace(id) => VaultId::Workspace(id),
        ReleaseScope::Intern(id) => {
            let own = VaultId::Intern(id);
            let intern = match view.intern(id) {
                Err(Error::Lookup(_)) => return Ok((own, Err(ReleaseRefusal::Unknown))),
                intern => intern?,
            };
            match found(view, own, name)? {
                // Nothing of its own: the workspace's counts.
                Err(ReleaseRefusal::Unknown) => VaultId::Workspace(intern.workspace),
                winner => return Ok((own, winner)),
            }
        }
    };
    Ok((vault, found(view, vault, name)?))
}

/// Whether the entry that counts is bound to the host.
pub(crate) fn is_bound(
    view: &View,
    scope: ReleaseScope,
    name: &SecretName,
    host: &HostName,
) -> Result<bool, Error> {
    is_bound_to(&winner(view, scope, name)?.1, host)
}

fn is_bound_to(winner: &Winner, host: &HostName) -> Result<bool, Error> {
    match winner {
        Ok(stored) => Ok(stored.metadata.hosts.as_ref().is_some_and(|hosts| hosts.contains(host))),
        Err(ReleaseRefusal::Damaged) => Err(Error::Damaged),
        Err(_) => Ok(false),
    }
}

fn found(view: &View, vault: VaultId, name: &SecretName) -> Result<Winner, Error> {
    match view.secret(vault, name) {
        Ok(Some(stored)) => Ok(Ok(stored)),
        Ok(None) => Ok(Err(ReleaseRefusal::Unknown)),
        Err(Error::Damaged) => Ok(Err(ReleaseRefusal::Damaged)),
        Err(error) => Err(error),
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
