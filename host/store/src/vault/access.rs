//! Reading the vaults: one consistent moment over all keyspaces, every row checked before it is believed.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use fjall::{Guard, Readable, Slice, Snapshot};
use zeroize::Zeroizing;

use super::stored::{Stored, head_key, head_range, name_in, secret_key, secrets_range, vault_of};
use super::{Damage, Head, Quotas, SecretName, VaultId, VaultKeys, VaultPart, VaultSize};
use crate::database::{Database, KEYS};
use crate::directory::{Kind, LookupError};
use crate::error::Error;
use crate::ids::InternId;
use crate::records::Intern;
use crate::rows;
use crate::seal::{KeyRecord, StoreKeys};

/// All that reading and checking needs.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) database: Database,
    pub(crate) keys: Arc<StoreKeys>,
    pub(crate) damage: Arc<Damage>,
    pub(crate) quotas: Arc<Quotas>,
}

impl Access {
    pub(crate) fn new(database: Database, keys: Arc<StoreKeys>) -> Access {
        Access { database, keys, damage: Arc::default(), quotas: Arc::default() }
    }

    /// The state after the last commit; later commits do not change it. Never waits for the writer.
    pub(crate) fn view(&self) -> View {
        View { snapshot: self.database.snapshot(), access: self.clone() }
    }
}

/// The vaults at one moment. Short-lived: it keeps the engine from forgetting what it shows.
pub(crate) struct View {
    snapshot: Snapshot,
    access: Access,
}

impl View {
    pub(crate) fn keys(&self) -> &Arc<StoreKeys> {
        &self.access.keys
    }

    /// Counts and logs a row that does not prove to be ours.
    pub(crate) fn damaged(&self, vault: VaultId, name: Option<&SecretName>, part: VaultPart) -> Error {
        self.access.damage.found(vault, name, part)
    }

    /// A row of the keyspace `keys` as it lies.
    pub(crate) fn key_row(&self, key: &[u8]) -> Result<Option<Slice>, Error> {
        Ok(self.snapshot.get(&self.access.database.keys, key)?)
    }

    /// Rows of the keyspace `keys` from one key up to another that is not among them, as they lie.
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

    /// The keys of vaults' key records that come after this one, at most `limit`.
    pub(crate) fn vault_records(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let (start, end) = rows::vault_keys_range();
        let start = after.map_or(Bound::Included(start.as_slice()), Bound::Excluded);
        let range = (start, Bound::Included(end.as_slice()));
        let found = self.snapshot.range::<&[u8], _>(&self.access.database.keys, range).take(limit);
        found.map(|row| Ok(row.key()?.to_vec())).collect()
    }

    /// A row as it lies, in the keyspace of this number in the reporting order.
    pub(crate) fn row(&self, keyspace: usize, key: &[u8]) -> Result<Option<Slice>, Error> {
        let keyspaces = self.access.database.keyspaces();
        let Some((_, keyspace)) = keyspaces.get(keyspace) else { return Ok(None) };
        Ok(self.snapshot.get(keyspace, key)?)
    }

    /// All rows of a keyspace, by its number in the reporting order.
    pub(crate) fn all_rows(&self, keyspace: usize) -> impl Iterator<Item = Guard> + use<> {
        let keyspaces = self.access.database.keyspaces();
        keyspaces.get(keyspace).map(|(_, keyspace)| self.snapshot.iter(keyspace)).into_iter().flatten()
    }

    /// The intern as of this moment, so that its secrets and its existence are never of two moments.
    pub(crate) fn intern(&self, id: InternId) -> Result<Intern, Error> {
        let key = rows::intern_key(id);
        let row = self.snapshot.get(&self.access.database.keys, &key)?;
        let row = row.ok_or_else(|| LookupError::not_found(Kind::Intern, id))?;
        let intern: Option<Intern> = rows::decode(&self.access.keys, KEYS, &key, &row);
        let intern = intern.filter(|intern| intern.id == id);
        intern.ok_or_else(|| self.damaged(VaultId::Intern(id), None, VaultPart::Owner))
    }

    /// Whether the workspace or intern of a vault is there and proves to be ours.
    pub(crate) fn has_owner(&self, vault: VaultId) -> Result<bool, Error> {
        let key = match vault {
            VaultId::Workspace(id) => rows::workspace_key(id),
            VaultId::Intern(id) => rows::intern_key(id),
            VaultId::Operator => return Ok(true),
        };
        let row = self.key_row(&key)?;
        Ok(row.is_some_and(|row| rows::checked(&self.access.keys, KEYS, &key, &row).is_some()))
    }

    /// Calls back with the vault of every row of a vault, in any keyspace; with `None` for a row of no vault.
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

    /// A secret without its value.
    pub(crate) fn secret(&self, vault: VaultId, name: &SecretName) -> Result<Option<Stored>, Error> {
        let row = self.snapshot.get(&self.access.database.meta, secret_key(vault, name))?;
        row.map(|row| self.decode(vault, name.clone(), &row)).transpose()
    }

    /// The secrets of a vault in the order of their names.
    pub(crate) fn rows(&self, vault: VaultId) -> impl Iterator<Item = Row> + use<> {
        self.snapshot.range(&self.access.database.meta, secrets_range(vault)).map(Row)
    }

    /// The key of every row of a vault, in `meta` and in `values`.
    pub(crate) fn keys_of(&self, vault: VaultId) -> Result<BTreeSet<Vec<u8>>, Error> {
        let mut keys = BTreeSet::new();
        for keyspace in [&self.access.database.meta, &self.access.database.values] {
            for row in self.snapshot.range(keyspace, secrets_range(vault)) {
                keys.insert(row.key()?.to_vec());
            }
        }
        Ok(keys)
    }

    /// A row's content, if it proves to be ours and under its own name.
    pub(crate) fn decode(&self, vault: VaultId, name: SecretName, row: &[u8]) -> Result<Stored, Error> {
        let stored = Stored::decode(&self.access.keys, vault, name.clone(), row);
        stored.ok_or_else(|| self.damaged(vault, Some(&name), VaultPart::Metadata))
    }

    /// The keys of all heads, and of what lies among them.
    pub(crate) fn head_keys(&self) -> Result<Vec<Vec<u8>>, Error> {
        let heads = self.snapshot.range(&self.access.database.meta, head_range());
        heads.map(|row| Ok(row.key()?.to_vec())).collect()
    }

    /// The encrypted values of a vault with their keys.
    pub(crate) fn values(
        &self,
        vault: VaultId,
    ) -> impl Iterator<Item = Result<(Slice, Slice), Error>> + use<> {
        let rows = self.snapshot.range(&self.access.database.values, secrets_range(vault));
        rows.map(|row| Ok(row.into_inner()?))
    }

    /// What the vault adds up to; `None` for a vault that never had a secret.
    pub(crate) fn head(&self, vault: VaultId) -> Result<Option<Head>, Error> {
        let row = self.snapshot.get(&self.access.database.meta, head_key(vault))?;
        let head = row.map(|row| Head::decode(&self.access.keys, vault, &row));
        head.map(|head| head.ok_or_else(|| self.damaged(vault, None, VaultPart::Head))).transpose()
    }

    /// The limits of vaults, and what workspaces hold.
    pub(crate) fn quotas(&self) -> &Quotas {
        &self.access.quotas
    }

    /// How many bytes lie under a secret's key in `values`; none where the value is missing.
    pub(crate) fn sealed_bytes(&self, key: &[u8]) -> Result<usize, Error> {
        Ok(self.snapshot.size_of(&self.access.database.values, key)?.unwrap_or(0) as usize)
    }

    /// How much a vault holds. A vault whose head is damaged counts as empty: it takes no writes itself, and the other
    /// vaults of its workspace go on.
    pub(crate) fn size(&self, vault: VaultId) -> Result<VaultSize, Error> {
        match self.head(vault) {
            Ok(Some(head)) => head.size().map_or_else(|| self.counted(vault), Ok),
            Ok(None) | Err(Error::Damaged) => Ok(VaultSize::default()),
            Err(error) => Err(error),
        }
    }

    /// How much a vault holds, row by row, for a head that does not tell. A row that does not prove to be ours counts
    /// with its value alone.
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

    /// The vault's keys; `None` for a vault that never had a secret.
    pub(crate) fn vault_keys(&self, vault: VaultId) -> Result<Option<VaultKeys>, Error> {
        let key = rows::vault_keys_key(vault);
        let Some(row) = self.snapshot.get(&self.access.database.keys, &key)? else { return Ok(None) };
        let record: Option<KeyRecord> = rows::decode(&self.access.keys, KEYS, &key, &row);
        let keys = record.and_then(|record| VaultKeys::open(&self.access.keys, vault, &record));
        keys.map(Some).ok_or_else(|| self.damaged(vault, None, VaultPart::KeyRecord))
    }

    /// The encrypted value that lies under a secret's key.
    pub(crate) fn sealed(&self, vault: VaultId, name: &SecretName) -> Result<Slice, Error> {
        let sealed = self.snapshot.get(&self.access.database.values, secret_key(vault, name))?;
        sealed.ok_or_else(|| self.damaged(vault, Some(name), VaultPart::Value))
    }

    /// The value of a secret.
    pub(crate) fn value(&self, vault: VaultId, stored: &Stored) -> Result<Zeroizing<Vec<u8>>, Error> {
        let keys = self.vault_keys(vault)?.ok_or_else(|| self.damaged(vault, None, VaultPart::KeyRecord))?;
        self.decrypt(vault, stored, &keys, &self.sealed(vault, &stored.metadata.name)?)
    }

    /// The value of a secret out of the encrypted value of the same version.
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

    /// The value again, for whoever counts damage by himself.
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

/// A row of a range, not looked at yet.
pub(crate) struct Row(Guard);

impl Row {
    /// Its key and its content as they lie.
    pub(crate) fn pair(self) -> Result<(Slice, Slice), Error> {
        Ok(self.0.into_inner()?)
    }

    /// Its name and its content, which is still to be decoded.
    pub(crate) fn named(self, view: &View, vault: VaultId) -> Result<(SecretName, Slice), Error> {
        let (key, row) = self.pair()?;
        let name = name_in(&key).filter(|(found, _)| *found == vault).map(|(_, name)| name);
        Ok((name.ok_or_else(|| view.damaged(vault, None, VaultPart::RowKey))?, row))
    }
}
