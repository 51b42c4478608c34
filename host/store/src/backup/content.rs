//! All rows of a store at one moment, as a data directory has them.

use crate::audit::AuditRecord;
use crate::check::{Verification, check};
use crate::digest::{DIGEST_BYTES, Digest};
use crate::error::Error;
use crate::header::Header;
use crate::log;
use crate::operation::{Progress, VaultError};
use crate::rows::{self, KEYS, KEYSPACES, Keyspace, META, Marker, SetHash};
use crate::state::RowBytes;
use crate::vault::VaultSnapshot;

/// A row with its key, in a keyspace.
type PlacedRow = (Keyspace, Vec<u8>, Vec<u8>);

/// The rows of a view.
pub(crate) struct StoreContent<'v> {
    pub(crate) view: &'v VaultSnapshot,
    pub(crate) header: Header,
    /// Number of the last commit, and the head of the audit chain after it. Where there are only chains of a
    /// database: the last position, and zeros.
    pub(crate) end: (u64, Digest),
    pub(crate) checked: Verification,
    /// Rows that the view does not have, or has in another form, in the order of their keyspaces and keys.
    added: Vec<PlacedRow>,
}

impl StoreContent<'_> {
    /// Checks all rows of the view. What is wrong with them is in the result, not an error.
    pub(crate) fn read<'v>(
        view: &'v VaultSnapshot,
        progress: &mut Progress<'_>,
    ) -> Result<StoreContent<'v>, VaultError> {
        let keys = view.keys();
        let row = view.key_row(rows::HEADER)?.ok_or(Error::Damaged)?;
        let header: Header = rows::decode(keys, KEYS, rows::HEADER, &row).ok_or(Error::Damaged)?;
        if view.has_markers() {
            let end = end(view)?;
            let checked = check(view, end, progress)?;
            return Ok(StoreContent { view, header, end, checked, added: Vec::new() });
        }
        let checked = check(view, (0, [0; DIGEST_BYTES]), progress)?;
        let header = header.with_chains(true);
        let with_chains = rows::encode(keys, KEYS, rows::HEADER, &header);
        let [mut set, heads] = checked.content.sets;
        set.remove(&keys.element(rows::HEADER, &row));
        set.add(&keys.element(rows::HEADER, &with_chains));
        let seq = checked.content.position;
        let mut added = vec![(Keyspace::Keys, rows::HEADER.to_vec(), with_chains)];
        for (keyspace, name) in Keyspace::ALL.into_iter().zip(KEYSPACES) {
            let set = match name {
                KEYS => set,
                META => heads,
                _ => SetHash::default(),
            };
            added.push((keyspace, rows::MARKER.to_vec(), Marker { seq, set }.encode(keys, name)));
        }
        Ok(StoreContent { view, header, end: (seq, [0; DIGEST_BYTES]), checked, added })
    }

    /// Gives all rows to `take`, keyspace by keyspace and in ascending order of their keys.
    pub(crate) fn rows(
        &self,
        mut take: impl FnMut(Keyspace, &[u8], &[u8]) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        Keyspace::ALL.into_iter().try_for_each(|keyspace| self.rows_of(keyspace, &mut take))
    }

    fn rows_of(
        &self,
        keyspace: Keyspace,
        take: &mut impl FnMut(Keyspace, &[u8], &[u8]) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        let mut last: Option<RowBytes> = None;
        let mut added = self.added.iter().filter(|(of, ..)| *of == keyspace).peekable();
        for found in self.view.all_rows(keyspace)? {
            let (key, row) = found?;
            // A backup whose rows are not in order could not be read.
            if last.replace(key.clone()).is_some_and(|last| last >= key) {
                tracing::error!("rows of the keyspace {keyspace:?} are not in order");
                return Err(Error::Damaged.into());
            }
            while let Some((_, key, row)) = added.next_if(|(_, before, _)| **before < *key) {
                take(keyspace, key, row)?;
            }
            match added.next_if(|(_, same, _)| **same == *key) {
                Some((_, key, row)) => take(keyspace, key, row)?,
                None => take(keyspace, &key, &row)?,
            }
        }
        added.try_for_each(|(_, key, row)| take(keyspace, key, row))
    }
}

/// The end of the store's own chain, by the marker and the last audit record of the view itself.
fn end(view: &VaultSnapshot) -> Result<(u64, Digest), VaultError> {
    let keys = view.keys();
    let marker = view.row(Keyspace::Keys, rows::MARKER)?.and_then(|row| Marker::decode(keys, KEYS, &row));
    let marker = marker.ok_or(Error::Damaged)?;
    let record = view.row(Keyspace::Log, &log::audit_key(marker.seq))?.ok_or(Error::Damaged)?;
    let previous = rows::decode_body::<AuditRecord>(&record).ok_or(Error::Damaged)?.previous;
    Ok((marker.seq, keys.audit_head(&previous, &record)))
}
