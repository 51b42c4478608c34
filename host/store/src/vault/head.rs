//! The head of a vault: how many secrets it has and which versions of them.
//!
//! A row's MAC says that it was ours once. The head says that it still is: a row put back to an older version,
//! or taken away behind our back, no longer adds up to it. Heads in turn add up to the marker of `meta`.

use super::stored::head_key;
use super::{VaultId, VaultSize};
use crate::database::META;
use crate::rows::{self, SetHash};
use crate::seal::{Digest, StoreKeys};

/// A head as earlier programs wrote it, which does not tell bytes.
const WITHOUT_BYTES: u8 = 1;
const ROW_VERSION: u8 = 2;

/// What a vault adds up to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Head {
    /// How often the vault was changed.
    pub(crate) version: u64,
    pub(crate) row_count: u64,
    pub(crate) set: SetHash,
    /// Bytes of its names, hosts and values; `None` when they are still to be counted.
    pub(crate) bytes: Option<u64>,
}

impl Head {
    /// Counts a change of the vault.
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

    /// Counts the bytes of a secret that was replaced or deleted out, and those of its new version in.
    pub(crate) fn weigh(&mut self, before: u64, after: u64) {
        self.bytes = self.bytes.map(|bytes| bytes.saturating_sub(before).saturating_add(after));
    }

    /// How much the vault holds, if its bytes were counted.
    pub(crate) fn size(&self) -> Option<VaultSize> {
        self.bytes.map(|bytes| VaultSize { secrets: self.row_count, bytes })
    }

    /// Whether rows that add up to this are those the head speaks of.
    pub(crate) fn matches(&self, counted: &Head) -> bool {
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

    pub(crate) fn decode(keys: &StoreKeys, vault: VaultId, row: &[u8]) -> Option<Head> {
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
        Some(Head {
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
    fn a_head_of_an_earlier_program_is_read_and_has_no_bytes() {
        let keys = StoreKeys::random(StoreId::random().unwrap()).unwrap();
        let mut head = Head { version: 7, row_count: 3, ..Head::default() };
        head.set.add(&[9; 32]);
        let old = head.encode(&keys, VaultId::Operator);
        head.bytes = Some(12);
        let new = head.encode(&keys, VaultId::Operator);
        assert_eq!(new.len(), old.len() + 8);
        let decoded = |row: &[u8]| Head::decode(&keys, VaultId::Operator, row).unwrap();
        assert_eq!(decoded(&new), head);
        assert_eq!(decoded(&old), Head { bytes: None, ..head });
    }
}
