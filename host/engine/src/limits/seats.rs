//! The limit of requests of one key at the same time, where several hosts share it.
//!
//! Of a limit C, each of H hosts runs up to C/2H requests without asking. For more it takes seats from the C
//! seats in the database, max(1, C/2H) at once, and returns them when so many are not needed any more. So at
//! most 1.5 C requests run, and exactly C where C < 2H. Without an answer a host runs up to C/H.

use cofferdam_store::{SeatAsk, SharedLimits};

/// A limit, as one of several hosts applies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeatTerms {
    most: u64,
    /// Requests that run without a seat.
    free: u64,
    /// Seats that are taken and returned at once.
    unit: u64,
    /// Requests that run while the database is away.
    alone: u64,
}

impl SeatTerms {
    fn new(most: u64, hosts: u64) -> Self {
        let hosts = hosts.max(1);
        let half = most / hosts.saturating_mul(2);
        Self { most, free: half, unit: half.max(1), alone: (most / hosts).max(1) }
    }

    /// How many seats a host keeps that holds `held` and runs `own` requests. It gets less than a unit where
    /// no more were left, so one that needs none keeps none.
    fn kept(self, own: u64, held: u64) -> u64 {
        let needed = own.saturating_sub(self.free);
        if needed == 0 || held.saturating_sub(needed) >= self.unit { needed } else { held }
    }
}

/// The seats of one key on this host.
#[derive(Debug, Clone)]
pub(super) struct KeySeatLimit {
    limits: SharedLimits,
    key: String,
    terms: SeatTerms,
}

impl KeySeatLimit {
    pub(super) fn new(limits: &SharedLimits, key: String, most: u64) -> Self {
        Self { limits: limits.clone(), key, terms: SeatTerms::new(most, limits.hosts()) }
    }

    /// How many requests of the key this host may run with the seats that it holds.
    pub(super) fn room(&self) -> u64 {
        self.terms.free.saturating_add(self.limits.seats(&self.key))
    }

    /// Takes more seats, as far as there are any. Returns how many requests this host may run at least.
    pub(super) async fn ask(&self) -> u64 {
        let SeatTerms { most, unit, alone, .. } = self.terms;
        match self.limits.ask_seats(&self.key, SeatAsk { units: unit, most }).await {
            Ok(()) => 0,
            Err(_) => alone,
        }
    }

    /// Returns seats that are not needed for `own` requests, those included that ask for one. To be called while nothing
    /// else counts requests.
    pub(super) fn trim(&self, own: u64) {
        let held = self.limits.seats(&self.key);
        self.limits.keep_seats(&self.key, self.terms.kept(own, held));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::SeatTerms;

    #[test]
    fn half_of_a_limit_is_free_in_equal_parts() {
        let terms = |most, hosts| {
            let SeatTerms { free, unit, alone, .. } = SeatTerms::new(most, hosts);
            [free, unit, alone]
        };
        assert_eq!(terms(20, 2), [5, 5, 10]);
        assert_eq!(terms(3, 2), [0, 1, 1]);
        assert_eq!(terms(1, 50), [0, 1, 1]);
        assert_eq!(terms(7, 1), [3, 3, 7]);
    }

    #[test]
    fn a_host_that_needs_no_seat_keeps_none_of_a_part_of_a_unit() {
        let terms = SeatTerms::new(20, 2);
        assert_eq!(terms.kept(0, 3), 0);
        assert_eq!(terms.kept(6, 3), 3);
        assert_eq!(terms.kept(6, 6), 1);
    }

    proptest! {
        /// However requests begin and end on hosts, no more than 1.5 of the limit run, and a host that holds
        /// nothing it does not need leaves the rest to others.
        #[test]
        fn hosts_together_run_at_most_half_more_than_the_limit(
            most in 1_u64..60,
            hosts in 1_usize..9,
            steps in prop::collection::vec((0_usize..9, any::<bool>()), 1..400),
        ) {
            let terms = SeatTerms::new(most, hosts as u64);
            let (mut own, mut held) = (vec![0_u64; hosts], vec![0_u64; hosts]);
            for (host, begins) in steps {
                let host = host % hosts;
                if !begins {
                    own[host] = own[host].saturating_sub(1);
                    held[host] = terms.kept(own[host], held[host]);
                    prop_assert!(own[host] <= terms.free + held[host]);
                    continue;
                }
                let running = own.iter().sum::<u64>();
                if own[host] >= terms.free + held[host] {
                    let free = most - held.iter().sum::<u64>();
                    held[host] += terms.unit.min(free);
                }
                let enters = own[host] < most && own[host] < terms.free + held[host];
                own[host] += u64::from(enters);
                prop_assert!(2 * own.iter().sum::<u64>() <= 3 * most);
                if most < 2 * hosts as u64 {
                    prop_assert_eq!(enters, running < most, "a small limit is exact");
                }
                // What hosts hold and do not use is less than a unit each.
                let unused = (terms.unit - 1) * (hosts as u64 - 1);
                prop_assert!(enters || own[host] == most || running + unused >= most, "{:?} {:?}", own, held);
            }
        }
    }
}
