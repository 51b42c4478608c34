//! Retries when every endpoint has failed with an error that passes: a few times, after a
//! randomized wait, and only while such retries are a small share of all requests. The share keeps
//! retries from adding load to a provider that is overloaded already.

use crate::failure::AttemptFailure;
use cofferdam_store::Clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The most attempts beyond the first round, for one request.
const ATTEMPTS_MAX: usize = 4;
/// The most rounds beyond the first.
const ROUNDS_MAX: u32 = 2;
/// The longest wait before the first retry, unless a provider names another. It doubles with each
/// round.
const WAIT: Duration = Duration::from_millis(250);
/// If a provider asks for a longer wait than this, its failure counts as one that does not pass.
const PATIENCE: Duration = Duration::from_secs(5);

/// What one request adds to the budget, in thousandths of a retry: a tenth of all requests may be
/// retried.
const PER_REQUEST: u64 = 100;
/// What each second adds, so that a host with few requests may retry too.
const PER_SECOND: u64 = 1_000;
/// The most that is saved up, and what is there at the start.
const SAVED_MAX: u64 = 50_000;
const SAVED_FIRST: u64 = 10_000;
const ONE: u64 = 1_000;

/// How many retries all requests together may still make.
pub(crate) struct RetryBudget {
    clock: Clock,
    /// Thousandths of a retry.
    saved: AtomicU64,
    /// Until when seconds have been added, on the monotonic clock.
    added_until_ms: Mutex<u64>,
    refused: AtomicU64,
}

impl RetryBudget {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            saved: AtomicU64::new(SAVED_FIRST),
            added_until_ms: Mutex::new(clock.monotonic_ms()),
            refused: AtomicU64::new(0),
        }
    }

    /// Called when a request begins: adds its share to the budget.
    pub(crate) fn earn(&self) {
        // Two requests at once may save slightly more than the bound, which does no harm.
        if self.saved.load(Ordering::Relaxed) < SAVED_MAX {
            self.saved.fetch_add(PER_REQUEST, Ordering::Relaxed);
        }
    }

    /// Takes one retry from the budget, if there is one.
    fn spend(&self) -> bool {
        self.add_seconds();
        let left = |saved: u64| saved.checked_sub(ONE);
        let spent = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok();
        if !spent {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        spent
    }

    /// How often a request was not retried because the budget was used up.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn add_seconds(&self) {
        let now_ms = self.clock.monotonic_ms();
        let mut added_until_ms = self.added_until_ms.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = now_ms.saturating_sub(*added_until_ms) / 1_000;
        *added_until_ms = added_until_ms.saturating_add(seconds * 1_000);
        let earned = seconds.saturating_mul(PER_SECOND).min(SAVED_MAX);
        let more = |saved: u64| Some(saved.saturating_add(earned).min(SAVED_MAX.max(saved)));
        // The closure always gives a value, so the update cannot fail.
        let _saved = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

/// The retries of one request.
#[derive(Default)]
pub(crate) struct Retries {
    /// The failures of this round that pass: the index of the candidate, and the wait that its
    /// provider asks for.
    passing: Vec<(usize, Duration)>,
    /// Whether something failed that does not pass. Then the request is not retried.
    is_hopeless: bool,
    round: u32,
    made: usize,
}

/// The next round of attempts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// The wait before the round.
    pub(crate) wait: Duration,
    /// Indexes of the candidates to try, in this order.
    pub(crate) indexes: Vec<usize>,
}

impl Retries {
    /// Records that the candidate at `index` has failed.
    pub(crate) fn note(&mut self, index: usize, failed: &AttemptFailure) {
        match failed.passes_after().filter(|wait| *wait <= PATIENCE) {
            Some(wait) => self.passing.push((index, wait)),
            None => self.is_hopeless = true,
        }
    }

    /// The next round, after one in which everything failed. `left` is the time until the request's
    /// deadline, `share` a random number from 0 to 1.
    pub(crate) fn next(&mut self, budget: &RetryBudget, left: Duration, share: f64) -> Option<Round> {
        if self.is_hopeless || self.round >= ROUNDS_MAX {
            return None;
        }
        let asked = self.passing.iter().map(|(_, wait)| *wait).min()?;
        // Half of the wait is fixed; the other half is random, so that requests that failed
        // together are spread.
        let spread = WAIT * (1 << self.round);
        let wait = asked + spread.mul_f64(0.5 + share.clamp(0.0, 1.0) / 2.0);
        if wait >= left {
            return None;
        }
        let mut indexes = Vec::with_capacity(ATTEMPTS_MAX);
        // A provider that asks for a longer wait is left out.
        for (index, _) in self.passing.drain(..).filter(|(_, asked)| *asked <= wait) {
            if self.made >= ATTEMPTS_MAX || !budget.spend() {
                break;
            }
            self.made += 1;
            indexes.push(index);
        }
        self.passing.clear();
        self.round += 1;
        (!indexes.is_empty()).then_some(Round { wait, indexes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Cause;
    use cofferdam_runtime::wire::ErrorKind;
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_secs(600);

    fn failure(cause: Cause, retry_after_ms: Option<u64>) -> AttemptFailure {
        let kind = match cause {
            Cause::Limited => ErrorKind::RateLimitExceeded,
            Cause::Endpoint => ErrorKind::ProviderOverloaded,
            _ => ErrorKind::ProviderUnavailable,
        };
        let mut failed = AttemptFailure::plain(cause, kind, "");
        failed.failure.retry_after_ms = retry_after_ms;
        failed
    }

    fn after(failures: &[AttemptFailure]) -> Retries {
        let mut retries = Retries::default();
        failures.iter().enumerate().for_each(|(index, failed)| retries.note(index, failed));
        retries
    }

    fn budget() -> (Clock, RetryBudget) {
        let clock = Clock::manual();
        let budget = RetryBudget::new(&clock);
        (clock, budget)
    }

    #[test]
    fn errors_that_pass_are_retried_after_half_to_the_whole_wait() {
        for (share, wait_ms) in [(0.0, 145), (1.0, 270)] {
            let causes = [Cause::Endpoint, Cause::Limited, Cause::Endpoint];
            let mut retries = after(&causes.map(|cause| failure(cause, Some(20))));
            let round = retries.next(&budget().1, LONG, share).unwrap();
            assert_eq!(round, Round { wait: Duration::from_millis(wait_ms), indexes: vec![0, 1, 2] });
        }
    }

    #[test]
    fn an_error_that_does_not_pass_ends_retries() {
        for hopeless in [
            failure(Cause::Request, None),
            failure(Cause::Credential, None),
            failure(Cause::NoCredential, None),
            failure(Cause::Empty, None),
            failure(Cause::Plugin, None),
            failure(Cause::Late { total: false, begun: false }, None),
            failure(Cause::Limited, None),
            failure(Cause::Limited, Some(5_001)),
            failure(Cause::Endpoint, Some(60_000)),
        ] {
            let mut retries = after(&[failure(Cause::Unreachable, None), hopeless]);
            assert_eq!(retries.next(&budget().1, LONG, 0.5), None);
        }
        assert_eq!(Retries::default().next(&budget().1, LONG, 0.5), None, "nothing was tried");
    }

    #[test]
    fn a_provider_that_asks_for_a_longer_wait_is_left_out() {
        let mut retries =
            after(&[failure(Cause::Limited, Some(4_000)), failure(Cause::Limited, Some(1_000))]);
        let round = retries.next(&budget().1, LONG, 0.0).unwrap();
        assert_eq!(round, Round { wait: Duration::from_millis(1_125), indexes: vec![1] });
    }

    #[test]
    fn no_wait_exceeds_the_deadline_of_the_request() {
        let mut retries = after(&[failure(Cause::Limited, Some(4_000))]);
        assert_eq!(retries.next(&budget().1, Duration::from_secs(4), 0.0), None);
    }

    #[test]
    fn rounds_and_attempts_are_limited() {
        let (_, budget) = budget();
        let fail = |retries: &mut Retries, indexes: &[usize]| {
            indexes.iter().for_each(|index| retries.note(*index, &failure(Cause::Unreachable, None)));
        };
        let mut retries = Retries::default();
        fail(&mut retries, &[0, 1, 2]);
        let first = retries.next(&budget, LONG, 1.0).unwrap();
        assert_eq!((first.indexes.as_slice(), first.wait), ([0, 1, 2].as_slice(), WAIT));
        fail(&mut retries, &first.indexes);
        let second = retries.next(&budget, LONG, 1.0).unwrap();
        assert_eq!((second.indexes, second.wait), (vec![0], WAIT * 2));
        fail(&mut retries, &[0]);
        assert_eq!(retries.next(&budget, LONG, 1.0), None);
    }

    #[test]
    fn retries_are_a_tenth_of_requests_and_one_a_second() {
        let (clock, budget) = budget();
        (0..10).for_each(|_| assert!(budget.spend()));
        assert!(!budget.spend());
        assert_eq!(budget.refused(), 1);
        (0..10).for_each(|_| budget.earn());
        assert!(budget.spend() && !budget.spend());
        clock.advance(Duration::from_millis(2_999));
        assert!(budget.spend() && budget.spend() && !budget.spend());
        clock.advance(Duration::from_millis(1));
        assert!(budget.spend());
        (0..1_000_000).for_each(|_| budget.earn());
        let saved = (0..).take_while(|_| budget.spend()).count();
        assert_eq!(saved, 50);
    }

    proptest! {
        /// In any mix of requests, seconds and retries, no more is spent than was earned.
        #[test]
        fn the_budget_is_never_overdrawn(steps in proptest::collection::vec(0u8..3, 0..500)) {
            let (clock, budget) = budget();
            let (mut earned, mut spent) = (SAVED_FIRST, 0);
            for step in steps {
                match step {
                    0 => { budget.earn(); earned += PER_REQUEST }
                    1 => { clock.advance(Duration::from_secs(1)); earned += PER_SECOND }
                    _ => spent += if budget.spend() { ONE } else { 0 },
                }
                prop_assert!(spent <= earned);
            }
        }

        /// However often a request fails, it makes at most four further attempts.
        #[test]
        fn retries_of_a_request_are_limited(candidates in 1usize..30, share in 0.0f64..1.0) {
            let (_, budget) = budget();
            let mut retries = Retries::default();
            let mut indexes: Vec<usize> = (0..candidates).collect();
            let mut attempts = 0;
            loop {
                indexes.iter().for_each(|index| retries.note(*index, &failure(Cause::Unreachable, None)));
                let Some(round) = retries.next(&budget, LONG, share) else { break };
                attempts += round.indexes.len();
                indexes = round.indexes;
            }
            prop_assert!(attempts <= ATTEMPTS_MAX);
        }
    }
}
