//! The circuit breaker of one endpoint. It opens after failures, so that other endpoints are tried
//! first. After a while it is half-open and admits single requests. The first that is answered
//! closes it.

/// Consecutive failures that open it.
const IN_A_ROW: u32 = 5;
/// How long it stays open the first time, in milliseconds. The time doubles with each further
/// opening in close succession.
const COOL_DOWN_MS: u64 = 10_000;
/// The longest time it stays open, in milliseconds.
const COOL_DOWN_MAX_MS: u64 = 300_000;
/// After being closed for this long, in milliseconds, the next opening counts as the first.
const FORGIVEN_MS: u64 = 300_000;
/// A half-open breaker admits one request in this time, in milliseconds.
const PROBE_EVERY_MS: u64 = 1_000;

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerPhase {
    /// All requests are admitted.
    Closed,
    /// One request a second is admitted, to find out whether the endpoint works again.
    HalfOpen,
    /// Requests are sent to other endpoints, as long as there is one.
    Open,
}

/// By which right an attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerPermit {
    /// The breaker is closed.
    Free,
    /// The one probe of a second, of a half-open breaker.
    Probe {
        /// From when this probe could be taken, in milliseconds.
        before_ms: u64,
        /// From when the next can be taken.
        after_ms: u64,
    },
}

/// A circuit breaker. All times are milliseconds of a monotonic clock.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    state: BreakerState,
    in_a_row: u32,
    /// How often it opened, in close succession.
    openings: u32,
    closed_at_ms: u64,
    random: u64,
}

#[derive(Clone, Copy, Debug)]
enum BreakerState {
    Closed,
    /// Open from `since_ms` to `until_ms`, half-open after that.
    Open {
        since_ms: u64,
        until_ms: u64,
        /// Never before `until_ms`.
        next_probe_ms: u64,
    },
}

impl Breaker {
    /// A closed breaker. Its jitter is derived from `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self { state: BreakerState::Closed, in_a_row: 0, openings: 0, closed_at_ms: 0, random: seed }
    }

    pub(super) fn phase(&self, now_ms: u64) -> BreakerPhase {
        match self.state {
            BreakerState::Closed => BreakerPhase::Closed,
            BreakerState::Open { until_ms, .. } if now_ms < until_ms => BreakerPhase::Open,
            BreakerState::Open { .. } => BreakerPhase::HalfOpen,
        }
    }

    /// The time until it is half-open, milliseconds; 0 unless it is open.
    pub(super) fn open_for_ms(&self, now_ms: u64) -> u64 {
        match self.state {
            BreakerState::Closed => 0,
            BreakerState::Open { until_ms, .. } => until_ms.saturating_sub(now_ms),
        }
    }

    /// Whether a request may be sent to the endpoint as a regular attempt now.
    pub(super) fn admits(&self, now_ms: u64) -> bool {
        match self.state {
            BreakerState::Closed => true,
            BreakerState::Open { next_probe_ms, .. } => now_ms >= next_probe_ms,
        }
    }

    /// Takes the right to an attempt. If half-open, this uses the probe of the second. `None` where
    /// it is used already, or where the breaker is open.
    pub(super) fn admit(&mut self, now_ms: u64) -> Option<BreakerPermit> {
        match &mut self.state {
            BreakerState::Closed => Some(BreakerPermit::Free),
            BreakerState::Open { next_probe_ms, .. } if now_ms >= *next_probe_ms => {
                let (before_ms, after_ms) = (*next_probe_ms, now_ms.saturating_add(PROBE_EVERY_MS));
                *next_probe_ms = after_ms;
                Some(BreakerPermit::Probe { before_ms, after_ms })
            }
            BreakerState::Open { .. } => None,
        }
    }

    /// Returns a probe whose attempt ended without a result for the endpoint, unless a later probe
    /// was taken since.
    pub(super) fn give_back(&mut self, permit: BreakerPermit) {
        if let (BreakerPermit::Probe { before_ms, after_ms }, BreakerState::Open { next_probe_ms, .. }) =
            (permit, &mut self.state)
            && *next_probe_ms == after_ms
        {
            *next_probe_ms = before_ms;
        }
    }

    /// Records that an attempt that began at `began_ms` was answered. Returns true when that closes
    /// the breaker.
    ///
    /// An attempt that began before the breaker opened does not count: it says nothing about the
    /// state since.
    pub(super) fn succeeded(&mut self, began_ms: u64, now_ms: u64) -> bool {
        self.in_a_row = 0;
        match self.state {
            BreakerState::Open { since_ms, .. } if began_ms >= since_ms => {
                self.state = BreakerState::Closed;
                self.closed_at_ms = now_ms;
                true
            }
            _ => false,
        }
    }

    /// Records that an attempt that began at `began_ms` failed. `is_often`: failures are a large
    /// share of the recent attempts. Returns true when that opens the breaker.
    pub(super) fn failed(&mut self, began_ms: u64, now_ms: u64, is_often: bool) -> bool {
        self.in_a_row = self.in_a_row.saturating_add(1);
        let opens = match self.state {
            BreakerState::Closed => self.in_a_row >= IN_A_ROW || is_often,
            // A failed probe opens it again. An attempt that began before `until_ms` was not a
            // probe.
            BreakerState::Open { until_ms, .. } => began_ms >= until_ms,
        };
        if opens {
            self.open(now_ms);
        }
        opens
    }

    fn open(&mut self, now_ms: u64) {
        let forgiven = matches!(self.state, BreakerState::Closed)
            && now_ms.saturating_sub(self.closed_at_ms) >= FORGIVEN_MS;
        self.openings = if forgiven { 1 } else { self.openings.saturating_add(1) };
        let doublings = (self.openings - 1).min(16);
        let cool_down_ms = COOL_DOWN_MS.saturating_mul(1 << doublings).min(COOL_DOWN_MAX_MS);
        // Four to five fifths of the time, so that endpoints that failed together are not probed
        // together.
        let until_ms = now_ms.saturating_add(cool_down_ms - self.draw(cool_down_ms / 5));
        self.in_a_row = 0;
        self.state = BreakerState::Open { since_ms: now_ms, until_ms, next_probe_ms: until_ms };
    }

    /// A pseudo-random number below `bound`, or 0 if `bound` is 0 (splitmix64).
    fn draw(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.random;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (drawn ^ (drawn >> 31)).checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn opened(at_ms: u64) -> Breaker {
        let mut breaker = Breaker::new(1);
        for _ in 0..IN_A_ROW {
            breaker.failed(at_ms, at_ms, false);
        }
        assert_eq!(breaker.phase(at_ms), BreakerPhase::Open);
        breaker
    }

    #[test]
    fn consecutive_failures_open_the_breaker() {
        let mut breaker = Breaker::new(1);
        for round in 0..3 {
            for _ in 1..IN_A_ROW {
                assert!(!breaker.failed(0, 0, false), "round {round}");
            }
            breaker.succeeded(0, 0);
        }
        for _ in 1..IN_A_ROW {
            breaker.failed(0, 0, false);
        }
        assert!(breaker.failed(0, 0, false));
    }

    #[test]
    fn a_large_share_of_failures_opens_the_breaker() {
        let mut breaker = Breaker::new(1);
        breaker.succeeded(0, 0);
        assert!(breaker.failed(0, 0, true));
    }

    #[test]
    fn a_half_open_breaker_admits_single_requests_and_closes_after_a_success() {
        let mut breaker = opened(1_000);
        assert!(!breaker.admits(1_000) && !breaker.admits(8_999));
        assert!(breaker.admits(11_000), "the cool-down is over");
        assert_eq!(breaker.phase(11_000), BreakerPhase::HalfOpen);
        assert!(breaker.admit(11_000).is_some());
        assert!(!breaker.admits(11_500) && breaker.admit(11_500).is_none(), "one probe a second");
        assert!(breaker.admit(12_000).is_some());
        assert!(breaker.succeeded(11_000, 12_100));
        assert_eq!(breaker.phase(12_100), BreakerPhase::Closed);
        assert_eq!(
            (breaker.admit(12_100), breaker.admit(12_100)),
            (Some(BreakerPermit::Free), Some(BreakerPermit::Free))
        );
    }

    #[test]
    fn a_returned_probe_can_be_taken_again() {
        let mut breaker = opened(0);
        let first = breaker.admit(20_000).unwrap();
        assert!(!breaker.admits(20_001));
        breaker.give_back(first);
        assert!(breaker.admits(20_001));
        let (second, third) = (breaker.admit(20_001).unwrap(), breaker.admit(21_001).unwrap());
        breaker.give_back(second);
        assert!(!breaker.admits(21_500), "another attempt has taken the probe of this second");
        breaker.failed(21_001, 21_600, false);
        breaker.give_back(third);
        assert_eq!(breaker.phase(21_700), BreakerPhase::Open);
    }

    #[test]
    fn a_failed_probe_doubles_the_cool_down() {
        let mut breaker = opened(0);
        assert!(breaker.failed(10_000, 10_000, false));
        assert!(!breaker.admits(10_000 + 15_999));
        assert!(breaker.admits(30_000));
    }

    #[test]
    fn attempts_begun_before_the_breaker_opened_do_not_count() {
        let mut breaker = opened(5_000);
        assert!(!breaker.succeeded(4_999, 20_000), "it began before the failures");
        assert!(!breaker.failed(6_000, 20_000, false), "it was no probe");
        assert_eq!(breaker.phase(20_000), BreakerPhase::HalfOpen);
    }

    #[test]
    fn a_long_closed_time_resets_the_cool_down() {
        let mut breaker = opened(0);
        breaker.failed(10_000, 10_000, false);
        breaker.succeeded(30_000, 30_000);
        let later = 30_000 + FORGIVEN_MS;
        assert!(breaker.failed(later, later, true));
        assert!(breaker.admits(later + COOL_DOWN_MS));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wait(u64),
        Route,
        Succeed,
        Fail,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u64..60_000).prop_map(Step::Wait),
            Just(Step::Route),
            Just(Step::Succeed),
            Just(Step::Fail),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// After any sequence of steps the breaker can close again, it admits at most one request a
        /// second while it is not closed, and a success that began now closes it.
        #[test]
        fn an_open_breaker_always_admits_requests_again(steps in steps(), seed: u64) {
            let mut breaker = Breaker::new(seed);
            let mut now_ms = 0;
            let mut admitted_ms = None;
            for step in steps {
                match step {
                    Step::Wait(ms) => now_ms += ms,
                    Step::Route if breaker.phase(now_ms) == BreakerPhase::Closed => prop_assert!(breaker.admits(now_ms)),
                    Step::Route => {
                        let (phase, admits) = (breaker.phase(now_ms), breaker.admits(now_ms));
                        let permit = breaker.admit(now_ms);
                        prop_assert_eq!(permit.is_some(), admits);
                        if admits {
                            prop_assert_eq!(phase, BreakerPhase::HalfOpen);
                            let apart = admitted_ms.is_none_or(|before| now_ms >= before + PROBE_EVERY_MS);
                            prop_assert!(apart);
                            admitted_ms = Some(now_ms);
                        }
                    }
                    Step::Succeed => {
                        breaker.succeeded(now_ms, now_ms);
                        prop_assert_eq!(breaker.phase(now_ms), BreakerPhase::Closed);
                        admitted_ms = None;
                    }
                    Step::Fail => {
                        if breaker.failed(now_ms, now_ms, false) {
                            prop_assert_eq!(breaker.phase(now_ms), BreakerPhase::Open);
                            admitted_ms = None;
                        }
                    }
                }
            }
            now_ms += COOL_DOWN_MAX_MS;
            prop_assert!(breaker.admits(now_ms));
        }

        /// The jitter never makes a cool-down longer than its bound or shorter than four fifths of
        /// it.
        #[test]
        fn cool_downs_double_up_to_their_bound(seed: u64, openings in 1u32..40) {
            let mut breaker = Breaker::new(seed);
            let mut now_ms = 0;
            for opening in 0..openings {
                prop_assert!(breaker.failed(now_ms, now_ms, true));
                let full = (COOL_DOWN_MS << opening.min(16)).min(COOL_DOWN_MAX_MS);
                prop_assert_eq!(breaker.phase(now_ms + full * 4 / 5 - 1), BreakerPhase::Open);
                prop_assert_eq!(breaker.phase(now_ms + full), BreakerPhase::HalfOpen);
                now_ms += full;
            }
        }
    }
}
