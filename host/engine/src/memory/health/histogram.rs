//! Percentiles of the last minutes in a fixed amount of memory. Values are counted in buckets whose
//! bounds grow by a constant factor, and in slots of one minute, of which the oldest is dropped.

use std::sync::LazyLock;

/// Buckets for each doubling of the value. A percentile is off by at most 9 %.
const PER_DOUBLING: f64 = 4.0;
/// Twenty doublings: from 1 ms to 17 minutes, from 0.1 to 100,000 tokens a second. Values beyond
/// count in the first or last bucket.
const BUCKETS: usize = 80;
/// The current slot and those before it.
const SLOTS: usize = 5;
/// The length of a slot, in milliseconds.
const SLOT_MS: u64 = 60_000;

/// The middle of each bucket, as a multiple of the lower bound of the first bucket.
static MIDDLES: LazyLock<[f64; BUCKETS]> =
    LazyLock::new(|| std::array::from_fn(|bucket| ((bucket as f64 + 0.5) / PER_DOUBLING).exp2()));

/// The number of values in each bucket.
#[derive(Clone, Copy, Debug)]
struct Buckets {
    counts: [u32; BUCKETS],
    total: u32,
}

impl Buckets {
    const EMPTY: Self = Self { counts: [0; BUCKETS], total: 0 };

    fn add(&mut self, bucket: usize) {
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
            self.total += 1;
        }
    }

    fn subtract(&mut self, other: &Self) {
        for (count, gone) in self.counts.iter_mut().zip(&other.counts) {
            *count -= gone;
        }
        self.total -= other.total;
    }
}

/// Values of the last four to five minutes.
#[derive(Clone, Debug)]
pub(super) struct RollingHistogram {
    /// The lower bound of the first bucket.
    lowest: f64,
    slots: [Buckets; SLOTS],
    /// The sum of all slots, kept so that reading takes one pass.
    sum: Buckets,
    /// The number of the current slot, counted from the clock's start.
    newest: u64,
}

impl RollingHistogram {
    /// An empty histogram. Values below `lowest`, which is above 0, count like `lowest`.
    pub(super) fn new(lowest: f64) -> Self {
        Self { lowest, slots: [Buckets::EMPTY; SLOTS], sum: Buckets::EMPTY, newest: 0 }
    }

    /// Adds a value. A value that is not a positive number counts as the smallest.
    pub(super) fn add(&mut self, now_ms: u64, value: f64) {
        self.turn(now_ms);
        let doublings = (value / self.lowest).log2();
        // The cast gives 0 for NaN and for negative numbers.
        let bucket = ((doublings * PER_DOUBLING) as usize).min(BUCKETS - 1);
        self.sum.add(bucket);
        if let Some(slot) = self.slots.get_mut(self.newest as usize % SLOTS) {
            slot.add(bucket);
        }
    }

    /// The 50th, 75th, 90th and 99th percentile of the kept values; zeros if there are none.
    pub(super) fn percentiles(&mut self, now_ms: u64) -> [f64; 4] {
        self.turn(now_ms);
        let mut counts = self.sum.counts.iter().zip(MIDDLES.iter());
        let (mut seen, mut middle) = (0, 0.0);
        [50, 75, 90, 99].map(|share| {
            // The rank of the value in the order of all values, from 1; 0 without values.
            let rank = (u64::from(self.sum.total) * share).div_ceil(100);
            while seen < rank
                && let Some((count, of_bucket)) = counts.next()
            {
                seen += u64::from(*count);
                middle = *of_bucket;
            }
            self.lowest * middle
        })
    }

    /// Drops the slots that are too old.
    fn turn(&mut self, now_ms: u64) {
        let present = now_ms / SLOT_MS;
        for number in (self.newest + 1..=present).take(SLOTS) {
            if let Some(slot) = self.slots.get_mut(number as usize % SLOTS) {
                self.sum.subtract(slot);
                *slot = Buckets::EMPTY;
            }
        }
        self.newest = self.newest.max(present);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_without_values_are_zero() {
        assert_eq!(RollingHistogram::new(1.0).percentiles(0), [0.0; 4]);
    }

    #[test]
    fn values_are_forgotten_after_five_minutes() {
        let mut histogram = RollingHistogram::new(1.0);
        histogram.add(0, 100.0);
        histogram.add(120_000, 800.0);
        let before = histogram.percentiles(299_999);
        assert!((before[0] - 100.0).abs() < 10.0 && (before[3] - 800.0).abs() < 80.0, "{before:?}");
        let after = histogram.percentiles(300_000);
        assert!((after[0] - 800.0).abs() < 80.0, "{after:?}");
        assert_eq!(histogram.percentiles(10_000_000), [0.0; 4]);
    }

    #[test]
    fn extreme_values_give_finite_percentiles() {
        let mut histogram = RollingHistogram::new(1.0);
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE] {
            histogram.add(0, value);
        }
        assert!(histogram.percentiles(0).iter().all(|value| value.is_finite()));
    }

    proptest! {
        /// Each percentile is within 10 % of the value that sorting finds.
        #[test]
        fn percentiles_are_those_of_the_sorted_values(
            values in proptest::collection::vec(1.0f64..500_000.0, 1..300),
            now_ms in 0u64..1_000_000_000,
        ) {
            let mut histogram = RollingHistogram::new(1.0);
            for value in &values {
                histogram.add(now_ms, *value);
            }
            let mut sorted = values;
            sorted.sort_by(f64::total_cmp);
            for (share, found) in [0.5, 0.75, 0.9, 0.99].into_iter().zip(histogram.percentiles(now_ms)) {
                let rank = (share * sorted.len() as f64).ceil() as usize;
                let exact = sorted[rank.max(1) - 1];
                prop_assert!((found / exact - 1.0).abs() < 0.1, "{share}: {found} for {exact}");
            }
        }

        /// The kept sum equals the sum of the slots, whatever the steps of the clock.
        #[test]
        fn the_kept_sum_equals_the_sum_of_the_slots(steps in proptest::collection::vec((0u64..400_000, 1.0f64..1e6), 1..100)) {
            let mut histogram = RollingHistogram::new(1.0);
            let mut now_ms = 0;
            for (step, value) in steps {
                now_ms += step;
                histogram.add(now_ms, value);
                let total: u32 = histogram.slots.iter().map(|slot| slot.total).sum();
                prop_assert_eq!(histogram.sum.total, total);
            }
        }
    }
}
