//! The digest over usage rows.

use sha2::{Digest as _, Sha256};

use super::block;
use crate::digest::Digest;

/// The digest over the usage rows of one commit, which is in its audit record.
#[derive(Default)]
pub(crate) struct UsageDigest {
    values: usize,
    rows: usize,
    hash: Sha256,
}

impl UsageDigest {
    pub(crate) fn add(&mut self, value: &[u8]) {
        self.values += 1;
        self.rows = self.rows.saturating_add(block::count(value));
        self.hash.update((value.len() as u64).to_be_bytes());
        self.hash.update(value);
    }

    /// Number of values added.
    pub(crate) fn values(&self) -> usize {
        self.values
    }

    /// Number of rows in these values.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Number of rows, and their digest.
    pub(crate) fn finish(self) -> (usize, Digest) {
        (self.rows, self.hash.finalize().into())
    }
}
