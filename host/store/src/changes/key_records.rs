//! Changes of the header and of the keys that wrap key records.
//!
//! Invariant after every commit: each key that the header names as root or recovery key opens every
//! key record. Therefore a new key is first added to every record, then put in force by one commit,
//! and only then the wrappings by the old key are removed.

use std::sync::Arc;

use super::WriteBatch;
use crate::audit::{Actor, AuditAction};
use crate::error::Error;
use crate::header::Header;
use crate::root_key::{RootKeyRecord, WrapKey, WrapKeys};
use crate::rows::{self, KEYS};
use crate::seal::{KeyRecord, STORE_KEYS};
use crate::state::{Gap, Guard, all};

#[cfg(feature = "postgres")]
impl WriteBatch {
    /// Whether no store was made yet.
    pub(crate) fn is_new_store(&self) -> Result<bool, Gap> {
        Ok(self.view.key_row(rows::HEADER)?.is_none())
    }
}

impl WriteBatch {
    /// The header as it is in this write batch.
    pub(crate) fn header(&self) -> Result<Header, Gap> {
        let row = self.key_row(rows::HEADER)?.ok_or(Error::Damaged)?;
        Ok(rows::decode(self.view.keys(), KEYS, rows::HEADER, &row).ok_or(Error::Damaged)?)
    }

    /// Changes the header and returns the new one.
    pub(crate) fn change_header(
        &mut self,
        action: AuditAction,
        change: impl FnOnce(&mut Header),
    ) -> Result<Header, Gap> {
        let mut header = self.header()?;
        change(&mut header);
        self.put_row(Guard::Store, rows::HEADER.to_vec(), &header)?;
        self.audit(Actor::Operator, action);
        Ok(header)
    }

    /// Stores when the first retired key of a vault may be deleted.
    pub(crate) fn set_retired_keys_due(&mut self, due_ms: Option<u64>) -> Result<Header, Gap> {
        let mut header = self.header()?;
        if header.retired_keys_due_ms != due_ms {
            header.retired_keys_due_ms = due_ms;
            self.put_row(Guard::Store, rows::HEADER.to_vec(), &header)?;
            self.audit(Actor::System, AuditAction::RetiredKeysChecked { due_ms });
        }
        Ok(header)
    }

    /// Sets the next root key. From now on key records are wrapped under it too.
    pub(crate) fn begin_root_rotation(&mut self, to: &RootKeyRecord, key: &WrapKey) -> Result<Header, Gap> {
        let from = self.header()?.root.id;
        let action = AuditAction::RootRotationBegun { from, to: to.id };
        let header = self.change_header(action, |header| header.next_root = Some(to.clone()))?;
        self.wrap_under(|keys| keys.next = Some(key.clone()));
        Ok(header)
    }

    /// Puts the next root key in force. Every vault's key record must be wrapped under it already.
    pub(crate) fn end_root_rotation(&mut self) -> Result<Header, Gap> {
        let wrap_keys = Arc::clone(&self.under);
        let before = self.header()?;
        let (Some(key), Some(to)) = (&wrap_keys.next, &before.next_root) else {
            return Err(Error::Damaged.into());
        };
        if key.id() != to.id {
            return Err(Error::Damaged.into());
        }
        self.check_wrapped(key)?;
        let under = WrapKeys { root: Some(key.clone()), next: None, ..WrapKeys::clone(&wrap_keys) };
        self.put_row(Guard::Store, STORE_KEYS.to_vec(), &self.view.keys().seal(&under)?)?;
        let from = before.root.id;
        let action = AuditAction::RootRotated { from, to: to.id };
        let header = self.change_header(action, |header| {
            if let Some(next) = header.next_root.take() {
                header.root = next;
            }
            header.previous_root = Some(from);
            header.untidy = true;
        })?;
        self.wrap_keys = Some(under);
        Ok(header)
    }

    /// Sets the next recovery key. From now on key records are wrapped under it too.
    pub(crate) fn begin_recovery_key(&mut self, key: &WrapKey) -> Result<Header, Gap> {
        self.check_root_key()?;
        // If the process ends before the new recovery key is in force, wrappings stay behind that
        // no key opens. `untidy` has them removed later.
        let action = AuditAction::RecoveryKeyBegun { id: key.id() };
        let header = self.change_header(action, |header| header.untidy = true)?;
        self.wrap_under(|keys| keys.next_recovery = Some(key.clone()));
        Ok(header)
    }

    /// Puts the next recovery key in force. Every vault's key record must be wrapped under it
    /// already.
    pub(crate) fn end_recovery_key(&mut self, record: &RootKeyRecord) -> Result<Header, Gap> {
        let wrap_keys = Arc::clone(&self.under);
        let key =
            wrap_keys.next_recovery.as_ref().filter(|key| key.id() == record.id).ok_or(Error::Damaged)?;
        self.check_wrapped(key)?;
        let under =
            WrapKeys { recovery: Some(key.clone()), next_recovery: None, ..WrapKeys::clone(&wrap_keys) };
        self.put_row(Guard::Store, STORE_KEYS.to_vec(), &self.view.keys().seal(&under)?)?;
        let action = AuditAction::RecoveryKeyMade { id: record.id };
        let header = self.change_header(action, |header| header.recovery = Some(record.clone()))?;
        self.wrap_keys = Some(under);
        Ok(header)
    }

    /// Rewraps these records under exactly the keys in force at present. Returns how many of them
    /// changed.
    pub(crate) fn rewrap(&mut self, records: &[Vec<u8>]) -> Result<usize, Gap> {
        let keys = Arc::clone(self.view.keys());
        let under = Arc::clone(&self.under);
        let found = all(records.iter().map(|row| Ok(self.key_record(row)?.map(|record| (row, record)))))?;
        let mut changed = Vec::new();
        for (row, record) in found.into_iter().flatten() {
            let wrapped = keys.rewrap(row, &record, &under).ok_or(Error::Damaged)??;
            if wrapped != record {
                let vault = rows::vault_of_keys(row).ok_or(Error::Damaged)?;
                changed.push((Guard::Vault(vault), row, wrapped));
            }
        }
        self.hold_all(changed.iter().map(|(guard, ..)| *guard))?;
        for (guard, row, wrapped) in &changed {
            self.put_row(*guard, row.to_vec(), wrapped)?;
        }
        if !changed.is_empty() {
            self.audit(Actor::Operator, AuditAction::KeyRecordsWrapped { records: changed.len() });
        }
        Ok(changed.len())
    }

    /// A key record as it is in this write batch; `None` for a deleted one.
    pub(super) fn key_record(&self, row: &[u8]) -> Result<Option<KeyRecord>, Gap> {
        let Some(value) = self.key_row(row)? else { return Ok(None) };
        Ok(Some(rows::decode(self.view.keys(), KEYS, row, &value).ok_or(Error::Damaged)?))
    }

    /// Checks that every vault's key record, after this write batch, has a wrapping by this key.
    fn check_wrapped(&self, by: &WrapKey) -> Result<(), Gap> {
        let (first, last) = rows::vault_keys_range();
        let in_draft = self.rows.range(first..=last).map(|(row, _)| row.clone());
        let mut records = self.view.vault_records(None, usize::MAX)?;
        records.extend(in_draft);
        for record in all(records.iter().map(|row| self.key_record(row)))? {
            if record.is_some_and(|record| !record.wrapped_by().any(|id| id == by.id())) {
                return Err(Error::Damaged.into());
            }
        }
        Ok(())
    }

    /// Refuses to make key records in a store opened with its recovery key: the root key could not
    /// open them.
    pub(super) fn check_root_key(&self) -> Result<(), Error> {
        if self.under.root.is_none() { Err(Error::NoRootKey) } else { Ok(()) }
    }

    /// Changes the keys that key records are wrapped under, from this batch on.
    ///
    /// The end of a rotation changes them after its commit only: until then, readers open records
    /// with the keys in force before.
    fn wrap_under(&mut self, change: impl Fn(&mut WrapKeys)) {
        let mut under = WrapKeys::clone(&self.under);
        let mut after = self.wrap_keys.take().unwrap_or_else(|| under.clone());
        change(&mut under);
        change(&mut after);
        self.under = Arc::new(under);
        self.wrap_keys = Some(after);
    }

    fn key_row(&self, row: &[u8]) -> Result<Option<Vec<u8>>, Gap> {
        match self.rows.get(row) {
            Some(value) => Ok(value.clone()),
            None => Ok(self.view.key_row(row)?.map(|value| value.to_vec())),
        }
    }
}
