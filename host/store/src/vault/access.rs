//! Reading the vaults: one consistent view of all keyspaces, and checks of every row that is read.

use std::collections::BTreeSet;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::{
    Damage, VaultHead, VaultKeys,
    stored::{Stored, head_key, head_range, name_in, secret_key, secrets_range, vault_of},
};
use crate::audit::VaultPart;
use crate::directory::{NameKey, Record, RecordId};
use crate::error::Error;
use crate::ids::{InternId, VaultId};
use crate::log::LogKey;
use crate::lookup::{LookupError, RecordKind};
use crate::quota::{Quotas, VaultSize};
use crate::records::Intern;
use crate::rows::{self, KEYS, Keyspace};
use crate::seal::{KeyRecord, StoreKeys};
use crate::secret::SecretName;
#[cfg(feature = "postgres")]
use crate::state::Need;
use crate::state::{Gap, KeyedRow, RowBytes, RowRange, Rows, State, all, both};

/// Everything that reading and checking needs besides the rows.
#[derive(Clone)]
pub(crate) struct VaultReader {
    pub(crate) keys: Arc<StoreKeys>,
    pub(crate) damage: Arc<Damage>,
    pub(crate) quotas: Arc<Quotas>,
}

impl VaultReader {
    pub(crate) fn new(keys: Arc<StoreKeys>) -> VaultReader {
        VaultReader { keys, damage: Arc::default(), quotas: Arc::default() }
    }

    /// The same reader with the same quota, and without the sums of workspaces.
    #[cfg(feature = "postgres")]
    pub(crate) fn with_own_quotas(&self) -> VaultReader {
        let quotas = Quotas::default();
        quotas.set(self.quotas.quota());
        VaultReader { quotas: Arc::new(quotas), ..self.clone() }
    }

    /// The same reader for rows that may be out of date: what it finds damaged is only counted.
    #[cfg(feature = "postgres")]
    pub(crate) fn without_reports(&self) -> VaultReader {
        VaultReader { damage: Arc::new(Damage::quiet()), ..self.clone() }
    }

    /// A view of a state. Later commits do not change it.
    pub(crate) fn view(&self, state: Box<dyn State>) -> VaultSnapshot {
        VaultSnapshot { state, access: self.clone() }
    }
}

/// The store as of one commit. Should be short-lived: the engine keeps old versions of rows for it.
pub(crate) struct VaultSnapshot {
    state: Box<dyn State>,
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

    /// See [`State::read_ahead`].
    #[cfg(feature = "postgres")]
    pub(crate) fn read_ahead(&self, needs: BTreeSet<Need>) -> Result<(), Gap> {
        self.state.read_ahead(needs)
    }

    /// A row of the keyspace `keys`, not checked.
    pub(crate) fn key_row(&self, key: &[u8]) -> Result<Option<RowBytes>, Gap> {
        self.state.row(Keyspace::Keys, key)
    }

    /// Row keys of vaults' key records after this one, at most `limit`.
    pub(crate) fn vault_records(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Gap> {
        let (start, end) = rows::vault_keys_range();
        let range = RowRange::all(Keyspace::Keys).through(end).keys().limit(limit);
        let range = after.map_or_else(|| range.clone().from(start), |after| range.clone().after(after));
        self.row_keys(&range)
    }

    /// A row, not checked.
    pub(crate) fn row(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<RowBytes>, Gap> {
        self.state.row(keyspace, key)
    }

    /// Rows of a range, not checked.
    pub(crate) fn range(&self, range: &RowRange) -> Result<Rows, Gap> {
        self.state.range(range)
    }

    /// All rows of a keyspace, not checked.
    pub(crate) fn all_rows(&self, keyspace: Keyspace) -> Result<Rows, Gap> {
        self.state.range(&RowRange::all(keyspace))
    }

    /// See [`State::has_markers`].
    pub(crate) fn has_markers(&self) -> bool {
        self.state.has_markers()
    }

    /// The blocks of usage rows, in the order in which they were added to the stored sums.
    pub(crate) fn usage_blocks(&self) -> Result<impl Iterator<Item = Result<RowBytes, Error>>, Gap> {
        let is_block = |key: &[u8]| LogKey::parse(key).is_some_and(|key| key.is_usage());
        Ok(self.all_rows(Keyspace::Log)?.filter_map(move |row| match row {
            Ok((key, value)) => is_block(&key).then_some(Ok(value)),
            Err(error) => Some(Err(error)),
        }))
    }

    fn row_keys<C: FromIterator<Vec<u8>>>(&self, range: &RowRange) -> Result<C, Gap> {
        self.state.range(range)?.map(|row| Ok(row?.0.to_vec())).collect()
    }

    /// The record of a workspace, member, intern or key.
    pub(crate) fn record(&self, id: RecordId) -> Result<Option<Record>, Gap> {
        if let Some(directory) = self.state.directory() {
            return Ok(directory.record(id));
        }
        let Some(row) = self.key_row(&id.row_key())? else { return Ok(None) };
        Ok(Some(id.decode(&self.access.keys, &row).ok_or(Error::Damaged)?))
    }

    /// See [`State::named`].
    pub(crate) fn named(&self, name: &NameKey) -> Result<Option<RecordId>, Gap> {
        self.state.named(name)
    }

    /// See [`State::owned_by`].
    pub(crate) fn owned_by(&self, kind: RecordKind, owner: RecordId) -> Result<Vec<RecordId>, Gap> {
        self.state.owned_by(kind, owner)
    }

    /// The intern's row in this view, so that its existence and its secrets are of the same commit.
    pub(crate) fn intern(&self, id: InternId) -> Result<Intern, Gap> {
        let key = rows::intern_key(id);
        let row = self.key_row(&key)?.ok_or_else(|| LookupError::not_found(RecordKind::Intern, id))?;
        let intern: Option<Intern> = rows::decode(&self.access.keys, KEYS, &key, &row);
        let intern = intern.filter(|intern| intern.id == id);
        Ok(intern.ok_or_else(|| self.damaged(VaultId::Intern(id), None, VaultPart::Owner))?)
    }

    /// Whether the workspace or intern of a vault exists and its row is valid.
    pub(crate) fn has_owner(&self, vault: VaultId) -> Result<bool, Gap> {
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
    pub(crate) fn each_vault_row(&self, mut found: impl FnMut(Option<VaultId>)) -> Result<(), Gap> {
        for key in self.vault_records(None, usize::MAX)? {
            found(rows::vault_of_keys(&key));
        }
        for keyspace in [Keyspace::Meta, Keyspace::Values] {
            let rows = self.state.range(&RowRange::all(keyspace).keys())?.map(|row| Ok(row?.0));
            for key in rows.filter(|key| !matches!(key, Ok(key) if **key == *rows::MARKER)) {
                found(vault_of(&key.map_err(|error: Error| error)?));
            }
        }
        Ok(())
    }

    /// The row of a secret, without its value.
    pub(crate) fn secret(&self, vault: VaultId, name: &SecretName) -> Result<Option<Stored>, Gap> {
        let row = self.state.row(Keyspace::Meta, &secret_key(vault, name))?;
        row.map(|row| Ok(self.decode(vault, name.clone(), &row)?)).transpose()
    }

    /// The first rows of a vault's secrets in the order of their names, at most `limit`.
    pub(crate) fn rows(&self, vault: VaultId, limit: usize) -> Result<Rows, Gap> {
        self.state.range(&secrets(Keyspace::Meta, vault).limit(limit))
    }

    /// The secret's name from its row key, and its bytes, which are still to be decoded.
    pub(crate) fn split(
        &self,
        vault: VaultId,
        (key, row): KeyedRow,
    ) -> Result<(SecretName, RowBytes), Error> {
        let name = name_in(&key).filter(|(found, _)| *found == vault).map(|(_, name)| name);
        Ok((name.ok_or_else(|| self.damaged(vault, None, VaultPart::RowKey))?, row))
    }

    /// Row keys of all secrets of a vault, in `meta` and in `values`.
    pub(crate) fn keys_of(&self, vault: VaultId) -> Result<BTreeSet<Vec<u8>>, Gap> {
        let keys: (BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>) = both(
            self.row_keys(&secrets(Keyspace::Meta, vault).keys()),
            self.row_keys(&secrets(Keyspace::Values, vault).keys()),
        )?;
        let (mut keys, mut of_values) = keys;
        keys.append(&mut of_values);
        Ok(keys)
    }

    /// Decodes a row and checks its MAC for this vault and name.
    pub(crate) fn decode(&self, vault: VaultId, name: SecretName, row: &[u8]) -> Result<Stored, Error> {
        let stored = Stored::decode(&self.access.keys, vault, name.clone(), row);
        stored.ok_or_else(|| self.damaged(vault, Some(&name), VaultPart::Metadata))
    }

    /// Row keys of all heads, including invalid keys in their range.
    pub(crate) fn head_keys(&self) -> Result<Vec<Vec<u8>>, Gap> {
        let (first, last) = head_range().into_inner();
        self.row_keys(&RowRange::all(Keyspace::Meta).from(first).through(last).keys())
    }

    /// Row keys and encrypted values of a vault.
    pub(crate) fn values(&self, vault: VaultId) -> Result<Rows, Gap> {
        self.state.range(&secrets(Keyspace::Values, vault))
    }

    /// The head of a vault; `None` for a vault that never had a secret.
    pub(crate) fn head(&self, vault: VaultId) -> Result<Option<VaultHead>, Gap> {
        let row = self.state.row(Keyspace::Meta, &head_key(vault))?;
        let head = row.map(|row| VaultHead::decode(&self.access.keys, vault, &row));
        let head = head.map(|head| head.ok_or_else(|| self.damaged(vault, None, VaultPart::Head)));
        Ok(head.transpose()?)
    }

    /// The quota of vaults, and the sums of workspaces.
    pub(crate) fn quotas(&self) -> &Quotas {
        &self.access.quotas
    }

    /// Length of the encrypted value under a secret's row key; 0 when it is missing.
    pub(crate) fn sealed_bytes(&self, key: &[u8]) -> Result<usize, Gap> {
        Ok(self.state.length(Keyspace::Values, key)?.unwrap_or(0))
    }

    /// What a vault holds. A vault with a damaged head counts as empty: it accepts no writes
    /// itself, and the other vaults of its workspace stay usable.
    pub(crate) fn size(&self, vault: VaultId) -> Result<VaultSize, Gap> {
        match self.head(vault) {
            Ok(Some(head)) => head.size().map_or_else(|| self.counted(vault), Ok),
            Ok(None) | Err(Gap::Failed(Error::Damaged)) => Ok(VaultSize::default()),
            Err(gap) => Err(gap),
        }
    }

    /// What a vault holds, counted row by row, for a head of an earlier version, which has no byte
    /// count. Only the value of a damaged row is counted.
    pub(crate) fn counted(&self, vault: VaultId) -> Result<VaultSize, Gap> {
        let sizes = all(self.rows(vault, usize::MAX)?.map(|row| {
            let (key, row) = row?;
            let sealed = self.sealed_bytes(&key)?;
            let name = name_in(&key).map(|(_, name)| name);
            let stored = name.and_then(|name| Stored::decode(&self.access.keys, vault, name, &row));
            let bytes = stored.map_or(sealed as u64, |stored| stored.content_bytes(sealed));
            Ok(VaultSize::of_secret(bytes))
        }))?;
        Ok(sizes.into_iter().fold(VaultSize::default(), VaultSize::plus))
    }

    /// The keys of a vault; `None` for a vault that never had a secret.
    pub(crate) fn vault_keys(&self, vault: VaultId) -> Result<Option<VaultKeys>, Gap> {
        let key = rows::vault_keys_key(vault);
        let Some(row) = self.key_row(&key)? else { return Ok(None) };
        let record: Option<KeyRecord> = rows::decode(&self.access.keys, KEYS, &key, &row);
        let keys = record.and_then(|record| VaultKeys::open(&self.access.keys, vault, &record));
        Ok(Some(keys.ok_or_else(|| self.damaged(vault, None, VaultPart::KeyRecord))?))
    }

    /// The encrypted value of a secret.
    pub(crate) fn sealed(&self, vault: VaultId, name: &SecretName) -> Result<RowBytes, Gap> {
        let sealed = self.state.row(Keyspace::Values, &secret_key(vault, name))?;
        Ok(sealed.ok_or_else(|| self.damaged(vault, Some(name), VaultPart::Value))?)
    }

    /// The decrypted value of a secret.
    pub(crate) fn value(&self, vault: VaultId, stored: &Stored) -> Result<Zeroizing<Vec<u8>>, Gap> {
        let keys = self.vault_keys(vault)?.ok_or_else(|| self.damaged(vault, None, VaultPart::KeyRecord))?;
        Ok(self.decrypt(vault, stored, &keys, &self.sealed(vault, &stored.metadata.name)?)?)
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

/// The secrets of a vault.
fn secrets(keyspace: Keyspace, vault: VaultId) -> RowRange {
    let (first, last) = secrets_range(vault).into_inner();
    RowRange::all(keyspace).from(first).through(last)
}
