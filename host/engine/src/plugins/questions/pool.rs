//! Limits on questions: how many one client's request may put in all, and how many at the same
//! time.

use cofferdam_runtime::services::QUESTION_DEPTH_MAX;
use cofferdam_runtime::wire::{ErrorKind, Failure};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Questions of all plugins for one client's request, at any depth together.
const QUESTIONS_MAX: u32 = 32;
/// Questions of one depth that are answered at the same time. Further ones wait.
const AT_ONCE: usize = 8;

/// Shared by all questions of one client's request.
#[derive(Debug)]
pub(super) struct QuestionPool {
    left: AtomicU32,
    /// One semaphore for each depth, starting with depth 1. With a single one, questions that wait
    /// for deeper questions could hold every permit: a deadlock.
    turns: [Semaphore; QUESTION_DEPTH_MAX as usize],
}

impl Default for QuestionPool {
    fn default() -> Self {
        Self { left: AtomicU32::new(QUESTIONS_MAX), turns: std::array::from_fn(|_| Semaphore::new(AT_ONCE)) }
    }
}

impl QuestionPool {
    /// Counts a question of this depth, from 1, and waits for a permit.
    ///
    /// # Errors
    /// All questions are used up, or the depth is above the limit.
    pub(super) async fn turn(&self, depth: u8) -> Result<SemaphorePermit<'_>, Failure> {
        let turns = usize::from(depth).checked_sub(1).and_then(|index| self.turns.get(index));
        let Some(turns) = turns else {
            let message = "Questions to models nest too deeply.";
            return Err(Failure::new(ErrorKind::PreconditionFailed, message));
        };
        let one_less = |left: u32| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            let message = format!("This request has put all of its {QUESTIONS_MAX} questions to models.");
            return Err(Failure::new(ErrorKind::RateLimitExceeded, message));
        }
        // The semaphore is never closed, so this error does not occur.
        turns.acquire().await.map_err(|_| Failure::new(ErrorKind::Server, "No model can be asked here."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn questions_are_counted_over_all_depths() {
        let pool = QuestionPool::default();
        for index in 0..QUESTIONS_MAX {
            drop(pool.turn(u8::from(index % 2 == 0) + 1).await.unwrap());
        }
        assert_eq!(pool.turn(1).await.unwrap_err().kind, ErrorKind::RateLimitExceeded);
        for depth in [0, QUESTION_DEPTH_MAX + 1] {
            assert_eq!(pool.turn(depth).await.unwrap_err().kind, ErrorKind::PreconditionFailed);
        }
    }

    #[tokio::test]
    async fn a_full_depth_delays_only_questions_of_that_depth() {
        let pool = QuestionPool::default();
        let mut running = Vec::new();
        for _ in 0..AT_ONCE {
            running.push(pool.turn(1).await.unwrap());
        }
        let mut waiting = std::pin::pin!(pool.turn(1));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(pool.turn(2).await.unwrap());
        running.pop();
        drop(waiting.await.unwrap());
    }
}
