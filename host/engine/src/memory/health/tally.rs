//! Counts of recent requests and failures, in slots of which the oldest is dropped.

/// A number of requests, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FailureCounts {
    pub(super) requests: u32,
    pub(super) failures: u32,
}

impl FailureCounts {
    /// The share of failures, 0 to 1; `None` with fewer than `requests_min` requests.
    pub(super) fn failed_share(self, requests_min: u32) -> Option<f64> {
        let enough = self.requests >= requests_min.max(1);
        enough.then(|| f64::from(self.failures) / f64::from(self.requests))
    }
}

/// Counts of the last `SLOTS` slots, including the current one.
#[derive(Clone, Debug)]
pub(super) struct SlotTally<const SLOTS: usize> {
    slot_ms: u64,
    slots: [FailureCounts; SLOTS],
    newest: u64,
}

impl<const SLOTS: usize> SlotTally<SLOTS> {
    /// Without counts. The length of a slot is `slot_ms` milliseconds.
    pub(super) fn new(slot_ms: u64) -> Self {
        Self { slot_ms, slots: [FailureCounts::default(); SLOTS], newest: 0 }
    }

    /// Adds a request, or the failure of a request that was added before.
    pub(super) fn add(&mut self, now_ms: u64, counts: FailureCounts) {
        self.turn(now_ms);
        if let Some(slot) = self.slots.get_mut(self.newest as usize % SLOTS) {
            slot.requests = slot.requests.saturating_add(counts.requests);
            slot.failures = slot.failures.saturating_add(counts.failures);
        }
    }

    /// The sum of all slots. A failure whose request was counted in a dropped slot counts as a
    /// request too.
    pub(super) fn sum(&mut self, now_ms: u64) -> FailureCounts {
        self.turn(now_ms);
        let sum = self.slots.iter().fold(FailureCounts::default(), |sum, slot| FailureCounts {
            requests: sum.requests.saturating_add(slot.requests),
            failures: sum.failures.saturating_add(slot.failures),
        });
        FailureCounts { requests: sum.requests.max(sum.failures), ..sum }
    }

    pub(super) fn clear(&mut self) {
        self.slots = [FailureCounts::default(); SLOTS];
    }

    fn turn(&mut self, now_ms: u64) {
        let present = now_ms / self.slot_ms;
        for number in (self.newest + 1..=present).take(SLOTS) {
            if let Some(slot) = self.slots.get_mut(number as usize % SLOTS) {
                *slot = FailureCounts::default();
            }
        }
        self.newest = self.newest.max(present);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FailureCounts = FailureCounts { requests: 1, failures: 0 };
    const FAILED: FailureCounts = FailureCounts { requests: 1, failures: 1 };
    const BROKEN: FailureCounts = FailureCounts { requests: 0, failures: 1 };

    #[test]
    fn slots_are_forgotten_one_by_one() {
        let mut tally = SlotTally::<3>::new(10);
        tally.add(0, ONE);
        tally.add(15, FAILED);
        assert_eq!(tally.sum(29), FailureCounts { requests: 2, failures: 1 });
        assert_eq!(tally.sum(30), FailureCounts { requests: 1, failures: 1 });
        assert_eq!(tally.sum(40), FailureCounts::default());
        tally.add(1_000_000, ONE);
        assert_eq!(tally.sum(1_000_000), ONE);
    }

    #[test]
    fn there_are_never_more_failures_than_requests() {
        let mut tally = SlotTally::<2>::new(10);
        tally.add(0, ONE);
        tally.add(25, BROKEN);
        assert_eq!(tally.sum(25), FAILED);
    }

    #[test]
    fn too_few_requests_give_no_failure_share() {
        assert_eq!(FailureCounts { requests: 9, failures: 9 }.failed_share(10), None);
        assert_eq!(FailureCounts { requests: 10, failures: 5 }.failed_share(10), Some(0.5));
        assert_eq!(FailureCounts::default().failed_share(0), None);
    }
}
