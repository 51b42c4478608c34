//! Keys, MACs and digests as bytes, and their comparison.

use subtle::ConstantTimeEq;

/// Length of every key, MAC and digest.
pub(crate) const DIGEST_BYTES: usize = 32;
pub(crate) type Digest = [u8; DIGEST_BYTES];

/// Comparison in constant time.
pub(crate) fn same(left: &Digest, right: &Digest) -> bool {
    left.ct_eq(right).into()
}
