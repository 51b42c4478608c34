//! The heads of all spellings, and a table that skips the parts of a text without one.

use zeroize::{Zeroize, Zeroizing};

use super::spelling::Spelling;

/// Length of a head, the first part of a spelling that is searched for.
pub(super) const HEAD_BYTES: usize = 8;
/// Number of bytes that index the table.
const BLOCK_BYTES: usize = 3;
/// Number of entries of the table.
const SHIFTS: usize = 1 << 12;
/// The distance after a block that occurs in no head.
const SHIFT_MAX: usize = HEAD_BYTES - BLOCK_BYTES + 1;
/// How many positions are tested together.
const LEAP_PLACES: usize = 4;

/// The first bytes of one spelling of one value.
#[derive(Clone, Copy)]
pub(super) struct SpellingHead {
    /// As a big-endian number, so that numeric order is byte order.
    pub(super) bytes: u64,
    /// Index of the value.
    pub(super) needle: usize,
    pub(super) spelling: Spelling,
}

impl Zeroize for SpellingHead {
    fn zeroize(&mut self) {
        self.bytes.zeroize();
    }
}

/// All heads of a set of values.
pub(super) struct Heads {
    /// Sorted by their bytes.
    sorted: Zeroizing<Vec<SpellingHead>>,
    shifts: Shifts,
    /// A set of 256 bits: the first bytes of all heads.
    first_bytes: [u64; 4],
}

impl Heads {
    pub(super) fn new(mut heads: Zeroizing<Vec<SpellingHead>>) -> Self {
        heads.sort_unstable_by_key(|head| head.bytes);
        let mut first_bytes = [0; 4];
        for head in heads.iter() {
            insert(&mut first_bytes, head.bytes >> 56);
        }
        Self { shifts: Shifts::new(&heads), sorted: heads, first_bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The least number of bytes after this window at which a head can end; 0 if one may end with
    /// it.
    #[inline]
    pub(super) fn shift(&self, window: u64) -> usize {
        self.shifts.of(window)
    }

    /// The next position to test, given the distance from `at` to the next possible head. It can
    /// lie behind the end of the chunk.
    ///
    /// Most of a text is far from any head. Such parts are passed several positions at a time: the
    /// tests do not depend on each other, so the CPU runs them in parallel.
    #[inline]
    pub(super) fn next(&self, piece: &[u8], mut at: usize, shift: usize) -> usize {
        if shift < SHIFT_MAX {
            return at + shift.max(1);
        }
        let block = |bytes: &[u8]| bytes.last_chunk().map_or(0, |last| u32::from_be_bytes(*last));
        let is_far = |bytes: &[u8]| self.shifts.of(block(bytes).into()) == SHIFT_MAX;
        while let Some(blocks) = piece.get(at..at + LEAP_PLACES * SHIFT_MAX) {
            if !blocks.chunks_exact(SHIFT_MAX).fold(true, |all, bytes| all & is_far(bytes)) {
                break;
            }
            at += blocks.len();
        }
        at + SHIFT_MAX
    }

    /// The heads that are equal to this window, with their numbers.
    pub(super) fn all(&self, window: u64) -> impl Iterator<Item = (usize, &SpellingHead)> {
        let from = self.sorted.partition_point(|head| head.bytes < window);
        self.sorted.iter().enumerate().skip(from).take_while(move |(_, head)| head.bytes == window)
    }

    /// How many of the last bytes are the start of a head: at most 7, because after a complete head
    /// its spelling is being matched.
    pub(super) fn begun(&self, window: u64, seen: u64) -> usize {
        let most = seen.min(HEAD_BYTES as u64 - 1) as u32;
        for count in (1..=most).rev() {
            if !contains(&self.first_bytes, window >> (8 * (count - 1)) & 0xff) {
                continue;
            }
            let shift = 64 - 8 * count;
            let wanted = window << shift;
            let at = self.sorted.partition_point(|head| head.bytes < wanted);
            if self.sorted.get(at).is_some_and(|head| head.bytes >> shift == wanted >> shift) {
                return count as usize;
            }
        }
        0
    }
}

/// The window that ends at `to`, computed from the one that ends at `from`.
#[inline]
pub(super) fn rolled(window: u64, piece: &[u8], from: usize, to: usize) -> u64 {
    if let Some(last) = piece.get(..to).and_then(<[u8]>::last_chunk) {
        return u64::from_be_bytes(*last);
    }
    let new = piece.get(from..to).unwrap_or_default();
    new.iter().fold(window, |window, byte| window << 8 | u64::from(*byte))
}

/// The table of Wu and Manber: the distance to the next possible head, indexed by a hash of the
/// last three bytes. In most texts only every sixth position is tested. Blocks with the same hash
/// share the smaller distance.
struct Shifts([u8; SHIFTS]);

impl Shifts {
    fn new(heads: &[SpellingHead]) -> Self {
        let mut shifts = Self([SHIFT_MAX as u8; SHIFTS]);
        for head in heads {
            for distance in 0..SHIFT_MAX as u8 {
                shifts.lower(head.bytes >> (8 * distance), distance);
            }
        }
        shifts
    }

    fn lower(&mut self, window: u64, distance: u8) {
        if let Some(shift) = self.0.get_mut(Self::slot(window)) {
            *shift = distance.min(*shift);
        }
    }

    fn slot(window: u64) -> usize {
        let block = window as u32 & 0x00ff_ffff;
        (block.wrapping_mul(0x9e37_79b1) >> 20) as usize
    }

    /// The least number of bytes from here at which a head can end; 0 if one may end here.
    #[inline]
    fn of(&self, window: u64) -> usize {
        self.0.get(Self::slot(window)).copied().unwrap_or_default().into()
    }
}

fn insert(set: &mut [u64; 4], byte: u64) {
    if let Some(word) = set.get_mut((byte >> 6 & 3) as usize) {
        *word |= 1 << (byte & 63);
    }
}

fn contains(set: &[u64; 4], byte: u64) -> bool {
    set.get((byte >> 6 & 3) as usize).is_some_and(|word| word >> (byte & 63) & 1 == 1)
}
