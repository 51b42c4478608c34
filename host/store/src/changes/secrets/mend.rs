//! Repair after an accepted rollback: recomputes the heads of vaults and removes vaults without an
//! owner.

use std::collections::BTreeSet;

use super::WriteBatch;
use crate::audit::{Actor, AuditAction};
use crate::error::Error;
use crate::ids::VaultId;
use crate::state::{Gap, Guard};
use crate::vault::{Stored, VaultHead, head_key, name_in, vault_of_head};

impl WriteBatch {
    /// Makes every vault consistent: drops rows whose MAC does not match, and recomputes heads that
    /// are missing or do not match the rows. A vault without its keys is deleted: its secrets
    /// cannot be decrypted any more, and no secret could be stored in it. Returns the number of
    /// dropped rows.
    pub(crate) fn mend_vaults(&mut self) -> Result<usize, Gap> {
        self.hold(Guard::Store)?;
        let mut vaults = BTreeSet::new();
        self.view.each_vault_row(|vault| vaults.extend(vault))?;
        let mut dropped = 0;
        for key in self.view.head_keys()? {
            if vault_of_head(&key).is_none() {
                self.vaults.heads.insert(key, None);
                dropped += 1;
            }
        }
        for vault in vaults {
            dropped += self.mend_vault(vault)?;
        }
        Ok(dropped)
    }

    /// Removes a vault whose workspace or intern does not exist. Returns the number of its secrets;
    /// `None` if the vault has an owner.
    pub(crate) fn remove_orphan(&mut self, actor: Actor, vault: VaultId) -> Result<Option<usize>, Gap> {
        match self.check_vault(vault) {
            Err(Gap::Failed(Error::Lookup(_))) => {}
            has_owner => return has_owner.map(|()| None),
        }
        let rows = self.rows_of_vault(vault)?;
        let secrets = rows.len();
        self.drop_vault(vault, rows)?;
        self.audit(actor, AuditAction::OrphanRemoved { vault, secrets });
        Ok(Some(secrets))
    }

    fn mend_vault(&mut self, vault: VaultId) -> Result<usize, Gap> {
        let has_keys = match self.view.vault_keys(vault) {
            Err(Gap::Failed(Error::Damaged)) => false,
            keys => keys?.is_some(),
        };
        if !has_keys {
            let rows = self.rows_of_vault(vault)?;
            let dropped = rows.len();
            self.drop_vault(vault, rows)?;
            return Ok(dropped);
        }
        let (mut counted, mut damaged) = (VaultHead::default(), Vec::new());
        for row in self.view.rows(vault, usize::MAX)? {
            let (key, row) = row?;
            let name = name_in(&key).map(|(_, name)| name);
            match name.and_then(|name| Stored::decode(self.view.keys(), vault, name, &row)) {
                Some(stored) => counted.add(&stored.element(self.view.keys(), &key)),
                None => damaged.push(key.to_vec()),
            }
        }
        let head = match self.view.head(vault) {
            Err(Gap::Failed(Error::Damaged)) => None,
            head => head?,
        };
        if damaged.is_empty() && head.is_some_and(|head| head.matches(&counted)) {
            return Ok(0);
        }
        // If the old version is unknown, the time in milliseconds is used: it is above every
        // version the head can have reached.
        counted.version = head.map_or(self.now_ms, |head| head.version);
        counted.advance();
        self.vaults.heads.insert(head_key(vault), Some(counted.encode(self.view.keys(), vault)));
        let dropped = damaged.len();
        self.vaults.secrets.extend(damaged.into_iter().map(|key| (key, None)));
        Ok(dropped)
    }
}
