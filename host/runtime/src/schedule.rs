//! The threads that run guests: settings of their schedulers, and state that each thread has for
//! itself.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of polls between two checks of timers and sockets. A guest's slice is one poll of up to a
/// tick (2 ms), so Tokio's default of 61 would mean 120 ms.
const EVENT_INTERVAL: u32 = 5;
/// Number of polls between two checks of the global queue, which has work from other threads.
const GLOBAL_QUEUE_INTERVAL: u32 = 5;

/// Prepares the builder of a Tokio runtime for running guests, so that guests that use all
/// processors do not delay other tasks. Best is one single-threaded runtime for each processor: the
/// guests of a request then stay on one thread.
pub fn tune(builder: &mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder {
    builder.event_interval(EVENT_INTERVAL).global_queue_interval(GLOBAL_QUEUE_INTERVAL)
}

/// How many processors this process may use.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// A value for each of a number of threads. With more threads than values, some threads share one.
pub(crate) struct PerThread<T>(Box<[T]>);

impl<T> PerThread<T> {
    /// Makes `threads` values, at least one.
    pub(crate) fn new(threads: usize, make: impl FnMut() -> T) -> Self {
        Self(std::iter::repeat_with(make).take(threads.max(1)).collect())
    }

    /// The value of the current thread.
    pub(crate) fn here(&self) -> &T {
        #[expect(clippy::indexing_slicing, reason = "the index is below the length, which is not 0")]
        &self.0[self.index()]
    }

    /// The values of all threads, that of the current thread first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        let (before, from_here) = self.0.split_at(self.index());
        from_here.iter().chain(before)
    }

    fn index(&self) -> usize {
        number() % self.0.len()
    }
}

thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });

/// Gives the current thread its number among the threads that run guests, counted from 0. So each of
/// them has the values of no other one, whichever threads use such values first.
pub fn number_thread(number: usize) {
    NUMBER.set(Some(number));
}

/// The number of the current thread. Threads without one are numbered as they come.
fn number() -> usize {
    static OTHERS: AtomicUsize = AtomicUsize::new(0);
    NUMBER.get().unwrap_or_else(|| {
        let number = OTHERS.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::{PerThread, number_thread};

    #[test]
    fn each_thread_has_a_value_of_its_own_and_sees_those_of_all() {
        let values = PerThread::new(4096, || Mutex::new(0));
        let count = || {
            *values.here().lock().unwrap() += 1;
            *values.here().lock().unwrap()
        };
        std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(|| (count(), count())));
            for thread in threads {
                assert_eq!(thread.join().unwrap(), (1, 2));
            }
        });
        assert_eq!(values.all().count(), 4096);
        assert_eq!(values.all().map(|value| *value.lock().unwrap()).sum::<i32>(), 6);
        assert!(std::ptr::eq(values.all().next().unwrap(), values.here()));
    }

    #[test]
    fn numbered_threads_share_no_value_with_each_other() {
        let mut made = 0;
        let values = PerThread::new(4, || {
            made += 1;
            made
        });
        let numbered = &|number| {
            number_thread(number);
            *values.here()
        };
        let mut seen = Vec::new();
        for number in 0..4 {
            std::thread::scope(|scope| {
                // A thread without a number uses such values, too: the one that ends idle instances.
                scope.spawn(|| values.here()).join().unwrap();
                seen.push(scope.spawn(move || numbered(number)).join().unwrap());
            });
        }
        assert_eq!(seen, [1, 2, 3, 4]);
    }

    #[test]
    fn more_threads_than_values_share_them() {
        let values = PerThread::new(0, || ());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| values.here());
            }
        });
        assert_eq!(values.all().count(), 1);
    }
}
