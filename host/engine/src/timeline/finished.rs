//! The finished requests that are kept: their journals one after the other in one piece of memory, so that keeping a
//! request writes to memory in order and frees nothing.

use super::journal::Journal;
use super::record::{RecordHead, TimelineRecord};
use std::collections::VecDeque;
use std::mem::size_of;

/// The most bytes of all finished requests that are kept.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// The last finished requests, oldest first.
#[derive(Default)]
pub(super) struct FinishedRequests {
    requests: VecDeque<KeptRequest>,
    journals: VecDeque<u8>,
    last_number: u64,
}

/// One of them, without its journal.
struct KeptRequest {
    head: RecordHead,
    /// The length of its journal.
    length: usize,
}

impl FinishedRequests {
    /// Keeps a request, and at most `keeps` of them. Requests are numbered from 1.
    pub(super) fn keep(&mut self, request: &TimelineRecord, keeps: usize) {
        let TimelineRecord { head, journal } = request;
        let bytes = journal.bytes();
        self.last_number += 1;
        self.requests.push_back(KeptRequest { head: head.clone(), length: bytes.len() });
        self.journals.extend(bytes);
        self.shorten(keeps);
    }

    /// Forgets the oldest requests.
    pub(super) fn shorten(&mut self, keeps: usize) {
        while self.requests.len() > keeps || self.bytes() > KEPT_BYTES_MAX {
            let Some(KeptRequest { length, .. }) = self.requests.pop_front() else { return };
            self.journals.drain(..length);
        }
        if keeps == 0 {
            *self = Self { last_number: self.last_number, ..Self::default() };
        }
    }

    /// The last number, and number and record of the last `most` requests with a greater number than `number`, the
    /// last one first.
    pub(super) fn after(&self, number: u64, most: usize) -> (u64, Vec<(u64, TimelineRecord)>) {
        let newer = self.last_number.saturating_sub(number);
        let most = usize::try_from(newer).unwrap_or(usize::MAX).min(most);
        (self.last_number, self.before(u64::MAX, most))
    }

    /// Number and record of the last `most` requests with a number less than `before`, the last one first.
    pub(super) fn before(&self, before: u64, most: usize) -> Vec<(u64, TimelineRecord)> {
        let mut start = self.journals.len();
        let numbered = (1..=self.last_number).rev().zip(self.requests.iter().rev());
        let placed = numbered.map(|(number, KeptRequest { head, length })| {
            let end = start;
            start -= length;
            (number, head, start..end)
        });
        let wanted = placed.filter(|(number, ..)| *number < before).take(most);
        let record = |(number, head, place): (u64, &RecordHead, std::ops::Range<usize>)| {
            let journal = Journal::of(self.journals.range(place).copied().collect());
            (number, TimelineRecord { head: head.clone(), journal })
        };
        wanted.map(record).collect()
    }

    fn bytes(&self) -> usize {
        self.requests.len() * size_of::<KeptRequest>() + self.journals.len()
    }
}
