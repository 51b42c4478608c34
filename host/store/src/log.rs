//! The keyspace `log`: the audit record and the usage rows of each commit, in ascending order.
//!
//! A key is `L | seq (8) | index (4)`. Index 0 is the audit record of the commit; from index 1 on
//! are its usage rows, many in one value, see [`crate::usage::block`]. Because keys only ever ascend, the
//! engine's compaction moves whole tables and never rewrites one.
//!
//! A store in a database has a chain for each lane of each process. In a backup of it, and in a data
//! directory that comes from it, they are kept as they were. `C | chain (16)` says where a chain ends, and
//! has a MAC. `I | position (8) | chain (16) | seq (8) | index (4)` is a row of it; positions are the order
//! of the commits of all these chains. The numbers of the directory's own chain go on after the last
//! position, and its first record names all chains that were there before it.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::hex;

const COMMIT: u8 = b'L';
const CHAIN: u8 = b'C';
const IMPORTED: u8 = b'I';

/// Key of the audit record of a commit.
pub(crate) fn audit_key(seq: u64) -> Vec<u8> {
    key(seq, 0)
}

/// Key of a value of usage rows. `place` is its index in the commit, counted from 0.
pub(crate) fn usage_key(seq: u64, place: u32) -> Vec<u8> {
    key(seq, place.saturating_add(1))
}

pub(crate) fn key(seq: u64, index: u32) -> Vec<u8> {
    [[COMMIT].as_slice(), &seq.to_be_bytes(), &index.to_be_bytes()].concat()
}

/// Commit number and index of a row; `None` for keys of another kind.
pub(crate) fn place(key: &[u8]) -> Option<(u64, u32)> {
    let (seq, index) = key.strip_prefix(&[COMMIT])?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*seq), u32::from_be_bytes(index.try_into().ok()?)))
}

/// Id of a chain that comes from a database.
pub(crate) type ChainKey = [u8; 16];

/// Where a chain ends.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct ChainEnd {
    /// What the chain belonged to, for people.
    pub(crate) host: String,
    /// The number of its last commit.
    pub(crate) seq: u64,
    /// The head after that commit.
    #[serde(with = "hex")]
    pub(crate) head: Digest,
}

/// The place of a row of a chain that comes from a database. The order is that of the row keys.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct ImportedPlace {
    /// Place of the commit among those of all chains.
    pub(crate) position: u64,
    pub(crate) chain: ChainKey,
    /// Number of the commit in its chain.
    pub(crate) seq: u64,
    /// 0 for the audit record; usage rows count from 1.
    pub(crate) index: u32,
}

impl ImportedPlace {
    pub(crate) fn key(&self) -> Vec<u8> {
        let ImportedPlace { position, chain, seq, index } = self;
        [&[IMPORTED], position.to_be_bytes().as_slice(), chain, &seq.to_be_bytes(), &index.to_be_bytes()]
            .concat()
    }
}

/// A key of the keyspace, besides its marker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LogKey {
    /// Where a chain that comes from a database ends: [`ChainEnd`].
    Chain(ChainKey),
    /// A row of such a chain.
    Imported(ImportedPlace),
    /// A row of the directory's own chain: commit number and index.
    Own(u64, u32),
}

impl LogKey {
    pub(crate) fn parse(bytes: &[u8]) -> Option<LogKey> {
        match bytes.split_first()? {
            (&CHAIN, chain) => Some(LogKey::Chain(chain.try_into().ok()?)),
            (&IMPORTED, rest) => {
                let (position, rest) = rest.split_first_chunk::<8>()?;
                let (chain, rest) = rest.split_first_chunk::<16>()?;
                let (seq, index) = rest.split_first_chunk::<8>()?;
                Some(LogKey::Imported(ImportedPlace {
                    position: u64::from_be_bytes(*position),
                    chain: *chain,
                    seq: u64::from_be_bytes(*seq),
                    index: u32::from_be_bytes(index.try_into().ok()?),
                }))
            }
            _ => place(bytes).map(|(seq, index)| LogKey::Own(seq, index)),
        }
    }

    /// Whether the row has usage rows.
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            LogKey::Chain(_) => false,
            LogKey::Imported(ImportedPlace { index, .. }) | LogKey::Own(_, index) => *index > 0,
        }
    }
}

/// Key of the row that says where a chain ends.
#[cfg(any(test, feature = "postgres"))]
pub(crate) fn chain_key(chain: &ChainKey) -> Vec<u8> {
    [[CHAIN].as_slice(), chain].concat()
}

/// The first key that a row of an imported chain can have after this position, and the last one of all.
pub(crate) fn imported_after(position: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    let first = ImportedPlace { position: position.checked_add(1)?, chain: [0; 16], seq: 0, index: 0 };
    Some((first.key(), imported_end()))
}

/// The last key that a row of an imported chain can have.
pub(crate) fn imported_end() -> Vec<u8> {
    ImportedPlace { position: u64::MAX, chain: [0xff; 16], seq: u64::MAX, index: u32::MAX }.key()
}

/// A row of the log: commit number and index, and the value.
#[cfg(all(test, feature = "postgres"))]
pub(crate) type LogRow = ((u64, u32), Vec<u8>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;

    #[test]
    fn keys_ascend_with_the_commits() {
        let keys = [audit_key(1), usage_key(1, 0), usage_key(1, 300), audit_key(2), audit_key(256)];
        assert!(keys.is_sorted());
        assert_eq!(
            keys.each_ref().map(|key| place(key).unwrap()),
            [(1, 0), (1, 1), (1, 301), (2, 0), (256, 0)]
        );
        assert_eq!(place(rows::MARKER), None);
        assert_eq!(place(&keys[0][1..]), None);
        assert_eq!(place(&[keys[0].as_slice(), &[0]].concat()), None);
    }

    #[test]
    fn every_kind_of_key_is_read_as_it_was_written() {
        let at = |position, index| ImportedPlace { position, chain: [7; 16], seq: 3, index };
        let kinds = [LogKey::Chain([7; 16]), LogKey::Imported(at(1, 0)), LogKey::Imported(at(1, 2))];
        let keys = [chain_key(&[7; 16]), at(1, 0).key(), at(1, 2).key(), at(256, 0).key(), key(1, 4)];
        assert!(keys.is_sorted());
        for (key, kind) in keys.iter().zip(kinds) {
            assert_eq!(LogKey::parse(key), Some(kind));
            assert_eq!(LogKey::parse(&key[..key.len() - 1]), None);
            assert_eq!(LogKey::parse(&[key.as_slice(), &[0]].concat()), None);
        }
        assert_eq!(LogKey::parse(&keys[4]), Some(LogKey::Own(1, 4)));
        assert_eq!(LogKey::parse(rows::MARKER), None);
    }
}
