//! The keyspace `log`: the audit record and the usage rows of each commit, in ascending order.
//!
//! A key is `L | seq (8) | index (4)`. Index 0 is the audit record of the commit; from index 1 on
//! are its usage rows, many in one value, see [`crate::usage::block`]. Because keys only ever ascend, the
//! engine's compaction moves whole tables and never rewrites one.

const COMMIT: u8 = b'L';

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

/// A row of the log: commit number and index, and the value.
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
}
