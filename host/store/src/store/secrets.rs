//! The vault as the rest of the program sees it. Changes go through the writer; reads see the last commit, on
//! the calling thread, and never wait for it.

use super::Store;
use crate::audit::{Actor, AuditEntry};
use crate::error::{Error, QueueFull};
use crate::ids::{InternId, WorkspaceId};
use crate::operation::{Progress, VaultError};
use crate::pending::{Pending, Place};
use crate::vault::release::{self, Decision, Request};
use crate::vault::{
    EffectiveSecret, HostName, NewSecret, Page, Purpose, Release, ReleaseError, ReleaseScope, SecretMetadata,
    SecretName, VaultId, VaultReport, View, list, verify,
};

impl Store {
    /// Makes or replaces a secret. A name that was there keeps its date, and gets hosts if it had none.
    ///
    /// The answer is [`Error::Lookup`] for a workspace or intern that is not there, [`Error::Damaged`] when a row
    /// that it builds on does not prove to be ours, or one of those of every mutation.
    pub fn put_secret(&self, place: Place, actor: Actor, new: NewSecret) -> Pending<SecretMetadata> {
        self.enqueue(place, move |draft| draft.put_secret(actor, new))
    }

    /// Deletes a secret. The answer is [`Error::NoSuchSecret`] also for a legacy secret, and otherwise as for
    /// [`Store::put_secret`].
    pub fn delete_secret(&self, place: Place, actor: Actor, vault: VaultId, name: SecretName) -> Pending<()> {
        self.enqueue(place, move |draft| draft.delete_secret(actor, vault, name))
    }

    /// Copies secrets with their hosts into an intern's vault, over those of the same names; all or none.
    /// Answers with the copies in the order of the names.
    ///
    /// The answer is [`Error::NoSuchSecret`] when one is missing, else [`Error::Unbound`] when one has no hosts,
    /// [`Error::OtherWorkspace`] for an intern of another workspace, and otherwise as for [`Store::put_secret`].
    pub fn copy_secrets(
        &self,
        place: Place,
        actor: Actor,
        workspace: WorkspaceId,
        intern: InternId,
        names: Vec<SecretName>,
    ) -> Pending<Vec<SecretMetadata>> {
        self.enqueue(place, move |draft| draft.copy_secrets(actor, workspace, intern, names))
    }

    /// Secrets of a vault in the byte order of their names, without the first `offset`, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Lookup`] for an intern that is not there; [`Error::Damaged`] when a row of this page does not
    /// prove to be ours; [`Error::Engine`], [`Error::Closed`].
    pub fn list_secrets(
        &self,
        vault: VaultId,
        offset: usize,
        limit: usize,
    ) -> Result<Page<SecretMetadata>, Error> {
        self.read(|view| list::secrets(view, vault, offset, limit))
    }

    /// Secrets as an intern has them: its own, and those of its workspace that none of its own hides. Order and
    /// limits as for [`Store::list_secrets`].
    ///
    /// # Errors
    /// Those of [`Store::list_secrets`].
    pub fn effective_secrets(
        &self,
        intern: InternId,
        offset: usize,
        limit: usize,
    ) -> Result<Page<EffectiveSecret>, Error> {
        self.read(|view| list::effective(view, intern, offset, limit))
    }

    /// Releases a value toward one host. The audit record, of a refusal too, is handed to the writer and not
    /// waited for: a kill may cost those of the last second.
    ///
    /// Reads the disk, and decrypts up to 262,144 bytes, on the calling thread.
    ///
    /// # Errors
    /// See [`ReleaseError`]. [`ReleaseError::Busy`] when 4,096 audit records wait.
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

    /// The same, and `None` without an audit record where [`Store::is_releasable`] would say no: for whoever has
    /// another credential then. One look at the row decides both.
    ///
    /// # Errors
    /// Those of [`Store::release`], but [`ReleaseError::Unavailable`].
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

    /// Hands out what was decided once the audit record is on its way.
    fn hand_out(&self, (entry, released): Decision) -> Result<Release, ReleaseError> {
        self.0.queue.push_audit(entry).map_err(|QueueFull| ReleaseError::Busy)?;
        released
    }

    /// Whether [`Store::release`] would release the secret to this host. Leaves no audit record: nothing is
    /// released or refused.
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

    /// The same, with the audit record on the disk before the value is handed out. Reading and decrypting is
    /// done before this returns.
    pub fn release_recorded(
        &self,
        place: Place,
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

    /// Checks every row of every vault at one moment: that it proves to be ours, decrypts, belongs to a vault and
    /// is missing nowhere. Takes seconds for a million secrets; the store goes on meanwhile.
    ///
    /// # Errors
    /// [`VaultError::Stopped`], and errors of reading. What does not hold is an answer, not an error.
    pub fn verify_vaults(&self, progress: &mut Progress<'_>) -> Result<VaultReport, VaultError> {
        self.read(|view| verify::verify(view, progress))
    }

    /// Reads at one moment, and tells the audit log of damage that was met.
    fn read<T, E: From<Error>>(&self, read: impl FnOnce(&View) -> Result<T, E>) -> Result<T, E> {
        let access = self.access()?;
        let result = read(&access.view());
        for finding in access.damage.take_unreported() {
            // Counted and in the log already; a full queue costs only the audit record.
            self.0.queue.push_audit(AuditEntry::of_damage(finding)).unwrap_or_default();
        }
        result
    }
}

#[cfg(test)]
mod tests;
