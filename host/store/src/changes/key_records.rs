//! Changes of the header and of the keys that wrap key records.
//!
//! Invariant after every commit: each key that the header names as root or recovery key opens every
//! key record. Therefore a new key is first added to every record, then put in force by one commit,
//! and only then the wrappings by the old key are removed.
//!
//! Which keys are in force is read from the header within the transaction that writes a key record,
//! with a guard that no change of the header holds at the same time. So it makes no difference which
//! host writes it, and whether that host has heard of the change already.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::WriteBatch;
use crate::audit::{Actor, AuditAction};
use crate::error::Error;
use crate::header::Header;
use crate::root_key::{RootKeyId, RootKeyRecord, WrapKey, WrapKeys};
use crate::rows::{self, KEYS, Keyspace};
use crate::seal::{KeyRecord, STORE_KEYS};
use crate::state::{Gap, Guard, RowRange, all, both};

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
        self.put_header(&header)?;
        self.audit(Actor::Operator, action);
        Ok(header)
    }

    /// Stores when the first retired key of a vault may be deleted.
    pub(crate) fn set_retired_keys_due(&mut self, due_ms: Option<u64>) -> Result<Header, Gap> {
        let mut header = self.header()?;
        if header.retired_keys_due_ms != due_ms {
            header.retired_keys_due_ms = due_ms;
            self.put_header(&header)?;
            self.audit(Actor::System, AuditAction::RetiredKeysChecked { due_ms });
        }
        Ok(header)
    }

    fn put_header(&mut self, header: &Header) -> Result<(), Gap> {
        self.put_row(Guard::Store, rows::HEADER.to_vec(), header)?;
        self.changes_header = true;
        self.record_changes += 1;
        Ok(())
    }

    /// Sets the next root key, which must be among the keys of this process. From now on key records are
    /// wrapped under it too.
    pub(crate) fn begin_root_rotation(&mut self, to: &RootKeyRecord) -> Result<Header, Gap> {
        let before = self.header()?;
        if before.next_root.as_ref() == Some(to) {
            return Ok(before);
        }
        let action = AuditAction::RootRotationBegun { from: before.root.id, to: to.id };
        self.change_header(action, |header| header.next_root = Some(to.clone()))
    }

    /// Puts the next root key in force and returns the header after that. A key record that is not
    /// wrapped under it yet, because a process without that key has written it, is wrapped now. `None`
    /// where this is not the next root key any more: another rotation has taken its place.
    pub(crate) fn end_root_rotation(&mut self, to: RootKeyId) -> Result<Option<Header>, Gap> {
        let before = self.header()?;
        if before.root.id == to {
            return Ok(Some(before));
        }
        if before.next_root.as_ref().is_none_or(|next| next.id != to) {
            return Ok(None);
        }
        let under = self.in_force()?;
        let key = under.next.clone().ok_or(Error::Damaged)?;
        self.wrap_rest(&key)?;
        let under = WrapKeys { root: Some(key), next: None, ..under };
        self.put_row(Guard::Store, STORE_KEYS.to_vec(), &self.view.keys().seal(&under)?)?;
        let from = before.root.id;
        let header = self.change_header(AuditAction::RootRotated { from, to }, |header| {
            if let Some(next) = header.next_root.take() {
                header.root = next;
            }
            header.previous_root = Some(from);
            header.untidy = true;
        })?;
        Ok(Some(header))
    }

    /// Announces a recovery key. Once [`KeyRing::introducing`] names it, this process wraps key records
    /// under it too.
    ///
    /// [`KeyRing::introducing`]: crate::root_key::KeyRing::introducing
    pub(crate) fn begin_recovery_key(&mut self, id: RootKeyId) -> Result<Header, Gap> {
        self.check_root_key()?;
        // If the process ends before the new recovery key is in force, wrappings stay behind that
        // no key opens. `untidy` has them removed later.
        self.change_header(AuditAction::RecoveryKeyBegun { id }, |header| {
            header.next_recovery = Some(id);
            header.untidy = true;
        })
    }

    /// Puts the recovery key that this process introduces in force. A key record that is not wrapped
    /// under it yet, because another host has written it, is wrapped now. `None` where another recovery
    /// key has taken its place.
    pub(crate) fn end_recovery_key(&mut self, record: &RootKeyRecord) -> Result<Option<Header>, Gap> {
        if self.header()?.next_recovery != Some(record.id) {
            return Ok(None);
        }
        let under = self.in_force()?;
        let key = under.next_recovery.clone().filter(|key| key.id() == record.id).ok_or(Error::Damaged)?;
        self.wrap_rest(&key)?;
        let under = WrapKeys { recovery: Some(key), next_recovery: None, ..under };
        self.put_row(Guard::Store, STORE_KEYS.to_vec(), &self.view.keys().seal(&under)?)?;
        let action = AuditAction::RecoveryKeyMade { id: record.id };
        let header = self.change_header(action, |header| {
            header.recovery = Some(record.clone());
            header.next_recovery = None;
            header.untidy = true;
        })?;
        Ok(Some(header))
    }

    /// Gives up a recovery key that was announced and is not in force. The process that makes this key finds
    /// another one or none in the header when it would put the key in force, and fails.
    pub(crate) fn forget_next_recovery(&mut self) -> Result<Header, Gap> {
        let mut header = self.header()?;
        if header.next_recovery.take().is_some() {
            self.put_header(&header)?;
        }
        Ok(header)
    }

    /// Notes that no key record has a wrapping by a key that is not in force, if the keys in force are
    /// still those of this header.
    pub(crate) fn end_tidying(&mut self, of: &Header) -> Result<Header, Gap> {
        let header = self.header()?;
        if !header.untidy || !header.has_keys_of(of) {
            return Ok(header);
        }
        self.change_header(AuditAction::OldWrappingsDropped, |header| header.untidy = false)
    }

    /// Rewraps these records under exactly the keys in force at present. Returns how many of them
    /// changed.
    pub(crate) fn rewrap(&mut self, records: &[Vec<u8>]) -> Result<usize, Gap> {
        let found =
            all(records.iter().map(|row| Ok(self.key_record(row)?.map(|record| (row.clone(), record)))))?;
        self.rewrap_records(found.into_iter().flatten().collect())
    }

    fn rewrap_records(&mut self, records: Vec<(Vec<u8>, KeyRecord)>) -> Result<usize, Gap> {
        let keys = Arc::clone(self.view.keys());
        let under = self.in_force()?;
        // The key that another host introduces is not here, but its wrappings are to stay.
        let kept = self.header()?.next_recovery;
        let mut changed = Vec::new();
        for (row, record) in records {
            let wrapped = keys.rewrap(&row, &record, &under, kept).ok_or(Error::Damaged)??;
            if wrapped != record {
                let vault = rows::vault_of_keys(&row).ok_or(Error::Damaged)?;
                changed.push((Guard::Vault(vault), row, wrapped));
            }
        }
        self.hold_all(changed.iter().map(|(guard, ..)| *guard))?;
        for (guard, row, wrapped) in &changed {
            self.put_row(*guard, row.clone(), wrapped)?;
        }
        if !changed.is_empty() {
            self.audit(Actor::Operator, AuditAction::KeyRecordsWrapped { records: changed.len() });
        }
        Ok(changed.len())
    }

    /// Wraps every key record under this key, which is one of those in force, that is not yet.
    fn wrap_rest(&mut self, by: &WrapKey) -> Result<(), Gap> {
        let (first, last) = rows::vault_keys_range();
        let mut records: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let range = RowRange::all(Keyspace::Keys).from(first.clone()).through(last.clone());
        for found in self.view.range(&range)? {
            let (row, value) = found?;
            records.insert(row.to_vec(), Some(value.to_vec()));
        }
        let in_batch = self.rows.range(first..=last).map(|(row, value)| (row.clone(), value.clone()));
        records.extend(in_batch);
        let mut rest = Vec::new();
        for (row, value) in records {
            let Some(value) = value else { continue };
            let record: KeyRecord =
                rows::decode(self.view.keys(), KEYS, &row, &value).ok_or(Error::Damaged)?;
            if !record.wrapped_by().any(|id| id == by.id()) {
                rest.push((row, record));
            }
        }
        self.rewrap_records(rest).map(drop)
    }

    /// The keys that a key record of this transaction is wrapped under. No other transaction changes them
    /// before this one ends.
    pub(super) fn in_force(&self) -> Result<WrapKeys, Gap> {
        let ((), header) = both(self.hold(Guard::Header), self.header())?;
        let keys = self.view.keys();
        let record = match &header.recovery {
            // Another host has made it.
            Some(recovery) if keys.ring().find(recovery.id).is_none() => self.key_record(STORE_KEYS)?,
            _ => None,
        };
        Ok(header.wrap_keys(keys, record.as_ref())?)
    }

    /// A key record as it is in this write batch; `None` for a deleted one.
    pub(super) fn key_record(&self, row: &[u8]) -> Result<Option<KeyRecord>, Gap> {
        let Some(value) = self.key_row(row)? else { return Ok(None) };
        Ok(Some(rows::decode(self.view.keys(), KEYS, row, &value).ok_or(Error::Damaged)?))
    }

    /// Refuses to make key records in a store opened with its recovery key: the root key could not
    /// open them.
    pub(super) fn check_root_key(&self) -> Result<(), Gap> {
        if self.in_force()?.root.is_none() { Err(Error::NoRootKey.into()) } else { Ok(()) }
    }

    fn key_row(&self, row: &[u8]) -> Result<Option<Vec<u8>>, Gap> {
        match self.rows.get(row) {
            Some(value) => Ok(value.clone()),
            None => Ok(self.view.key_row(row)?.map(|value| value.to_vec())),
        }
    }
}
