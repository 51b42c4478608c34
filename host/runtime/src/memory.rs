//! The memory of all guests and of all long answers together, and whether the process runs out of
//! memory. All three belong to the process, as its memory limit does.
//!
//! Most instances and answers stay below a length of their own and are bounded by their number. What
//! they take beyond that is counted here, when they take it. The use that the kernel reports comes
//! too late: a guest may ask for memory and touch it later, and the end of an answer takes several
//! times its length within milliseconds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const MIB: usize = 1024 * 1024;
/// Memory of an instance that is not counted.
pub(crate) const OWN_BYTES: usize = 8 * MIB;
/// Length of an answer of a provider that is not counted, in bytes.
const OWN_ANSWER_BYTES: usize = 256 * 1024;

static GUESTS: SharedMemory = SharedMemory::new(OWN_BYTES);
static ANSWERS: SharedMemory = SharedMemory::new(OWN_ANSWER_BYTES);
static SHORT: AtomicBool = AtomicBool::new(false);

/// Sets the most memory that all guests together may take beyond 8 MiB each, in bytes. Memory that
/// they hold already stays.
pub fn set_guests_max(bytes: usize) {
    GUESTS.bytes_max.store(bytes, Ordering::Relaxed);
}

/// The most memory that all guests together may take beyond 8 MiB each, in bytes.
pub(crate) fn guests_max() -> usize {
    GUESTS.bytes_max.load(Ordering::Relaxed)
}

/// Sets the most that all answers of providers which are being read may have beyond 256 KiB each,
/// in bytes.
pub fn set_answers_max(bytes: usize) {
    ANSWERS.bytes_max.store(bytes, Ordering::Relaxed);
}

/// Notes whether the process is about to reach its memory limit.
pub fn set_short(is_short: bool) {
    SHORT.store(is_short, Ordering::Relaxed);
}

/// Whether the process is about to reach its memory limit: then what takes more memory is refused.
#[must_use]
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed)
}

/// Memory that instances or answers share.
struct SharedMemory {
    /// What each of them may have without being counted, in bytes.
    own_bytes: usize,
    bytes_max: AtomicUsize,
    taken: AtomicUsize,
}

/// The shared memory is used up, or the process runs out of memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken;

/// What one instance or answer holds of the shared memory; given back on drop.
pub struct MemoryShare {
    memory: &'static SharedMemory,
    bytes: usize,
}

impl SharedMemory {
    const fn new(own_bytes: usize) -> Self {
        Self { own_bytes, bytes_max: AtomicUsize::new(usize::MAX), taken: AtomicUsize::new(0) }
    }

    fn share(&'static self) -> MemoryShare {
        MemoryShare { memory: self, bytes: 0 }
    }
}

impl MemoryShare {
    pub(crate) fn of_guest() -> Self {
        GUESTS.share()
    }

    /// The share of an answer of which nothing was read.
    #[must_use]
    pub fn of_answer() -> Self {
        ANSWERS.share()
    }

    /// Takes what an instance or answer of `total` bytes needs beyond its own and does not hold yet.
    ///
    /// # Errors
    ///
    /// [`Taken`]; then nothing was taken.
    pub fn cover(&mut self, total: usize) -> Result<(), Taken> {
        let more = total.saturating_sub(self.memory.own_bytes).saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let SharedMemory { bytes_max, taken, .. } = self.memory;
        let bytes_max = bytes_max.load(Ordering::Relaxed);
        let add = |taken: usize| taken.checked_add(more).filter(|sum| *sum <= bytes_max);
        if is_short() || taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return Err(Taken);
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_share_what_they_take_beyond_their_own_memory() {
        static MEMORY: SharedMemory = SharedMemory::new(OWN_BYTES);
        MEMORY.bytes_max.store(100 * MIB, Ordering::Relaxed);
        let taken = || MEMORY.taken.load(Ordering::Relaxed);
        let (mut one, mut other) = (MEMORY.share(), MEMORY.share());
        one.cover(OWN_BYTES).unwrap();
        assert_eq!(taken(), 0, "its own memory is not counted");
        one.cover(OWN_BYTES + 60 * MIB).unwrap();
        one.cover(OWN_BYTES + 40 * MIB).unwrap();
        assert_eq!(taken(), 60 * MIB, "what is held counts once");
        assert_eq!(other.cover(OWN_BYTES + 41 * MIB), Err(Taken));
        assert_eq!(other.cover(usize::MAX), Err(Taken));
        other.cover(OWN_BYTES + 40 * MIB).unwrap();
        drop(one);
        assert_eq!(taken(), 40 * MIB);
        drop(other);
        assert_eq!(taken(), 0);
    }
}
