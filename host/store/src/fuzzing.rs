//! Entry points for the fuzz targets in `tests/fuzz`, for `--cfg fuzzing` and the
//! tests below. Each takes bytes that an attacker or a broken disk could supply, and panics when a
//! guarantee does not hold.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::audit::AuditRecord;
use crate::backup::format::{self, BackupPart, BackupWriter, FormatError};
use crate::digest::DIGEST_BYTES;
use crate::fjall::{self, AnchorContent, AnchorSlot, SLOT_BYTES};
use crate::header::Header;
use crate::ids::{InternId, StoreId, VaultId};
use crate::records::{Intern, Member, Workspace};
use crate::rows::{self, StoredKey};
use crate::seal::{KeyRecord, StoreKeys};
use crate::secret::SecretName;
use crate::usage::block;
use crate::vault::{Stored, VaultHead, stored};

fn keys() -> StoreKeys {
    StoreKeys::random(StoreId::random().unwrap()).unwrap()
}

/// A row with a JSON record, or a value of usage rows: whatever can be decoded is encoded and
/// decoded again without a change.
pub fn record(data: &[u8]) {
    fn same<T: DeserializeOwned + Serialize>(data: &[u8]) {
        let Some(read) = rows::decode_body::<T>(data) else { return };
        let written = rows::encode_body(&read);
        let again: T = rows::decode_body(&written).expect("what was written is read again");
        assert_eq!(rows::encode_body(&again), written);
    }
    same::<Header>(data);
    same::<KeyRecord>(data);
    same::<Workspace>(data);
    same::<Member>(data);
    same::<Intern>(data);
    same::<StoredKey>(data);
    same::<AuditRecord>(data);
    if let Some(read) = block::decode(data) {
        let written = block::encode(&read);
        assert_eq!(block::count(&written), read.len());
        assert_eq!(block::decode(&written).expect("what was written is read again"), read);
    }
    assert!(rows::decode::<Header>(&keys(), "keys", rows::HEADER, data).is_none(), "a MAC was guessed");
}

/// The row of a secret: it has exactly one encoding, and no row is accepted without a valid MAC.
pub fn secret_row(data: &[u8]) {
    let keys = keys();
    let vault = VaultId::Intern(InternId::random().unwrap());
    let name: SecretName = "name".parse().unwrap();
    assert!(Stored::decode(&keys, vault, name.clone(), data).is_none(), "a MAC was guessed");
    if let Some(stored) = stored::parse(name.clone(), data) {
        let row = stored.encode(&keys, &stored.associated_data(&keys, vault));
        assert_eq!(row.split_last_chunk::<DIGEST_BYTES>().unwrap().0, data);
        assert!(Stored::decode(&keys, vault, name, &row).is_some_and(|again| again == stored));
    }
    assert!(VaultHead::decode(&keys, vault, data).is_none(), "a MAC was guessed");
}

/// The key of a row: whatever can be decoded is encoded the same way.
pub fn row_key(data: &[u8]) {
    if let Some((vault, name)) = stored::name_in(data) {
        assert_eq!(stored::secret_key(vault, &name), data);
    }
    if let Some(vault) = stored::vault_of_head(data) {
        assert_eq!(stored::head_key(vault), data);
    }
    if let Some(vault) = rows::vault_of_keys(data) {
        assert_eq!(rows::vault_keys_key(vault), data);
    }
    stored::vault_of(data);
    rows::RowKind::of(data);
}

/// The anchor: damaged slots give the newest intact slot or nothing, never other content.
pub fn anchor(data: &[u8]) {
    let keys = keys();
    let Some((head, rest)) = data.split_first_chunk::<DIGEST_BYTES>() else { return };
    let Some((seq, changes)) = rest.split_first_chunk::<8>() else { return };
    let older = AnchorSlot { seq: u64::from_be_bytes(*seq) >> 1, head: *head };
    let newer = AnchorSlot { seq: older.seq + 1, head: head.map(|byte| !byte) };
    let whole = [older, newer].map(|slot| <[u8; SLOT_BYTES]>::try_from(fjall::encode(&keys, slot)).unwrap());
    assert_eq!(fjall::newest(&keys, &whole), AnchorContent::Slot(newer));
    let mut torn = whole;
    for change in changes.chunks_exact(2) {
        let slot = &mut torn[usize::from(change[0] >> 7)];
        slot[usize::from(change[0] & 0x7f) % SLOT_BYTES] ^= change[1];
    }
    let expected = match [torn[0] == whole[0], torn[1] == whole[1]] {
        [_, true] => Some(newer),
        [true, false] => Some(older),
        [false, false] => None,
    };
    match (fjall::newest(&keys, &torn), expected) {
        (AnchorContent::Slot(found), Some(expected)) => assert_eq!(found, expected),
        (AnchorContent::Nothing | AnchorContent::OtherStore, None) => {}
        (found, expected) => panic!("{found:?} in place of {expected:?}"),
    }
}

/// A backup: lengths are bounded, frames are in order, and a valid one is written the same way
/// again.
pub fn backup(data: &[u8]) {
    fn parts(data: &[u8]) -> Result<Vec<BackupPart>, FormatError> {
        let mut parts = Vec::new();
        format::read(data, |part| {
            parts.push(part);
            Ok::<_, FormatError>(())
        })?;
        Ok(parts)
    }
    let Ok(read) = parts(data) else { return };
    let Some((BackupPart::Preamble(preamble), rest)) = read.split_first() else { panic!("no preamble") };
    let mut writer = BackupWriter::begin(Vec::new(), preamble).unwrap();
    let mut mac = None;
    for part in rest {
        match part {
            BackupPart::Row { keyspace, key, value } => writer.row(*keyspace, key, value).unwrap(),
            BackupPart::End(end) => mac = Some(end.mac),
            BackupPart::Preamble(_) => panic!("two preambles"),
        }
    }
    let written = writer.end(|_, _| mac.expect("an end")).unwrap();
    let again = parts(&written).expect("what was written is read again");
    assert_eq!(rows_of(&again), rows_of(&read));
}

fn rows_of(parts: &[BackupPart]) -> impl PartialEq + Debug + use<'_> {
    let rows = parts.iter().filter_map(|part| match part {
        BackupPart::Row { keyspace, key, value } => Some((*keyspace, key, value)),
        _ => None,
    });
    rows.collect::<Vec<_>>()
}

#[cfg(test)]
mod tests {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus.rs"));

    #[test]
    fn the_corpora_of_the_fuzz_targets_pass() {
        each_of("rows", super::record);
        each_of("rows", super::secret_row);
        each_of("rows", super::row_key);
        each_of("anchor", super::anchor);
        each_of("backup", super::backup);
    }
}
