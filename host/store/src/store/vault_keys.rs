//! Rotation of the vaults' encryption keys: new keys, secrets encrypted again, old keys retired and
//! deleted later.

use super::Store;
use crate::audit::{Actor, AuditAction};
use crate::changes::guarded;
use crate::error::Error;
use crate::header::Header;
use crate::ids::{VaultId, WorkspaceId};
use crate::operation::{Progress, VaultError, tell};
use crate::rows;
use crate::secret::SecretName;
use crate::state::Guard;
use crate::vault::LegacySecret;

/// Number of secrets in one commit: with the longest values 8 MiB. Small in tests, so that a few
/// secrets take several commits.
const BATCH: usize = if cfg!(test) { 3 } else { 32 };

/// Result of a rotation of the vaults' keys.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KeyRotation {
    /// Number of vaults that have a new key.
    pub vaults: u64,
    /// Number of secrets that were encrypted again.
    pub secrets: u64,
    /// Number of keys deleted because they were retired 30 days ago or earlier.
    pub keys_deleted: u64,
}

impl Store {
    /// Gives every vault a new encryption key and encrypts its secrets with it, while the store
    /// stays in service. Continues an earlier rotation that did not finish.
    ///
    /// A key that no secret uses any more is kept for 30 days. Then the next rotation, start or
    /// [`Store::delete_due_vault_keys`] deletes it.
    ///
    /// # Errors
    /// [`VaultError::Busy`], [`VaultError::Stopped`], and those of every mutation.
    pub fn rotate_vault_keys(&self, progress: &mut Progress<'_>) -> Result<KeyRotation, VaultError> {
        let (_alone, header) = self.alone()?;
        let since_ms = match header.key_rotation_since_ms {
            Some(since_ms) => since_ms,
            None => {
                let now_ms = self.0.clock.now_ms();
                let begin = move |header: &mut Header| header.key_rotation_since_ms = Some(now_ms);
                let header = self.submit(guarded([Guard::Store], move |batch| {
                    batch.change_header(AuditAction::KeyRotationBegun, begin)
                }))?;
                self.set_header(header);
                now_ms
            }
        };
        tell(progress, "vaults", 0, 0)?;
        let vaults = self.vaults_with_keys()?;
        let mut done = KeyRotation::default();
        for vault in &vaults {
            self.rotate_keys_of(*vault, since_ms, &mut done, progress)?;
        }
        done.keys_deleted = self.retire_keys_of(&vaults, progress)?;
        let end = |header: &mut Header| header.key_rotation_since_ms = None;
        let header = self.submit(guarded([Guard::Store], move |batch| {
            batch.change_header(AuditAction::KeyRotationEnded, end)
        }))?;
        self.set_header(header);
        Ok(done)
    }

    fn rotate_keys_of(
        &self,
        vault: VaultId,
        since_ms: u64,
        done: &mut KeyRotation,
        progress: &mut Progress<'_>,
    ) -> Result<(), VaultError> {
        let guard = Guard::Vault(vault);
        let add = guarded([guard, Guard::Header], move |batch| batch.add_vault_key(vault, since_ms));
        let Some(kid) = self.submit(add)? else { return Ok(()) };
        done.vaults += 1;
        tell(progress, "secrets", done.secrets, 0)?;
        // Secrets written after this read use the new key already.
        let mut behind = self.secrets_behind(vault, kid)?.into_iter();
        loop {
            let names: Vec<(SecretName, u64)> = behind.by_ref().take(BATCH).collect();
            if names.is_empty() {
                return Ok(());
            }
            done.secrets +=
                self.submit(guarded([guard], move |batch| batch.reencrypt(vault, &names)))? as u64;
            tell(progress, "secrets", done.secrets, 0)?;
        }
    }

    /// Names and generations of the secrets that are not encrypted with this key.
    fn secrets_behind(&self, vault: VaultId, kid: u32) -> Result<Vec<(SecretName, u64)>, Error> {
        let view = self.view()?;
        let mut behind = Vec::new();
        for row in view.rows(vault, usize::MAX)? {
            let (name, row) = view.split(vault, row?)?;
            let stored = view.decode(vault, name.clone(), &row)?;
            if stored.kid != kid {
                behind.push((name, stored.generation));
            }
        }
        Ok(behind)
    }

    /// Retires unused keys, deletes keys that are due, and stores when the next one is due.
    fn retire_keys_of(&self, vaults: &[VaultId], progress: &mut Progress<'_>) -> Result<u64, VaultError> {
        let mut deleted = 0;
        let mut due_ms: Option<u64> = None;
        for (done, vault) in (1..).zip(vaults.iter().copied()) {
            let checked = self.submit(guarded([Guard::Vault(vault), Guard::Header], move |batch| {
                batch.retire_vault_keys(vault)
            }))?;
            deleted += checked.deleted as u64;
            due_ms = due_ms.into_iter().chain(checked.due_ms).min();
            tell(progress, "vaults checked for old keys", done, vaults.len() as u64)?;
        }
        let header = self.submit(guarded([Guard::Store], move |batch| batch.set_retired_keys_due(due_ms)))?;
        self.set_header(header);
        Ok(deleted)
    }

    /// Whether a key of a vault was retired 30 days ago and can be deleted. Reads the header in
    /// memory only.
    pub fn has_due_vault_keys(&self) -> bool {
        // Without the root key no key record can be written.
        self.has_root_key()
            && self.header().retired_keys_due_ms.is_some_and(|due_ms| due_ms <= self.0.clock.now_ms())
    }

    /// Deletes vaults' keys that were retired 30 days ago, if there are any, while the store stays
    /// in service.
    ///
    /// # Errors
    /// [`VaultError::Busy`], [`VaultError::Stopped`], and those of every mutation.
    pub fn delete_due_vault_keys(&self, progress: &mut Progress<'_>) -> Result<(), VaultError> {
        if !self.has_due_vault_keys() {
            return Ok(());
        }
        let _alone = self.alone()?;
        self.delete_due(progress)
    }

    /// Like [`Store::delete_due_vault_keys`], for callers that hold the lock of [`Store::alone`].
    pub(super) fn delete_due(&self, progress: &mut Progress<'_>) -> Result<(), VaultError> {
        if self.has_due_vault_keys() {
            let deleted = self.retire_keys_of(&self.vaults_with_keys()?, progress)?;
            tracing::info!(deleted, "deleted keys of vaults that were retired 30 days ago");
        }
        Ok(())
    }

    fn vaults_with_keys(&self) -> Result<Vec<VaultId>, Error> {
        let records = self.view()?.vault_records(None, usize::MAX)?;
        records.iter().map(|row| rows::vault_of_keys(row).ok_or(Error::Damaged)).collect()
    }

    /// Imports secrets of an older system into a workspace's vault, in one commit. They have
    /// neither hosts nor a fingerprint and cannot be released. An existing secret is kept. Returns
    /// the number of secrets written.
    ///
    /// # Errors
    /// [`Error::Lookup`], and those of every mutation.
    pub fn import_legacy(
        &self,
        actor: Actor,
        workspace: WorkspaceId,
        secrets: Vec<LegacySecret>,
    ) -> Result<u64, Error> {
        let vault = VaultId::Workspace(workspace);
        let guard = Guard::Vault(vault);
        self.submit(guarded([guard], move |batch| batch.import_legacy(actor, vault, &secrets)))
    }
}

#[cfg(test)]
mod tests;
