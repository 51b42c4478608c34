//! What a guest reads of the machine: clocks and random bytes. A call may be given other ones, so
//! that it can be repeated.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng, TryRng};

/// Gives a guest its clock readings and random bytes, instead of the machine. A guest has one
/// thread, so the order of its readings is fixed by its code and its input.
pub trait GuestInputs: fmt::Debug + Send + Sync {
    /// Unix time in milliseconds: the import `clock` and WASI's wall clock.
    fn wall_ms(&self) -> u64;

    /// WASI's monotonic clock, in nanoseconds.
    fn monotonic_ns(&self) -> u64;

    /// Fills `bytes`: the import `random` and all random bytes and seeds of WASI.
    fn random(&self, bytes: &mut [u8]);
}

/// Clocks that stand still, and random bytes from a seed. Two guests with equal inputs get equal
/// readings in the same order.
pub struct FixedInputs {
    now_ms: u64,
    random: Mutex<ChaCha20Rng>,
}

impl FixedInputs {
    /// The Unix time that every reading gives, in milliseconds, and the seed of random bytes.
    #[must_use]
    pub fn new(now_ms: u64, seed: u64) -> Self {
        Self { now_ms, random: Mutex::new(ChaCha20Rng::seed_from_u64(seed)) }
    }
}

impl fmt::Debug for FixedInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedInputs").field("now_ms", &self.now_ms).finish_non_exhaustive()
    }
}

impl GuestInputs for FixedInputs {
    fn wall_ms(&self) -> u64 {
        self.now_ms
    }

    fn monotonic_ns(&self) -> u64 {
        0
    }

    fn random(&self, bytes: &mut [u8]) {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(bytes);
    }
}

/// The form in which WASI takes random bytes.
pub(crate) struct WasiRandom(pub(crate) Arc<dyn GuestInputs>);

impl TryRng for WasiRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.0.random(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.0.random(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.random(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_bytes_and_other_seeds_others() {
        let bytes = |seed| {
            let inputs = FixedInputs::new(1, seed);
            let mut bytes = [0; 40];
            let (first, second) = bytes.split_at_mut(7);
            inputs.random(first);
            inputs.random(second);
            bytes
        };
        assert_eq!(bytes(7), bytes(7));
        assert_ne!(bytes(7), bytes(8));
    }
}
