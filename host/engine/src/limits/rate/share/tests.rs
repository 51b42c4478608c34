use proptest::prelude::*;

use super::super::{MINUTE_NS, RateLimit};
use super::*;
use cofferdam_store::Clock;

/// The bucket of one limit, with the rule of the database.
#[derive(Default)]
struct Bucket {
    until_ns: u64,
}

impl Bucket {
    /// Books use and returned units, and grants units. Returns these, and how far use is ahead then.
    fn ask(&mut self, quota: Quota, now_ns: u64, used_ns: u64, unused: u64, units: u64) -> (u64, u64) {
        let unit_ns = quota.time_of(1).max(1);
        let ahead_ns = self.until_ns.saturating_sub(now_ns) + used_ns;
        let ahead_ns = ahead_ns.saturating_sub(unused * unit_ns);
        let granted = units.min(quota.time_of(quota.at_once).saturating_sub(ahead_ns) / unit_ns);
        let ahead_ns = ahead_ns + granted * unit_ns;
        self.until_ns = now_ns + ahead_ns;
        (granted, ahead_ns)
    }
}

/// Hosts that share one limit.
struct Cluster {
    clock: Clock,
    quota: Quota,
    shares: Vec<Share>,
    bucket: Bucket,
    is_away: bool,
}

impl Cluster {
    fn new(quota: Quota, hosts: usize) -> Self {
        let (bucket, shares) = (Bucket::default(), vec![Share::default(); hosts]);
        Self { clock: Clock::manual(), quota, shares, bucket, is_away: false }
    }

    fn terms(&self) -> Terms {
        Terms::new(self.quota, self.shares.len() as u64)
    }

    fn now_ns(&self) -> u64 {
        self.clock.monotonic_ms() * 1_000_000
    }

    fn advance(&mut self, ms: u64) {
        self.clock.advance(std::time::Duration::from_millis(ms));
        let now_ns = self.now_ns();
        for share in &mut self.shares {
            let unused = share.take_idle(now_ns);
            self.bucket.ask(self.quota, now_ns, 0, unused, 0);
        }
    }

    fn take(&mut self, host: usize) -> Result<Source, TooOften> {
        let (terms, now_ns) = (self.terms(), self.now_ns());
        let share = &mut self.shares[host];
        if let Some(source) = share.take(&terms, now_ns) {
            return Ok(source);
        }
        if self.is_away {
            return share.take_alone(&terms, now_ns);
        }
        let used_ns = share.book(&terms, now_ns);
        let (granted, ahead_ns) = self.bucket.ask(self.quota, now_ns, used_ns, 0, terms.slice);
        share.answered(&terms, granted, ahead_ns, now_ns)
    }

    fn taken(&mut self, host: usize) -> u64 {
        (0..100_000).take_while(|_| self.take(host).is_ok()).count() as u64
    }

    fn debit(&mut self, host: usize, units: u64) {
        let (terms, now_ns) = (self.terms(), self.now_ns());
        if self.shares[host].debit(&terms, units, now_ns) {
            self.look(host);
        }
    }

    fn look(&mut self, host: usize) {
        let (terms, now_ns) = (self.terms(), self.now_ns());
        let used_ns = self.shares[host].book(&terms, now_ns);
        let (_, ahead_ns) = self.bucket.ask(self.quota, now_ns, used_ns, 0, 0);
        self.shares[host].see(&terms, ahead_ns, now_ns);
    }

    fn check(&mut self, host: usize) -> bool {
        let (terms, now_ns) = (self.terms(), self.now_ns());
        if let Some(checked) = self.shares[host].check(&terms, now_ns) {
            return checked.is_ok();
        }
        self.look(host);
        self.shares[host].check_seen(&terms, now_ns).is_ok()
    }
}

fn quota(per_minute: u64) -> Quota {
    Quota::of_minute(per_minute).unwrap()
}

#[test]
fn one_client_gets_the_whole_limit_through_one_host() {
    for (limit, hosts) in [(3, 2), (8, 2), (100, 3), (1_000, 4), (600, 1)] {
        let mut cluster = Cluster::new(quota(limit), hosts);
        assert_eq!(cluster.taken(0), limit, "{limit} for {hosts} hosts");
    }
}

#[test]
fn a_limit_of_less_than_four_for_each_host_is_exact() {
    for (limit, hosts) in [(3, 1), (3, 2), (7, 2), (11, 3), (1, 50)] {
        let mut cluster = Cluster::new(quota(limit), hosts);
        let taken: u64 = (0..hosts * 20).filter(|turn| cluster.take(turn % hosts).is_ok()).count() as u64;
        assert_eq!(taken, limit, "{limit} for {hosts} hosts");
    }
}

#[test]
fn what_hosts_admit_without_asking_is_a_quarter_beside_the_whole_limit() {
    let mut cluster = Cluster::new(quota(800), 4);
    assert_eq!(cluster.taken(0), 800);
    assert_eq!([1, 2, 3].map(|host| cluster.taken(host)), [50, 50, 50]);
    // The use without asking is booked, so it is paid off before more is granted.
    cluster.advance(10_000);
    let more: u64 = (0..4).map(|host| cluster.taken(host)).sum();
    assert!(more <= 800 / 6 + 800 / 24, "{more}");
}

#[test]
fn a_slice_that_is_not_used_goes_back() {
    let mut cluster = Cluster::new(quota(800), 2);
    for _ in 0..101 {
        cluster.take(0).unwrap();
    }
    assert!(cluster.shares[0].has_slice());
    assert_eq!(cluster.taken(1), 800 - 100 - 50);
    cluster.advance(1_999);
    assert!(cluster.shares[0].has_slice());
    cluster.advance(1);
    assert!(!cluster.shares[0].has_slice());
    assert!(cluster.taken(1) >= 49);
}

#[test]
fn a_returned_unit_can_be_used_again_once_wherever_it_came_from() {
    let mut cluster = Cluster::new(quota(80), 2);
    for _ in 0..3 {
        for is_away in [false, true] {
            cluster.is_away = is_away;
            let before = cluster.shares[0].standing(&cluster.terms(), cluster.now_ns());
            let Ok(source) = cluster.take(0) else { continue };
            let (terms, now_ns) = (cluster.terms(), cluster.now_ns());
            cluster.shares[0].give_back(&terms, source, now_ns);
            let after = cluster.shares[0].standing(&terms, now_ns);
            assert_eq!(after.remaining, before.remaining, "{source:?}");
        }
        cluster.is_away = false;
        (0..11).filter(|_| cluster.take(0).is_ok()).count();
    }
}

#[test]
fn without_the_database_each_host_admits_its_part() {
    for (limit, hosts, part) in [(100, 4, 25), (90, 3, 30), (3, 5, 1), (7, 1, 7)] {
        let mut cluster = Cluster::new(quota(limit), hosts);
        cluster.is_away = true;
        assert!((0..hosts).all(|host| cluster.taken(host) == part), "{limit} for {hosts} hosts");
        let refused = cluster.take(0).unwrap_err();
        assert_eq!((refused.standing.limit, refused.standing.remaining), (limit, 0));
        // What was admitted meanwhile is booked when the database is back.
        cluster.is_away = false;
        (0..hosts).for_each(|host| cluster.look(host));
        let more: u64 = (0..hosts).map(|host| cluster.taken(host)).sum();
        assert!(part * hosts as u64 + more <= limit + limit / 4 + hosts as u64, "{more} more");
    }
}

#[test]
fn tokens_charged_on_one_host_are_known_on_the_others() {
    let mut cluster = Cluster::new(quota(8_000), 2);
    assert!(cluster.check(0) && cluster.check(1));
    cluster.debit(0, 9_000);
    assert!(!cluster.check(0));
    assert!(cluster.check(1), "within what it admits without asking");
    cluster.debit(1, 1_000);
    assert!(!cluster.check(1));
    // 2,000 too many are paid off in 15 s, and what is admitted without asking comes back.
    cluster.advance(14_000);
    cluster.debit(1, 10_000);
    cluster.advance(40_000);
    assert!(!cluster.check(1));
}

#[test]
fn a_changed_limit_keeps_past_use() {
    let mut cluster = Cluster::new(quota(100), 1);
    assert_eq!(cluster.taken(0), 100);
    cluster.quota = quota(200);
    // The bucket is a time, which was computed at the former rate.
    assert_eq!(cluster.shares[0].standing(&cluster.terms(), cluster.now_ns()).remaining, 100);
}

proptest! {
    /// However requests are spread over hosts and time, hosts admit between 7/8 and 1.25 of what one host
    /// would.
    #[test]
    fn hosts_together_keep_to_the_limit_within_its_bounds(
        limit in 1_u64..3_000,
        burst in prop::option::of(1_u64..3_000),
        hosts in 1_usize..9,
        demand in prop::collection::vec((0_usize..9, 0_u64..9_000, 0_u64..900), 1..60),
    ) {
        let quota = Quota::new(limit, burst.unwrap_or(limit)).unwrap();
        let mut cluster = Cluster::new(quota, hosts);
        let one = RateLimit::new(cluster.clock.clone());
        let (mut by_cluster, mut by_one) = (0_u64, 0_u64);
        for (host, pause_ms, requests) in demand {
            cluster.advance(pause_ms);
            for _ in 0..requests {
                by_cluster += u64::from(cluster.take(host % hosts).is_ok());
                by_one += u64::from(one.take(1, quota).is_ok());
            }
            // Parts are whole units.
            let rounding = hosts as u64 + 1;
            prop_assert!(by_cluster * 4 <= by_one * 5 + rounding * 4, "{} and {}", by_cluster, by_one);
            prop_assert!(by_cluster * 8 + rounding * 8 >= by_one * 7, "{} and {}", by_cluster, by_one);
            if limit < 4 * hosts as u64 {
                prop_assert!(by_cluster.abs_diff(by_one) <= 1, "{} and {}", by_cluster, by_one);
            }
        }
    }

    /// No figures make a share forget how to end.
    #[test]
    fn any_figures_keep_their_bounds(
        steps in prop::collection::vec(
            (any::<u64>(), 1_u64..=u64::from(u32::MAX), 1_u64..1_000, any::<u64>(), 0_u64..100_000),
            1..40,
        ),
    ) {
        let mut share = Share::default();
        let mut now_ns = 0;
        for (units, per_minute, hosts, ahead_ns, pause_ms) in steps {
            now_ns += pause_ms * 1_000_000;
            let terms = Terms::new(quota(per_minute), hosts);
            share.debit(&terms, units, now_ns);
            share.see(&terms, ahead_ns, now_ns);
            prop_assert!(share.book(&terms, now_ns) <= 25 * 60 * MINUTE_NS);
            share.keep(&terms, ahead_ns, now_ns);
            prop_assert!(share.standing(&terms, now_ns).remaining <= per_minute);
            if let Err(refused) = share.check_seen(&terms, now_ns) {
                prop_assert!((1..=50 * 3_600).contains(&refused.wait_s));
            }
            if let Err(refused) = share.check_alone(&terms, now_ns) {
                prop_assert!((1..=25 * 3_600).contains(&refused.wait_s));
            }
        }
    }
}
