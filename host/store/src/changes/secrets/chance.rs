//! Random numbers for the rows of one group. They are requested from the system for many rows at a
//! time, because one request per row costs half as much as encrypting the row.

use crate::vault::{NONCE_BYTES, Nonce};

/// Number of rows that one request to the system covers.
const ROWS: usize = 64;

/// The random numbers of one version of a secret. Not `Clone`, so that no two versions share them.
pub(super) struct Fresh {
    pub(super) generation: u64,
    pub(super) nonce: Nonce,
}

/// Random numbers that were not used yet.
#[derive(Default)]
pub(super) struct RandomPool(Vec<Fresh>);

impl RandomPool {
    pub(super) fn fresh(&mut self) -> Result<Fresh, getrandom::Error> {
        if let Some(fresh) = self.0.pop() {
            return Ok(fresh);
        }
        let (mut generations, mut nonces) = ([[0; 8]; ROWS], [[0; NONCE_BYTES]; ROWS]);
        getrandom::fill(generations.as_flattened_mut())?;
        getrandom::fill(nonces.as_flattened_mut())?;
        let fresh = generations.into_iter().zip(nonces);
        self.0.extend(fresh.map(|(generation, nonce)| Fresh {
            generation: u64::from_be_bytes(generation),
            nonce: Nonce(nonce),
        }));
        self.0.pop().ok_or(getrandom::Error::UNEXPECTED)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_random_number_is_used_twice() {
        let (mut generations, mut nonces) = (BTreeSet::new(), BTreeSet::new());
        let mut chance = RandomPool::default();
        for _ in 0..3 * ROWS {
            let Fresh { generation, nonce: Nonce(nonce) } = chance.fresh().unwrap();
            assert!(generations.insert(generation) && nonces.insert(nonce));
        }
    }
}
