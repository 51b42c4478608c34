//! The vault, as the rest of the program uses it. Changes go through the writer. Reads run on the
//! calling thread, see the last commit, and never wait for the writer.

use super::Store;
use crate::audit::{Actor, AuditEntry, Purpose};
use crate::error::{Error, QueueFull};
use crate::ids::{InternId, VaultId, WorkspaceId};
use crate::page::Page;
use crate::pending::{Pending, QueuePermit};
use crate::secret::{HostName, SecretMetadata, SecretName};
use crate::vault::{
    EffectiveSecret, NewSecret, Release, ReleaseError, ReleaseScope, VaultSnapshot, list,
    release::{self, Decision, Request},
};

impl Store {
    /// Creates or replaces a secret. A replaced secret keeps its creation date, and gets hosts if
    /// it had none.
    ///
    /// The answer is [`Error::Lookup`] when the workspace or intern does not exist,
    /// [`Error::Quota`], [`Error::NoSpace`], [`Error::Damaged`] when a row it depends on is
    /// damaged, or an error of every mutation.
    pub fn put_secret(&self, place: QueuePermit, actor: Actor, new: NewSecret) -> Pending<SecretMetadata> {
        self.enqueue(place, move |draft| draft.put_secret(actor, new))
    }

    /// Deletes a secret. The answer is [`Error::NoSuchSecret`] for a missing or a legacy secret,
    /// otherwise as for [`Store::put_secret`].
    pub fn delete_secret(
        &self,
        place: QueuePermit,
        actor: Actor,
        vault: VaultId,
        name: SecretName,
    ) -> Pending<()> {
        self.enqueue(place, move |draft| draft.delete_secret(actor, vault, name))
    }

    /// Copies secrets with their hosts from a workspace's vault into an intern's vault, all of them
    /// or none. Secrets of the same names are replaced. The answer has the copies in the order of
    /// `names`.
    ///
    /// The answer is [`Error::NoSuchSecret`] when one is missing, else [`Error::Unbound`] when one
    /// has no hosts, [`Error::OtherWorkspace`] for an intern of another workspace, otherwise as for
    /// [`Store::put_secret`].
    pub fn copy_secrets(
        &self,
        place: QueuePermit,
        actor: Actor,
        workspace: WorkspaceId,
        intern: InternId,
        names: Vec<SecretName>,
    ) -> Pending<Vec<SecretMetadata>> {
        self.enqueue(place, move |draft| draft.copy_secrets(actor, workspace, intern, names))
    }

    /// Lists secrets of a vault in the byte order of their names. Skips the first `offset`, returns
    /// at most `limit`.
    ///
    /// # Errors
    /// [`Error::Lookup`] when the intern does not exist; [`Error::Damaged`] when a row of this page
    /// is damaged; [`Error::Engine`], [`Error::Closed`].
    pub fn list_secrets(
        &self,
        vault: VaultId,
        offset: usize,
        limit: usize,
    ) -> Result<Page<SecretMetadata>, Error> {
        self.read(|view| list::secrets(view, vault, offset, limit))
    }

    /// Lists the secrets an intern can use: its own, and those of its workspace that have none of
    /// these names. Order, `offset` and `limit` as for [`Store::list_secrets`].
    ///
    /// # Errors
    /// As for [`Store::list_secrets`].
    pub fn effective_secrets(
        &self,
        intern: InternId,
        offset: usize,
        limit: usize,
    ) -> Result<Page<EffectiveSecret>, Error> {
        self.read(|view| list::effective(view, intern, offset, limit))
    }

    /// Releases a secret's value for one host. An audit entry, also of a refusal, is handed to the
    /// writer without waiting: a kill of the process may lose those of the last second.
    ///
    /// Reads the disk, and decrypts up to 262,144 bytes, on the calling thread.
    ///
    /// # Errors
    /// See [`ReleaseError`]. [`ReleaseError::Busy`] when 4,096 audit entries wait.
    pub fn release(
        &self,
        actor: Actor,
        scope: ReleaseScope,
        name: &SecretName,
        host: &HostName,
        purpose: &Purpose,
    ) -> Result<Release, ReleaseError> {
        if !self.0.shared.is_running() {
            return Err(self.0.shared.refusal().into());
        }
        let request = Request { actor, scope, name, host, purpose };
        self.hand_out(self.read(|view| request.decide(view))?)
    }

    /// Like [`Store::release`], but returns `None` without an audit entry where
    /// [`Store::is_releasable`] would be false: for callers that then use another credential. Both
    /// are decided on one read of the row.
    ///
    /// # Errors
    /// As for [`Store::release`], except [`ReleaseError::Unavailable`].
    pub fn release_if_bound(
        &self,
        actor: Actor,
        scope: ReleaseScope,
        name: &SecretName,
        host: &HostName,
        purpose: &Purpose,
    ) -> Result<Option<Release>, ReleaseError> {
        if !self.0.shared.is_running() {
            return Err(self.0.shared.refusal().into());
        }
        let request = Request { actor, scope, name, host, purpose };
        let decision = self.read(|view| request.decide_if_bound(view))?;
        decision.map(|decision| self.hand_out(decision)).transpose()
    }

    /// Returns the outcome once the audit entry is in the queue.
    fn hand_out(&self, (entry, released): Decision) -> Result<Release, ReleaseError> {
        self.0.queue.push_audit(entry).map_err(|QueueFull| ReleaseError::Busy)?;
        released
    }

    /// Whether [`Store::release`] would release the secret for this host. Writes no audit entry,
    /// because nothing is released or refused.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Engine`], [`Error::Closed`].
    pub fn is_releasable(
        &self,
        scope: ReleaseScope,
        name: &SecretName,
        host: &HostName,
    ) -> Result<bool, Error> {
        self.read(|view| release::is_bound(view, scope, name, host))
    }

    /// Like [`Store::release`], but the value is returned only after the audit record is on the
    /// disk. Reading and decrypting are done before this function returns.
    pub fn release_recorded(
        &self,
        place: QueuePermit,
        actor: Actor,
        scope: ReleaseScope,
        name: &SecretName,
        host: &HostName,
        purpose: &Purpose,
    ) -> Pending<Release, ReleaseError> {
        let request = Request { actor, scope, name, host, purpose };
        match self.read(|view| request.decide(view)) {
            Ok((entry, released)) => self.enqueue(place, move |draft| {
                draft.record(std::iter::once(entry));
                released
            }),
            Err(error) => Pending::ready(Err(error.into())),
        }
    }

    /// Reads in one view, and adds an audit entry for damage that was found.
    fn read<T, E: From<Error>>(&self, read: impl FnOnce(&VaultSnapshot) -> Result<T, E>) -> Result<T, E> {
        let access = self.access()?;
        let result = read(&access.view());
        for finding in access.damage.take_unreported() {
            // The damage is counted and logged already; with a full queue only the audit entry is
            // lost.
            self.0.queue.push_audit(AuditEntry::of_damage(finding)).unwrap_or_default();
        }
        result
    }
}

#[cfg(test)]
mod tests;
