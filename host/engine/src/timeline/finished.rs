//! The finished requests that are kept: their entries one after the other in one piece of memory, so
//! that keeping a request writes to memory in order and frees nothing.

use std::collections::VecDeque;

/// The most bytes of all finished requests that are kept.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// The last finished requests.
#[derive(Default)]
pub(super) struct FinishedRequests {
    /// The length of the entries of each request, oldest first.
    lengths: VecDeque<usize>,
    bytes: VecDeque<u8>,
    last_number: u64,
}

impl FinishedRequests {
    /// Keeps a request, and at most `keeps` of them. Requests are numbered from 1.
    pub(super) fn keep(&mut self, entries: &[u8], keeps: usize) {
        self.last_number += 1;
        self.lengths.push_back(entries.len());
        self.bytes.extend(entries);
        self.shorten(keeps);
    }

    /// Forgets the oldest requests.
    pub(super) fn shorten(&mut self, keeps: usize) {
        while self.lengths.len() > keeps || self.bytes.len() > KEPT_BYTES_MAX {
            let Some(length) = self.lengths.pop_front() else { return };
            self.bytes.drain(..length);
        }
        if keeps == 0 {
            self.bytes.shrink_to_fit();
        }
    }

    /// The last number, and number and entries of the last `most` requests with a greater number than
    /// `number`, the last one first.
    pub(super) fn after(&self, number: u64, most: usize) -> (u64, Vec<(u64, Vec<u8>)>) {
        let newer = self.last_number.saturating_sub(number);
        let most = usize::try_from(newer).unwrap_or(usize::MAX).min(most);
        (self.last_number, self.before(u64::MAX, most))
    }

    /// Number and entries of the last `most` requests with a number less than `before`, the last one
    /// first.
    pub(super) fn before(&self, before: u64, most: usize) -> Vec<(u64, Vec<u8>)> {
        let mut end = self.bytes.len();
        let numbered = (1..=self.last_number).rev().zip(self.lengths.iter().rev());
        let placed = numbered.map(|(number, length)| {
            let start = end - length;
            let place = start..end;
            end = start;
            (number, place)
        });
        let wanted = placed.filter(|(number, _)| *number < before).take(most);
        wanted.map(|(number, place)| (number, self.bytes.range(place).copied().collect())).collect()
    }
}
