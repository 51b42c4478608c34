//! Rotation of vault keys, re-encryption of secrets, and the import of secrets from an older
//! system.

use std::collections::BTreeSet;

use super::{Staged, Vaults, Weighed, WriteBatch, Written};
use crate::audit::{Actor, AuditAction};
use crate::error::Error;
use crate::ids::VaultId;
use crate::secret::SecretName;
use crate::state::{Gap, Guard, all};
use crate::vault::{LegacySecret, VaultSnapshot, secret_key};

/// Result of retiring and deleting keys of one vault.
pub(crate) struct KeysChecked {
    /// Number of keys that were deleted.
    pub(crate) deleted: usize,
    /// When the first retired key may be deleted, Unix milliseconds.
    pub(crate) due_ms: Option<u64>,
}

impl WriteBatch {
    /// Adds a new key to the vault, unless its newest key was made at or after `since_ms`. Returns
    /// the number (kid) of the newest key.
    pub(crate) fn add_vault_key(&mut self, vault: VaultId, since_ms: u64) -> Result<Option<u32>, Gap> {
        let now_ms = self.now_ms;
        // Checked before the vault's keys change in the write batch, so that a refusal changes
        // nothing.
        self.check_root_key()?;
        let Some(opened) = self.vaults.open(&self.view, vault)? else { return Ok(None) };
        if let Some(newest) = opened.keys.encryption.iter().find(|key| Some(key.kid) == opened.keys.active())
            && newest.created_at_ms >= since_ms
        {
            return Ok(Some(newest.kid));
        }
        let kid = opened.keys.add(now_ms)?;
        self.record_changed_keys(vault)?;
        self.audit(Actor::Operator, AuditAction::VaultKeyAdded { vault, kid });
        Ok(Some(kid))
    }

    /// Encrypts these secrets again with the vault's newest key and returns their number. Skips a
    /// secret whose generation is no longer the given one: the mutation that changed it has used
    /// the newest key already.
    pub(crate) fn reencrypt(&mut self, vault: VaultId, secrets: &[(SecretName, u64)]) -> Result<usize, Gap> {
        self.hold(Guard::Vault(vault))?;
        let found = all(secrets.iter().map(|(name, generation)| {
            let before = self.vaults.weighed(&self.view, vault, name)?;
            Ok(before.filter(|before| before.stored.generation == *generation))
        }))?;
        let unchanged = found.into_iter().flatten();
        let staged = all(unchanged.map(|before| self.vaults.restage(&self.view, vault, before)))?;
        let count = staged.len();
        for staged in staged {
            self.vaults.apply(&self.view, staged);
        }
        if count > 0 {
            self.audit(Actor::Operator, AuditAction::SecretsReencrypted { vault, secrets: count });
        }
        Ok(count)
    }

    /// Retires the vault's keys that no secret uses, and deletes keys that were retired long enough
    /// ago.
    pub(crate) fn retire_vault_keys(&mut self, vault: VaultId) -> Result<KeysChecked, Gap> {
        let now_ms = self.now_ms;
        // Checked before the vault's keys change in the write batch, so that a refusal changes
        // nothing.
        self.check_root_key()?;
        let in_use = self.keys_in_use(vault)?;
        let nothing = KeysChecked { deleted: 0, due_ms: None };
        let Some(opened) = self.vaults.open(&self.view, vault)? else { return Ok(nothing) };
        let version = opened.keys.version;
        let retired = opened.keys.retire(&in_use, now_ms);
        let deleted = opened.keys.delete_due(now_ms);
        let checked = KeysChecked { deleted: deleted.len(), due_ms: opened.keys.due_ms() };
        if opened.keys.version != version {
            self.record_changed_keys(vault)?;
        }
        if !retired.is_empty() {
            self.audit(Actor::Operator, AuditAction::VaultKeysRetired { vault, kids: retired });
        }
        if !deleted.is_empty() {
            self.audit(Actor::Operator, AuditAction::VaultKeysDeleted { vault, kids: deleted });
        }
        Ok(checked)
    }

    /// Imports secrets without hosts. An existing secret is kept. Returns the number of secrets
    /// written.
    pub(crate) fn import_legacy(
        &mut self,
        actor: Actor,
        vault: VaultId,
        secrets: &[LegacySecret],
    ) -> Result<u64, Gap> {
        self.check_vault(vault)?;
        let found = all(secrets.iter().map(|secret| {
            let before = self.vaults.secret(&self.view, vault, &secret.name)?;
            Ok(before.is_none().then_some(secret))
        }))?;
        let written: Vec<&LegacySecret> = found.into_iter().flatten().collect();
        let names: Vec<SecretName> = written.iter().map(|secret| secret.name.clone()).collect();
        let staged = all(written.into_iter().map(|LegacySecret { name, value, created_at_ms }| {
            let created_at_ms = created_at_ms.unwrap_or(self.now_ms);
            let place = (vault, name.clone());
            self.vaults.stage(&self.view, created_at_ms, place, None, value.expose())
        }))?;
        self.write(vault, staged)?;
        let count = names.len() as u64;
        if count > 0 {
            self.audit(actor, AuditAction::LegacyImported { vault, names });
        }
        Ok(count)
    }

    fn record_changed_keys(&mut self, vault: VaultId) -> Result<(), Gap> {
        if let Some(Some(opened)) = self.vaults.opened.get_mut(&vault) {
            opened.unrecorded = true;
        }
        self.record_keys(vault)
    }

    /// Numbers of the keys that the vault's secrets are encrypted with, as of this write batch.
    fn keys_in_use(&self, vault: VaultId) -> Result<BTreeSet<u32>, Gap> {
        let mut kids = BTreeSet::new();
        for row in self.view.rows(vault, usize::MAX)? {
            let (name, row) = self.view.split(vault, row?)?;
            if !self.vaults.secrets.contains_key(&secret_key(vault, &name)) {
                kids.insert(self.view.decode(vault, name, &row)?.kid);
            }
        }
        let in_batch = self.vaults.secrets.values().flatten().filter(|written| written.vault == vault);
        kids.extend(in_batch.map(|written| written.stored.kid));
        Ok(kids)
    }
}

impl Vaults {
    /// Encrypts a secret again, unchanged, with the newest key.
    fn restage(&mut self, view: &VaultSnapshot, vault: VaultId, before: Weighed) -> Result<Staged, Gap> {
        let value = self.value(view, vault, &before.stored)?;
        let fresh = self.chance.fresh()?;
        let opened = self.open(view, vault)?.ok_or(Error::Damaged)?;
        let metadata = before.stored.metadata.clone();
        let written = Written::encrypt(view, &opened.keys, vault, metadata, &value, fresh)?;
        Ok(Staged { written, replaces: Some(before) })
    }
}
