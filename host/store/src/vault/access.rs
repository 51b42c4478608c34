//! Reading the vaults: one consistent view of all keyspaces, and checks of every row that is read.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use ::fjall::{Guard, Readable, Slice, Snapshot};
use zeroize::Zeroizing;

use super::{
    Damage, VaultHead, VaultKeys,
    stored::{Stored, head_key, head_range, name_in, secret_key, secrets_range, vault_of},
};
use crate::audit::VaultPart;
use crate::error::Error;
use crate::fjall::Database;
use crate::ids::{InternId, VaultId};
use crate::lookup::{LookupError, RecordKind};
use crate::quota::{Quotas, VaultSize};
use crate::records::Intern;
use crate::rows::{self, KEYS};
use crate::seal::{KeyRecord, StoreKeys};
use crate::secret::SecretName;

/// Everything that reading and checking needs.
#[derive(Clone)]
pub(crate) struct VaultReader {
    pub(crate) database: Database,
    pub(crate) keys: Arc<StoreKeys>,
    pub(crate) damage: Arc<Damage>,
    pub(crate) quotas: Arc<Quotas>,
}

impl VaultReader {
    pub(crate) fn new(database: Database, keys: Arc<StoreKeys>) -> VaultReader {
        VaultReader { database, keys, damage: Arc::default(), quotas: Arc::default() }
    }

    /// A view of the state after the last commit. Later commits do not change it. Never waits for
    /// the writer.
    pub(crate) fn view(&self) -> VaultSnapshot {
        VaultSnapshot { snapshot: self.database.snapshot(), access: self.clone() }
    }
}

/// The store as of one commit. Should be short-lived: the engine keeps old versions of rows for it.
pub(crate) struct VaultSnapshot {
    snapshot: Snapshot,
    access: VaultReader,
}

impl VaultSnapshot {
    pub(crate) fn keys(&self) -> &Arc<StoreKeys> {
        &self.access.keys
    }

    /// Counts and logs a damaged row.
    pub(crate) fn damaged(&self, vault: VaultId, name: Option<&SecretName>, part: VaultPart) -> Error {
        self.access.damage.found(vault, name, part)
    }

    /// A row of the keyspace `keys`, not checked.
    pub(crate) fn key_row(&self, key: &[u8]) -> Result<Option<Slice>, Error> {
        Ok(self.snapshot.get(&self.access.database.keys, key)?)
    }

    /// Rows of the keyspace `keys` from `start` up to but not including `end`, not checked.
    pub(crate) fn key_rows(
        &self,
        start: &[u8],
        end: &[u8],
    ) -> impl Iterator<Item = Result<(Vec<u8>, Slice), Error>> + use<> {
        let rows = self.snapshot.range(&self.access.database.keys, start..end);
        rows.map(|row| {
            let (key, value) = row.into_inner()?;
            Ok((key.to_vec(), value))
        })
    }

    /// Row keys of vaults' key records after this one, at most `limit`.
    pub(crate) fn vault_records(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let (start, end) = rows::vault_keys_range();
        let start = after.map_or(Bound::Included(start.as_slice()), Bound::Excluded);
        let range = (start, Bound::Included(end.as_slice()));
        let found = self.snapshot.range::<&[u8], _>(&self.access.database.keys, range).take(limit);
        found.map(|row| Ok(row.key()?.to_vec())).collect()
    }

    /// A row of the keyspace with this index in [`rows::KEYSPACES`], not checked.
    pub(crate) fn row(&self, keyspace: usize, key: &[u8]) -> Result<Option<Slice>, Error> {
        let keyspaces = self.access.database.keyspaces();
        let Some((_, keyspace)) = keyspaces.get(keyspace) else { return Ok(None) };
        Ok(self.snapshot.get(keyspace, key)?)
    }

    /// All rows of the keyspace with this index, not checked.
    pub(crate) fn all_rows(&self, keyspace: usize) -> impl Iterator<Item = Guard> + use<> {
        let keyspaces = self.access.database.keyspaces();
        keyspaces.get(keyspace).map(|(_, keyspace)| self.snapshot.iter(keyspace)).into_iter().flatten()
    }

    /// The intern in this view, so that its existence and its secrets are of the same commit.
    pub(crate) fn intern(&self, id: InternId) -> Result<Intern, Error> {
        let key = rows::intern_key(id);
        let row = self.snapshot.get(&self.access.database.keys, &key)?;
        let row = row.ok_or_else(|| LookupError::not_found(RecordKind::Intern, id))?;
        let intern: Option<Intern> = rows::decode(&self.access.keys, KEYS, &key, &row);
        let intern = intern.filter(|intern| intern.id == id);
        intern.ok_or_else(|| self.damaged(VaultId::Intern(id), None, VaultPart::Owner))
    }

    /// Whether the workspace or intern of a vault exists and its row is valid.
    pub(crate) fn has_owner(&self, vault: VaultId) -> Result<bool, Error> {
        let key = match vault {
            VaultId::Workspace(id) => rows::workspace_key(id),
            VaultId::Intern(id) => rows::intern_key(id),
            VaultId::Operator => return Ok(true),
        };
        let row = self.key_row(&key)?;
        Ok(row.is_some_and(|row| rows::checked(&self.access.keys, KEYS, &key, &row).is_some()))
    }

    /// Calls `found` with the vault of every row that belongs to vaults, in any keyspace; with
    /// `None` for a row key that names no vault.
    pub(crate) fn each_vault_row(&self, mut found: impl FnMut(Option<VaultId>)) -> Result<(), Error> {
        let Database { keys, meta, values, .. } = &self.access.database;
        let (start, end) = rows::vault_keys_range();
        for row in self.snapshot.range(keys, start..=end) {
            found(rows::vault_of_keys(&row.key()?));
        }
        for row in self.snapshot.iter(meta).chain(self.snapshot.iter(values)) {
            let key = row.key()?;
            if *key != *rows::MARKER {
                found(vault_of(&key));
            }
        }
        Ok(())
    }

    /// The row of a secret, without its value.
    pub(crate) fn secret(&self, vault: VaultId, name: &SecretName) -> Result<Option<Stored>, Error> {
        let row = self.snapshot.get(&self.access.database.meta, secret_key(vault, name))?;
        row.map(|row| self.decode(vault, name.clone(), &row)).transpose()
    }

    /// The rows of a vault's secrets, in the order of their names.
    pub(crate) fn rows(&self, vault: VaultId) -> impl Iterator<Item = VaultRow> + use<> {
        self.snapshot.range(&self.access.database.meta, secrets_range(vault)).map(VaultRow)
    }

    /// Row keys of all secrets of a vault, in `meta` and in `values`.
    pub(crate) fn keys_of(&self, vault: VaultId) -> Result<BTreeSet<Vec<u8>>, Error> {
        let mut keys = BTreeSet::new();
        for keyspace in [&self.access.database.meta, &self.access.database.values] {
            for row in self.snapshot.range(keyspace, secrets_range(vault)) {
                keys.insert(row.key()?.to_vec());
            }
        }
        Ok(keys)
    }

    /// Decodes a row and checks its MAC for this vault and name.
    pub(crate) fn decode(&self, vault: VaultId, name: SecretName, row: &[u8]) -> Result<Stored, Error> {
        let stored = Stored::decode(&self.access.keys, vault, name.clone(), row);
        stored.ok_or_else(|| self.damaged(vault, Some(&name), VaultPart::Metadata))
    }

    /// Row keys of all heads, including invalid keys in their range.
    pub(crate) fn head_keys(&self) -> Result<Vec<Vec<u8>>, Error> {
        let heads = self.snapshot.range(&self.access.database.meta, head_range());
        heads.map(|row| Ok(row.key()?.to_vec())).collect()
    }

    /// Row keys and encrypted values of a vault.
    pub(crate) fn values(
        &self,
        vault: VaultId,
    ) -> impl Iterator<Item = Result<(Slice, Slice), Error>> + use<> {
        let rows = self.snapshot.range(&self.access.database.values, secrets_range(vault));
        rows.map(|row| Ok(row.into_inner()?))
    }

    /// The head of a vault; `None` for a vault that never had a secret.
    pub(crate) fn head(&self, vault: VaultId) -> Result<Option<VaultHead>, Error> {
        let row = self.snapshot.get(&self.access.database.meta, head_key(vault))?;
        let head = row.map(|row| VaultHead::decode(&self.access.keys, vault, &row));
        head.map(|head| head.ok_or_else(|| self.damaged(vault, None, VaultPart::Head))).transpose()
    }

    /// The quota of vaults, and the sums of workspaces.
    pub(crate) fn quotas(&self) -> &Quotas {
        &self.access.quotas
    }

    /// Length of the encrypted value under a secret's row key; 0 when it is missing.
    pub(crate) fn sealed_bytes(&self, key: &[u8]) -> Result<usize, Error> {
        Ok(self.snapshot.size_of(&self.access.database.values, key)?.unwrap_or(0) as usize)
    }

    /// What a vault holds. A vault with a damaged head counts as empty: it accepts no writes
    /// itself, and the other vaults of its workspace stay usable.
    pub(crate) fn size(&self, vault: VaultId) -> Result<VaultSize, Error> {
        match self.head(vault) {
            Ok(Some(head)) => head.size().map_or_else(|| self.counted(vault), Ok),
            Ok(None) | Err(Error::Damaged) => Ok(VaultSize::default()),
            Err(error) => Err(error),
        }
    }

    /// What a vault holds, counted row by row, for a head of an earlier version, which has no byte
    /// count. Only the value of a damaged row is counted.
    pub(crate) fn counted(&self, vault: VaultId) -> Result<VaultSize, Error> {
        let mut size = VaultSize::default();
        for row in self.rows(vault) {
            let (key, row) = row.pair()?;
            let sealed = self.sealed_bytes(&key)?;
            let name = name_in(&key).map(|(_, name)| name);
            let stored = name.and_then(|name| Stored::decode(&self.access.keys, vault, name, &row));
            let bytes = stored.map_or(sealed as u64, |stored| stored.content_bytes(sealed));
            size = size.plus(VaultSize::of_secret(bytes));
        }
        Ok(size)
    }

    /// The keys of a vault; `None` for a vault that never had a secret.
    pub(crate) fn vault_keys(&self, vault: VaultId) -> Result<Option<VaultKeys>, Error> {
        let key = rows::vault_keys_key(vault);
        let Some(row) = self.snapshot.get(&self.access.database.keys, &key)? else { return Ok(None) };
        let record: Option<KeyRecord> = rows::decode(&self.access.keys, KEYS, &key, &row);
        let keys = record.and_then(|record| VaultKeys::open(&self.access.keys, vault, &record));
        keys.map(Some).ok_or_else(|| self.damaged(vault, None, VaultPart::KeyRecord))
    }

    /// The encrypted value of a secret.
    pub(crate) fn sealed(&self, vault: VaultId, name: &SecretName) -> Result<Slice, Error> {
        let sealed = self.snapshot.get(&self.access.database.values, secret_key(vault, name))?;
        sealed.ok_or_else(|| self.damaged(vault, Some(name), VaultPart::Value))
    }

    /// The decrypted value of a secret.
    pub(crate) fn value(&self, vault: VaultId, stored: &Stored) -> Result<Zeroizing<Vec<u8>>, Error> {
        let keys = self.vault_keys(vault)?.ok_or_else(|| self.damaged(vault, None, VaultPart::KeyRecord))?;
        self.decrypt(vault, stored, &keys, &self.sealed(vault, &stored.metadata.name)?)
    }

    /// Decrypts a secret's value from the encrypted value of the same version.
    pub(crate) fn decrypt(
        &self,
        vault: VaultId,
        stored: &Stored,
        keys: &VaultKeys,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let value = self.opened(vault, stored, keys, sealed);
        value.ok_or_else(|| self.damaged(vault, Some(&stored.metadata.name), VaultPart::Value))
    }

    /// Like [`VaultSnapshot::decrypt`], but does not count or log damage.
    pub(crate) fn opened(
        &self,
        vault: VaultId,
        stored: &Stored,
        keys: &VaultKeys,
        sealed: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        keys.decrypt(stored.kid, &stored.associated_data(&self.access.keys, vault), sealed)
    }
}

/// A row of a range, not read yet.
pub(crate) struct VaultRow(Guard);

impl VaultRow {
    /// Its row key and its bytes.
    pub(crate) fn pair(self) -> Result<(Slice, Slice), Error> {
        Ok(self.0.into_inner()?)
    }

    /// The secret's name from its row key, and its bytes, which are still to be decoded.
    pub(crate) fn named(self, view: &VaultSnapshot, vault: VaultId) -> Result<(SecretName, Slice), Error> {
        let (key, row) = self.pair()?;
        let name = name_in(&key).filter(|(found, _)| *found == vault).map(|(_, name)| name);
        Ok((name.ok_or_else(|| view.damaged(vault, None, VaultPart::RowKey))?, row))
    }
}
