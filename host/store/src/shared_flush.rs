//! Waiting for a commit of what is queued, together: any number of readers at once cause two commits at most, so that
//! requests that only read cannot fill the queue of those that write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// Flushes that readers share.
#[derive(Debug, Default)]
pub(crate) struct SharedFlush {
    /// How many have begun.
    begun: AtomicU64,
    /// The number of the last one that succeeded. Held while one runs.
    ended: Mutex<u64>,
}

impl SharedFlush {
    /// Returns once a flush has succeeded that began after this call.
    ///
    /// # Errors
    /// Those of `flush`.
    pub(crate) fn share(&self, flush: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        self.after(self.begun.load(Ordering::SeqCst), flush)
    }

    /// Returns once a flush has succeeded that has a greater number than `before`.
    fn after(&self, before: u64, flush: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if *ended > before {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        flush()?;
        *ended = number;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts flushes.
    struct Counted(SharedFlush, u64);

    impl Counted {
        fn after(&mut self, before: u64) {
            let Counted(shared, count) = self;
            let flush = || {
                *count += 1;
                Ok(())
            };
            shared.after(before, flush).unwrap();
        }
    }

    #[test]
    fn readers_that_came_before_a_flush_share_it() {
        let mut flushes = Counted(SharedFlush::default(), 0);
        (0..8).for_each(|_| flushes.after(0));
        assert_eq!(flushes.1, 1);
        // These came while it ran: what it commits may lack what they wait for.
        (0..8).for_each(|_| flushes.after(1));
        assert_eq!(flushes.1, 2);
    }

    #[test]
    fn a_flush_that_fails_counts_for_none() {
        let mut flushes = Counted(SharedFlush::default(), 0);
        assert!(flushes.0.share(|| Err(Error::Busy)).is_err());
        flushes.after(0);
        assert_eq!(flushes.1, 1);
    }
}
