use std::time::Duration;

use cofferdam_store::Clock;
use proptest::prelude::*;

use futures_util::FutureExt as _;

use super::{Quota, Rate, RateLimit, Standing, Taken};

fn limit(clock: &Clock) -> RateLimit<u32> {
    RateLimit::new(clock.clone())
}

fn quota(per_minute: u64) -> Quota {
    Quota::of_minute(per_minute).unwrap()
}

fn taken(limit: &RateLimit<u32>, who: u32, quota: Quota) -> usize {
    (0..10_000).take_while(|_| limit.take(who, quota).is_ok()).count()
}

fn wait_s(limit: &RateLimit<u32>, quota: Quota) -> u64 {
    limit.check(1, quota).unwrap_err().wait_s
}

#[test]
fn a_unit_that_is_not_kept_goes_back() {
    let rate = Rate::new(&Clock::manual(), "requests", None);
    let quota = quota(2);
    let take = || rate.take(1, quota).now_or_never().unwrap();
    let (first, second) = (take().unwrap(), take().unwrap());
    assert_eq!((second.standing().remaining, take().is_err()), (0, true));
    drop(first);
    second.keep();
    assert_eq!(rate.standing(1, quota).remaining, 1);
    take().into_iter().for_each(Taken::keep);
    assert_eq!(rate.standing(1, quota).remaining, 0);
}

#[test]
fn a_whole_quota_may_be_used_at_once() {
    for per_minute in [1, 2, 7, 20, 61, 600, 5_000] {
        assert_eq!(taken(&limit(&Clock::manual()), 1, quota(per_minute)), per_minute as usize);
    }
    assert_eq!(taken(&limit(&Clock::manual()), 1, Quota::new(1, 20).unwrap()), 20);
    assert_eq!(Quota::of_minute(0), None);
    assert_eq!(Quota::new(0, 20), None);
}

#[test]
fn waiting_restores_units_at_the_rate_up_to_the_burst() {
    let clock = Clock::manual();
    let limit = limit(&clock);
    let quota = Quota::new(60, 20).unwrap();
    assert_eq!(taken(&limit, 1, quota), 20);
    assert_eq!(wait_s(&limit, quota), 1);
    clock.advance(Duration::from_millis(999));
    assert_eq!(taken(&limit, 1, quota), 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(taken(&limit, 1, quota), 1);
    clock.advance(Duration::from_secs(5));
    assert_eq!(taken(&limit, 1, quota), 5);
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(taken(&limit, 1, quota), 20);
}

#[test]
fn the_reported_wait_is_enough_and_not_a_second_too_long() {
    let clock = Clock::manual();
    let limit = limit(&clock);
    let quota = quota(7);
    taken(&limit, 1, quota);
    let wait_s = wait_s(&limit, quota);
    clock.advance(Duration::from_secs(wait_s - 1));
    assert!(limit.check(1, quota).is_err());
    clock.advance(Duration::from_secs(1));
    assert!(limit.check(1, quota).is_ok());
}

#[test]
fn a_standing_has_what_is_left_and_when_all_is_restored() {
    let clock = Clock::manual();
    let limit = limit(&clock);
    let quota = quota(7);
    for remaining in (0..7).rev() {
        let standing = limit.take(1, quota).unwrap();
        assert_eq!((standing.limit, standing.remaining), (7, remaining));
    }
    assert_eq!(limit.take(1, quota).unwrap_err().standing.remaining, 0);
    let whole_in = limit.standing(1, quota).whole_in;
    assert!(whole_in > Duration::from_millis(59_999) && whole_in <= Duration::from_secs(60));
    clock.advance(Duration::from_secs(60));
    let whole = Standing { limit: 7, remaining: 7, whole_in: Duration::ZERO };
    assert_eq!(limit.standing(1, quota), whole);
    assert_eq!(limit.standing(2, quota), whole);
}

#[test]
fn keys_do_not_share_a_quota() {
    let limit = limit(&Clock::manual());
    assert_eq!(taken(&limit, 1, quota(60)), 60);
    assert_eq!(taken(&limit, 2, quota(60)), 60);
}

#[test]
fn checks_use_nothing_and_returned_units_can_be_used_again() {
    let limit = limit(&Clock::manual());
    let quota = quota(20);
    for _ in 0..100 {
        assert!(limit.check(1, quota).is_ok());
    }
    for _ in 0..100 {
        limit.take(1, quota).unwrap();
        limit.give_back(1, quota);
    }
    assert_eq!(taken(&limit, 1, quota), 20);
}

#[test]
fn use_beyond_the_quota_is_paid_off_before_more_is_allowed() {
    let clock = Clock::manual();
    let limit = limit(&clock);
    let quota = quota(60_000);
    limit.debit(1, quota, 59_999);
    assert_eq!(limit.check(1, quota).unwrap().remaining, 1);
    limit.debit(1, quota, 30_001);
    assert_eq!(limit.check(1, quota).unwrap_err().standing.remaining, 0);
    assert_eq!(wait_s(&limit, quota), 31, "30,000 too many and one more, at 1,000 a second");
    clock.advance(Duration::from_secs(30));
    assert!(limit.check(1, quota).is_err());
    clock.advance(Duration::from_secs(1));
    assert_eq!(limit.check(1, quota).unwrap().remaining, 1_000);
}

#[test]
fn an_absurd_figure_blocks_a_key_for_a_day_at_most() {
    let limit = limit(&Clock::manual());
    for _ in 0..3 {
        limit.debit(1, quota(1_000), u64::MAX);
    }
    assert_eq!(wait_s(&limit, quota(1_000)), 24 * 3_600 + 1);
}

#[test]
fn a_changed_quota_applies_at_once_and_keeps_past_use() {
    let clock = Clock::manual();
    let limit = limit(&clock);
    limit.debit(1, quota(1_000), 900);
    // What was used stays the same when the rate changes.
    assert_eq!(limit.standing(1, quota(10_000)).remaining, 9_100);
    assert_eq!(limit.standing(1, quota(901)).remaining, 1);
    assert_eq!(limit.check(1, quota(600)).unwrap_err().wait_s, 31);
    limit.debit(1, quota(10_000), 100);
    assert_eq!(limit.standing(1, quota(2_000)).remaining, 1_000);
    clock.advance(Duration::from_secs(30));
    assert_eq!(limit.standing(1, quota(10_000)).remaining, 10_000);
}

#[test]
fn memory_is_bounded_and_the_heaviest_users_are_remembered() {
    let clock = Clock::manual();
    let limit = RateLimit { remembered_max: 100, ..limit(&clock) };
    let quota = quota(60);
    assert_eq!(taken(&limit, 0, quota), 60);
    for who in 1..1_000 {
        limit.take(who, quota).unwrap();
    }
    assert!(limit.lock().len() <= 100);
    assert!(limit.check(0, quota).is_err());
    // A key that has nothing left to pay off is forgotten first.
    clock.advance(Duration::from_secs(60));
    for who in 1_000..1_100 {
        limit.take(who, quota).unwrap();
    }
    assert!(limit.lock().len() <= 100 && !limit.lock().contains_key(&0));
}

proptest! {
    /// In any period no more is granted than what may be used at once and what the rate gives.
    #[test]
    fn no_pattern_of_requests_exceeds_the_quota(
        per_minute in 1_u64..5_000,
        at_once in 1_u64..2_000,
        pauses in proptest::collection::vec(0_u64..3_000, 1..300),
    ) {
        let clock = Clock::manual();
        let limit = limit(&clock);
        let quota = Quota::new(per_minute, at_once).unwrap();
        let mut granted: Vec<u64> = Vec::new();
        for pause in pauses {
            clock.advance(Duration::from_millis(pause));
            if limit.take(1, quota).is_ok() {
                granted.push(clock.monotonic_ms());
            }
        }
        for (index, end) in granted.iter().enumerate() {
            for (earlier, start) in granted.iter().enumerate().take(index) {
                let most = at_once + (end - start) * per_minute / 60_000 + 1;
                prop_assert!((index - earlier + 1) as u64 <= most);
            }
        }
    }

    /// No figures and no quotas block a key for ever, and what is left is never more than the
    /// quota.
    #[test]
    fn any_figures_keep_their_bounds(
        steps in proptest::collection::vec((any::<u64>(), 1_u64..=u64::from(u32::MAX), 0_u64..100_000), 1..40),
    ) {
        let clock = Clock::manual();
        let limit = limit(&clock);
        for (units, per_minute, pause) in steps {
            clock.advance(Duration::from_millis(pause));
            let quota = quota(per_minute);
            limit.debit(1, quota, units);
            let standing = limit.standing(1, quota);
            prop_assert!(standing.remaining <= per_minute);
            if let Err(refused) = limit.check(1, quota) {
                prop_assert!((1..=25 * 3_600).contains(&refused.wait_s));
            }
        }
    }
}
