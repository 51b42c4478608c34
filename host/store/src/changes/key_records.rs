//! Changes of the header and of what key records are wrapped under.
//!
//! One rule holds after every commit: whatever the header says opens the store opens every key record. So a new
//! key is put on every record first, counts from one commit on, and what it replaces is taken off last.

use super::Draft;
use crate::audit::{Actor, AuditAction};
use crate::database::KEYS;
use crate::error::Error;
use crate::root_key::RootKeyRecord;
use crate::rows::{self, Header};
use crate::seal::{KeyRecord, WrapKey, WrapKeys};

impl Draft {
    /// The header as it is in this draft.
    pub(crate) fn header(&self) -> Result<Header, Error> {
        let row = self.key_row(rows::HEADER)?.ok_or(Error::Damaged)?;
        rows::decode(self.view.keys(), KEYS, rows::HEADER, &row).ok_or(Error::Damaged)
    }

    /// Changes the header, and gives it as it is then.
    pub(crate) fn change_header(
        &mut self,
        action: AuditAction,
        change: impl FnOnce(&mut Header),
    ) -> Result<Header, Error> {
        let mut header = self.header()?;
        change(&mut header);
        self.put_row(rows::HEADER.to_vec(), &header);
        self.audit(Actor::Operator, action);
        Ok(header)
    }

    /// Notes when the first retired key of a vault may be deleted.
    pub(crate) fn set_retired_keys_due(&mut self, due_ms: Option<u64>) -> Result<Header, Error> {
        let mut header = self.header()?;
        if header.retired_keys_due_ms != due_ms {
            header.retired_keys_due_ms = due_ms;
            self.put_row(rows::HEADER.to_vec(), &header);
            self.audit(Actor::System, AuditAction::RetiredKeysChecked { due_ms });
        }
        Ok(header)
    }

    /// From here on key records are wrapped under this as well, which is to be the next root key.
    pub(crate) fn begin_root_rotation(&mut self, to: RootKeyRecord, key: WrapKey) -> Result<Header, Error> {
        let from = self.header()?.root.id;
        let action = AuditAction::RootRotationBegun { from, to: to.id };
        let header = self.change_header(action, |header| header.next_root = Some(to))?;
        self.change_wrap_keys(|keys| keys.next = Some(key));
        Ok(header)
    }

    /// Makes the next root key the one that counts; every vault's key record must be wrapped under it.
    pub(crate) fn end_root_rotation(&mut self) -> Result<Header, Error> {
        let wrap_keys = self.view.keys().wrap_keys();
        let before = self.header()?;
        let (Some(key), Some(to)) = (&wrap_keys.next, &before.next_root) else { return Err(Error::Damaged) };
        if key.id() != to.id {
            return Err(Error::Damaged);
        }
        self.check_wrapped(key)?;
        let under = WrapKeys { root: Some(key.clone()), next: None, ..WrapKeys::clone(&wrap_keys) };
        self.put_row(rows::STORE_KEYS.to_vec(), &self.view.keys().seal(&under)?);
        let from = before.root.id;
        let action = AuditAction::RootRotated { from, to: to.id };
        let header = self.change_header(action, |header| {
            if let Some(next) = header.next_root.take() {
                header.root = next;
            }
            header.previous_root = Some(from);
            header.untidy = true;
        })?;
        self.view.keys().set_wrap_keys(under);
        Ok(header)
    }

    /// From here on key records are wrapped under this as well, which is to be the next recovery key.
    pub(crate) fn begin_recovery_key(&mut self, key: WrapKey) -> Result<Header, Error> {
        self.check_root_key()?;
        // Cut short, this leaves wrappings behind that nothing opens.
        let action = AuditAction::RecoveryKeyBegun { id: key.id() };
        let header = self.change_header(action, |header| header.untidy = true)?;
        self.change_wrap_keys(|keys| keys.next_recovery = Some(key));
        Ok(header)
    }

    /// Makes the next recovery key the one that counts; every vault's key record must be wrapped under it.
    pub(crate) fn end_recovery_key(&mut self, record: RootKeyRecord) -> Result<Header, Error> {
        let wrap_keys = self.view.keys().wrap_keys();
        let key =
            wrap_keys.next_recovery.as_ref().filter(|key| key.id() == record.id).ok_or(Error::Damaged)?;
        self.check_wrapped(key)?;
        let under =
            WrapKeys { recovery: Some(key.clone()), next_recovery: None, ..WrapKeys::clone(&wrap_keys) };
        self.put_row(rows::STORE_KEYS.to_vec(), &self.view.keys().seal(&under)?);
        let action = AuditAction::RecoveryKeyMade { id: record.id };
        let header = self.change_header(action, |header| header.recovery = Some(record))?;
        self.view.keys().set_wrap_keys(under);
        Ok(header)
    }

    /// Wraps these records anew, under everything that counts at this moment and nothing else. Tells how many
    /// were other than that.
    pub(crate) fn rewrap(&mut self, records: &[Vec<u8>]) -> Result<usize, Error> {
        let keys = std::sync::Arc::clone(self.view.keys());
        let under = keys.wrap_keys();
        let mut changed = 0;
        for row in records {
            let Some(record) = self.key_record(row)? else { continue };
            let wrapped = keys.rewrap(row, &record, &under).ok_or(Error::Damaged)??;
            if wrapped != record {
                self.put_row(row.clone(), &wrapped);
                changed += 1;
            }
        }
        if changed > 0 {
            self.audit(Actor::Operator, AuditAction::KeyRecordsWrapped { records: changed });
        }
        Ok(changed)
    }

    /// A key record as it is in this draft; `None` for one that is gone.
    pub(super) fn key_record(&self, row: &[u8]) -> Result<Option<KeyRecord>, Error> {
        let Some(value) = self.key_row(row)? else { return Ok(None) };
        rows::decode(self.view.keys(), KEYS, row, &value).map(Some).ok_or(Error::Damaged)
    }

    /// Whether every vault's key record there will be names this key among those that open it.
    fn check_wrapped(&self, by: &WrapKey) -> Result<(), Error> {
        let (first, last) = rows::vault_keys_range();
        let in_draft = self.rows.range(first..=last).map(|(row, _)| row.clone());
        let mut records = self.view.vault_records(None, usize::MAX)?;
        records.extend(in_draft);
        for row in records {
            let record = self.key_record(&row)?;
            if record.is_some_and(|record| !record.wrapped_by().any(|id| id == by.id())) {
                return Err(Error::Damaged);
            }
        }
        Ok(())
    }

    /// Key records that could never be opened with the root key are not made.
    pub(super) fn check_root_key(&self) -> Result<(), Error> {
        if self.view.keys().wrap_keys().root.is_none() { Err(Error::NoRootKey) } else { Ok(()) }
    }

    fn change_wrap_keys(&self, change: impl FnOnce(&mut WrapKeys)) {
        let mut keys = WrapKeys::clone(&self.view.keys().wrap_keys());
        change(&mut keys);
        self.view.keys().set_wrap_keys(keys);
    }

    fn key_row(&self, row: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self.rows.get(row) {
            Some(value) => Ok(value.clone()),
            None => Ok(self.view.key_row(row)?.map(|value| value.to_vec())),
        }
    }
}
