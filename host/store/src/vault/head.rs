//! The head of a vault: how many secrets it has and which versions of them.
//!
//! A row's MAC says that it was ours once. The head says that it still is: a row put back to an older version,
//! or taken away behind our back, no longer adds up to it. Heads in turn add up to the marker of `meta`.

use super::VaultId;
use super::stored::head_key;
use crate::database::META;
use crate::rows::{self, SetHash};
use crate::seal::{Digest, StoreKeys};

const ROW_VERSION: u8 = 1;

/// What a vault adds up to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Head {
    /// How often the vault was changed.
    pub(crate) version: u64,
    pub(crate) row_count: u64,
    pub(crate) set: SetHash,
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

    /// Whether rows that add up to this are those the head speaks of.
    pub(crate) fn matches(&self, counted: &Head) -> bool {
        (self.row_count, self.set) == (counted.row_count, counted.set)
    }

    pub(crate) fn encode(&self, keys: &StoreKeys, vault: VaultId) -> Vec<u8> {
        let numbers = [self.version.to_be_bytes(), self.row_count.to_be_bytes()];
        let body = [[ROW_VERSION].as_slice(), numbers.as_flattened(), self.set.as_bytes()].concat();
        rows::with_mac(keys, META, &head_key(vault), body)
    }

    pub(crate) fn decode(keys: &StoreKeys, vault: VaultId, row: &[u8]) -> Option<Head> {
        let body = rows::checked(keys, META, &head_key(vault), row)?;
        let (row_version, body) = body.split_first()?;
        if *row_version != ROW_VERSION {
            return None;
        }
        let (version, body) = body.split_first_chunk()?;
        let (row_count, set) = body.split_first_chunk()?;
        Some(Head {
            version: u64::from_be_bytes(*version),
            row_count: u64::from_be_bytes(*row_count),
            set: SetHash::from_bytes(set.try_into().ok()?),
        })
    }
}
