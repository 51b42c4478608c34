//! The head of a vault: the number and the set hash of its secrets.
//!
//! The MAC of a row proves that the host has written it at some time. The head proves that it is
//! current: if a row was deleted, or replaced by an older version of itself, from outside, the rows
//! no longer match the head. The heads in turn are covered by the marker of `meta`.

use super::stored::head_key;
use crate::digest::Digest;
use crate::ids::VaultId;
use crate::quota::VaultSize;
use crate::rows::{self, META, SetHash};
use crate::seal::StoreKeys;

/// Version of a head written by earlier programs, without the number of bytes.
const WITHOUT_BYTES: u8 = 1;
const ROW_VERSION: u8 = 2;

/// Number, bytes and set hash of a vault's secrets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct VaultHead {
    /// Number of changes of the vault so far.
    pub(crate) version: u64,
    pub(crate) row_count: u64,
    pub(crate) set: SetHash,
    /// Bytes of its names, hosts and values; `None` if they have not been counted yet.
    pub(crate) bytes: Option<u64>,
}

impl VaultHead {
    /// Counts one change of the vault.
    pub(crate) fn advance(&mut self) {
        self.version = self.version.saturating_add(1);
    }

    pub(crate) fn add(&mut self, element: &Digest) {
        self.row_count = self.row_count.saturating_add(1);
        self.set.add(element);
    }

    pub(crate) fn remove(&mut self, element: &Digest) {
        self.row_count = self.row_count.saturating_sub(1);
        self.set.remove(element);
    }

    /// Subtracts the bytes of a secret's old version and adds those of its new one.
    pub(crate) fn weigh(&mut self, before: u64, after: u64) {
        self.bytes = self.bytes.map(|bytes| bytes.saturating_sub(before).saturating_add(after));
    }

    /// What the vault holds, if its bytes were counted.
    pub(crate) fn size(&self) -> Option<VaultSize> {
        self.bytes.map(|bytes| VaultSize { secrets: self.row_count, bytes })
    }

    /// Whether the counted rows are exactly those of this head.
    pub(crate) fn matches(&self, counted: &VaultHead) -> bool {
        (self.row_count, self.set) == (counted.row_count, counted.set)
    }

    pub(crate) fn encode(&self, keys: &StoreKeys, vault: VaultId) -> Vec<u8> {
        let numbers = [self.version.to_be_bytes(), self.row_count.to_be_bytes()];
        let (row_version, bytes) = match self.bytes {
            Some(bytes) => ([ROW_VERSION], bytes.to_be_bytes().to_vec()),
            None => ([WITHOUT_BYTES], Vec::new()),
        };
        let parts = [row_version.as_slice(), numbers.as_flattened(), &bytes, self.set.as_bytes()];
        let body = parts.concat();
        rows::with_mac(keys, META, &head_key(vault), body)
    }

    pub(crate) fn decode(keys: &StoreKeys, vault: VaultId, row: &[u8]) -> Option<VaultHead> {
        let body = rows::checked(keys, META, &head_key(vault), row)?;
        let (row_version, body) = body.split_first()?;
        let (version, body) = body.split_first_chunk()?;
        let (row_count, body) = body.split_first_chunk()?;
        let (bytes, set) = match *row_version {
            WITHOUT_BYTES => (None, body),
            ROW_VERSION => {
                let (bytes, set) = body.split_first_chunk()?;
                (Some(u64::from_be_bytes(*bytes)), set)
            }
            _ => return None,
        };
        Some(VaultHead {
            version: u64::from_be_bytes(*version),
            row_count: u64::from_be_bytes(*row_count),
            set: SetHash::from_bytes(set.try_into().ok()?),
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StoreId;

    #[test]
    fn a_head_of_an_earlier_version_is_decoded_without_a_byte_count() {
        let keys = StoreKeys::random(StoreId::random().unwrap()).unwrap();
        let mut head = VaultHead { version: 7, row_count: 3, ..VaultHead::default() };
        head.set.add(&[9; 32]);
        let old = head.encode(&keys, VaultId::Operator);
        head.bytes = Some(12);
        let new = head.encode(&keys, VaultId::Operator);
        assert_eq!(new.len(), old.len() + 8);
        let decoded = |row: &[u8]| VaultHead::decode(&keys, VaultId::Operator, row).unwrap();
        assert_eq!(decoded(&new), head);
        assert_eq!(decoded(&old), VaultHead { bytes: None, ..head });
    }
}
