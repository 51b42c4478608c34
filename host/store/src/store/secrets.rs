//! The vault as the rest of the program sees it. Changes go through the writer; reads see the last commit, on
//! the calling thread, and never wait for it.

use super::Store;
use crate::audit::Actor;
use crate::error::Error;
use crate::ids::{InternId, WorkspaceId};
use crate::pending::{Pending, Place};
use crate::vault::{EffectiveSecret, NewSecret, Page, SecretMetadata, SecretName, VaultId, list};

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
    /// [`Error::Damaged`] when a row of this page does not prove to be ours; [`Error::Engine`],
    /// [`Error::Closed`].
    pub fn list_secrets(
        &self,
        vault: VaultId,
        offset: usize,
        limit: usize,
    ) -> Result<Page<SecretMetadata>, Error> {
        list::secrets(&self.access()?.view(), vault, offset, limit)
    }

    /// Secrets as an intern has them: its own, and those of its workspace that none of its own hides. Order and
    /// limits as for [`Store::list_secrets`].
    ///
    /// # Errors
    /// [`Error::Lookup`] for an intern that is not there, and those of [`Store::list_secrets`].
    pub fn effective_secrets(
        &self,
        intern: InternId,
        offset: usize,
        limit: usize,
    ) -> Result<Page<EffectiveSecret>, Error> {
        list::effective(&self.access()?.view(), intern, offset, limit)
    }
}

#[cfg(test)]
mod tests;
