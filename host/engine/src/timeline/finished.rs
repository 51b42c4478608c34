//! The finished requests that are kept: their records one after the other in a few pieces of memory, so that keeping a
//! request writes to memory in order and frees nothing.

use super::record::{FactRecord, RecordHead, StepRecord, TimelineRecord};
use std::collections::VecDeque;
use std::mem::size_of;

/// The most bytes of all finished requests that are kept.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// The last finished requests, oldest first.
#[derive(Default)]
pub(super) struct FinishedRequests {
    requests: VecDeque<KeptRequest>,
    steps: VecDeque<StepRecord>,
    facts: VecDeque<FactRecord>,
    texts: VecDeque<u8>,
    last_number: u64,
}

/// One of them, without what is in the other queues.
struct KeptRequest {
    head: RecordHead,
    /// How much of the queues belongs to it.
    lengths: Lengths,
}

#[derive(Clone, Copy)]
struct Lengths {
    steps: usize,
    facts: usize,
    texts: usize,
}

impl FinishedRequests {
    /// Keeps a request, and at most `keeps` of them. Requests are numbered from 1.
    pub(super) fn keep(&mut self, request: &TimelineRecord, keeps: usize) {
        let TimelineRecord { head, steps, facts, texts, .. } = request;
        let lengths = Lengths { steps: steps.len(), facts: facts.len(), texts: texts.len() };
        self.last_number += 1;
        self.requests.push_back(KeptRequest { head: head.clone(), lengths });
        self.steps.extend(steps);
        self.facts.extend(facts);
        self.texts.extend(texts.as_bytes());
        self.shorten(keeps);
    }

    /// Forgets the oldest requests.
    pub(super) fn shorten(&mut self, keeps: usize) {
        while self.requests.len() > keeps || self.bytes() > KEPT_BYTES_MAX {
            let Some(KeptRequest { lengths, .. }) = self.requests.pop_front() else { return };
            self.steps.drain(..lengths.steps);
            self.facts.drain(..lengths.facts);
            self.texts.drain(..lengths.texts);
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
        let mut end = Lengths { steps: self.steps.len(), facts: self.facts.len(), texts: self.texts.len() };
        let numbered = (1..=self.last_number).rev().zip(self.requests.iter().rev());
        let placed = numbered.map(|(number, request)| {
            let KeptRequest { lengths, .. } = request;
            let start = Lengths {
                steps: end.steps - lengths.steps,
                facts: end.facts - lengths.facts,
                texts: end.texts - lengths.texts,
            };
            let place = (start, std::mem::replace(&mut end, start));
            (number, request, place)
        });
        let wanted = placed.filter(|(number, ..)| *number < before).take(most);
        wanted.map(|(number, request, (start, end))| (number, self.copy(&request.head, start, end))).collect()
    }

    fn copy(&self, head: &RecordHead, start: Lengths, end: Lengths) -> TimelineRecord {
        let texts: Vec<u8> = self.texts.range(start.texts..end.texts).copied().collect();
        TimelineRecord::of(
            head.clone(),
            self.steps.range(start.steps..end.steps).copied().collect(),
            self.facts.range(start.facts..end.facts).copied().collect(),
            String::from_utf8(texts).unwrap_or_default(),
        )
    }

    fn bytes(&self) -> usize {
        self.requests.len() * size_of::<KeptRequest>()
            + self.steps.len() * size_of::<StepRecord>()
            + self.facts.len() * size_of::<FactRecord>()
            + self.texts.len()
    }
}
