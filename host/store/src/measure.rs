//! Histograms and named groups of counters, to which many threads add, for the metrics of the host.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Copies of a histogram. Threads are spread over them, so that they seldom write to the same
/// cache line.
const STRIPES: usize = 8;
/// Most bounds of a scale. The buckets and the sum of a stripe then fill whole cache lines.
const BOUNDS_MAX: usize = 14;

/// The name under which everything beyond the room of a [`NamedMeters`] is counted together.
pub const OTHER: &str = "other";

/// The upper bounds of a histogram's buckets.
#[derive(Debug)]
pub struct HistogramScale {
    bounds: &'static [u64],
    per_unit: u64,
}

impl HistogramScale {
    /// Ascending `bounds`, in parts of which `per_unit` are one unit of the exposed metric.
    ///
    /// # Panics
    ///
    /// There are more than 14 bounds. Scales are constants, so this is found when compiling.
    #[must_use]
    pub const fn new(bounds: &'static [u64], per_unit: u64) -> Self {
        assert!(bounds.len() <= BOUNDS_MAX, "a scale has at most 14 bounds");
        Self { bounds, per_unit }
    }

    /// The bounds.
    #[must_use]
    pub fn bounds(&self) -> &'static [u64] {
        self.bounds
    }

    /// The parts in one unit of the exposed metric.
    #[must_use]
    pub fn per_unit(&self) -> u64 {
        self.per_unit
    }
}

/// Durations in microseconds, from half a millisecond to two minutes.
pub static SECONDS: HistogramScale = HistogramScale::new(
    &[
        500,
        1_000,
        2_500,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        5_000_000,
        30_000_000,
        120_000_000,
    ],
    1_000_000,
);

/// A histogram that costs an observer two additions, which seldom meet those of another thread.
#[derive(Debug)]
pub struct StripedHistogram {
    scale: &'static HistogramScale,
    stripes: [Stripe; STRIPES],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    buckets: [AtomicU64; BOUNDS_MAX + 1],
    sum: AtomicU64,
}

/// A copy of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramReading {
    /// Observations of each bucket alone; the last bucket has no upper bound.
    pub buckets: Vec<u64>,
    /// The sum of all observed values.
    pub sum: u64,
    /// The scale of both.
    pub bounds: &'static [u64],
    /// The parts in one unit of the exposed metric.
    pub per_unit: u64,
}

impl HistogramReading {
    /// The number of observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl StripedHistogram {
    /// An empty histogram.
    #[must_use]
    pub fn new(scale: &'static HistogramScale) -> Self {
        Self { scale, stripes: Default::default() }
    }

    /// Counts one value.
    pub fn observe(&self, value: u64) {
        let bucket = self.scale.bounds.partition_point(|bound| *bound < value);
        let Some(stripe) = self.stripes.get(stripe_of_thread()) else { return };
        if let Some(bucket) = stripe.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        stripe.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The current counts.
    #[must_use]
    pub fn reading(&self) -> HistogramReading {
        let HistogramScale { bounds, per_unit } = *self.scale;
        let mut reading = HistogramReading { buckets: vec![0; bounds.len() + 1], sum: 0, bounds, per_unit };
        for stripe in &self.stripes {
            for (count, bucket) in reading.buckets.iter_mut().zip(&stripe.buckets) {
                *count += bucket.load(Ordering::Relaxed);
            }
            reading.sum = reading.sum.wrapping_add(stripe.sum.load(Ordering::Relaxed));
        }
        reading
    }
}

/// The stripe of this thread: threads take them in turn.
fn stripe_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    STRIPE.with(|stripe| *stripe)
}

/// Meters by name, which survive a reload of the configuration. Those of a name are kept as long as
/// something holds them. With too many names the further ones share one meter.
#[derive(Debug)]
pub struct NamedMeters<T> {
    known: Mutex<BTreeMap<String, Weak<T>>>,
    names_max: usize,
    other: Arc<T>,
}

impl<T: Default> NamedMeters<T> {
    /// Room for `names_max` names.
    #[must_use]
    pub fn new(names_max: usize) -> Self {
        Self { known: Mutex::default(), names_max, other: Arc::default() }
    }

    /// The meter of a name. To be called when a configuration is built, not for each request.
    #[must_use]
    pub fn of(&self, name: &str) -> Arc<T> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meter) = known.get(name).and_then(Weak::upgrade) {
            return meter;
        }
        known.retain(|_, meter| meter.strong_count() > 0);
        if known.len() >= self.names_max {
            return Arc::clone(&self.other);
        }
        let meter = Arc::default();
        known.insert(name.to_owned(), Arc::downgrade(&meter));
        meter
    }

    /// All meters with their names. [`OTHER`] is the last, if it is in use.
    #[must_use]
    pub fn all(&self) -> Vec<(String, Arc<T>)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let named = known.iter().filter_map(|(name, meter)| Some((name.clone(), meter.upgrade()?)));
        let mut all: Vec<_> = named.collect();
        if Arc::strong_count(&self.other) > 1 {
            all.push((OTHER.to_owned(), Arc::clone(&self.other)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_of_all_threads_are_in_one_reading() {
        let histogram = StripedHistogram::new(&SECONDS);
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| [500, 501, 1_000_000_000].map(|value| histogram.observe(value)));
            }
        });
        let reading = histogram.reading();
        let each = 2 * STRIPES as u64;
        assert_eq!(reading.buckets.get(..2), Some(&[each, each][..]), "a bound belongs to its bucket");
        assert_eq!(reading.buckets.last(), Some(&each));
        assert_eq!((reading.count(), reading.sum), (3 * each, 1_000_001_001 * each));
    }

    #[test]
    fn a_name_keeps_its_meter_and_further_names_share_one() {
        let meters = NamedMeters::<AtomicU64>::new(2);
        let (first, second) = (meters.of("a"), meters.of("b"));
        assert!(Arc::ptr_eq(&first, &meters.of("a")));
        let names = || meters.all().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(), ["a", "b"]);
        let (third, fourth) = (meters.of("c"), meters.of("d"));
        assert!(Arc::ptr_eq(&third, &fourth));
        assert_eq!(names(), ["a", "b", OTHER]);
        drop((second, third, fourth));
        assert_eq!(names(), ["a"]);
        assert!(!Arc::ptr_eq(&meters.of("c"), &first), "the room of a forgotten name is free again");
        drop(first);
    }
}
