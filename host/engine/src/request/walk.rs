//! Iteration over lists whose length the client decides. A long walk yields to other tasks between
//! steps, and tests count the steps: a list twice as long must not take much more than twice the
//! steps.

use tokio::task::yield_now;

/// After this many steps a walk yields to other tasks.
const STEPS_AT_ONCE: u32 = 256;

/// Iterates over a list and, in tests, counts the steps.
#[derive(Debug, Clone)]
pub(crate) struct Walk<I> {
    elements: I,
}

pub(crate) fn walk<L: IntoIterator>(list: L) -> Walk<L::IntoIter> {
    Walk { elements: list.into_iter() }
}

impl<I: Iterator> Iterator for Walk<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        count_step();
        self.elements.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.elements.size_hint()
    }
}

/// Yields to the scheduler after every 256 steps.
#[derive(Debug, Default)]
pub(crate) struct Breath {
    steps: u32,
}

impl Breath {
    /// Must be called at each step of a walk.
    pub(crate) async fn step(&mut self) {
        self.steps += 1;
        if self.steps >= STEPS_AT_ONCE {
            self.steps = 0;
            yield_now().await;
        }
    }
}

#[cfg(not(test))]
#[inline]
pub(super) fn count_step() {}

#[cfg(test)]
pub(super) use counter::count_step;
#[cfg(test)]
pub(crate) use counter::steps_of;

#[cfg(test)]
mod counter {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    pub(in crate::request) fn count_step() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Returns the result of `work` and the number of steps that this thread took for it.
    pub(crate) fn steps_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
        let before = STEPS.get();
        let done = work();
        (done, STEPS.get() - before)
    }
}
