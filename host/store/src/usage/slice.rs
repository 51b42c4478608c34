//! The arithmetic of slices: money of a limited account that a host has reserved ahead of its requests.
//!
//! A slice belongs to one host, workspace and key. Its row counts as reserved on all hosts. Requests of the
//! host reserve out of it in memory. What they hold and what they have spent without a commit is never more
//! than the row, except for what requests spend beyond their estimates.

/// How long spending is looked back on, in milliseconds.
const DEMAND_MS: u64 = 2_000;
/// A slice has at most 1 / (4 H) of what is left, with H hosts.
const PARTS_PER_HOST: u64 = 4;

/// What a host knows of a slice, pico-dollars.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Slice {
    /// What may be used of the row. The row has at least as much.
    pub(crate) amount: u64,
    /// What running requests hold, and the cost of those that have ended and are not committed.
    pub(crate) used: u64,
    /// What requests asked for lately.
    demand: Demand,
}

/// What one commit takes out of a slice, pico-dollars.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Taken {
    /// Cost of the usage rows that are charged to the slice.
    pub(crate) charged: u64,
    /// Cost of all usage rows of its requests, also of those that do not count.
    pub(crate) settled: u64,
    /// Number of these rows.
    pub(crate) rows: usize,
    /// What requests held that get an intent of their own.
    pub(crate) moved: u64,
    /// Number of these requests.
    pub(crate) movers: usize,
}

/// How a commit changes a slice, pico-dollars. It is in memory once the commit is durable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct SliceChange {
    /// The amount of the row.
    pub(crate) amount: u64,
    /// What is used of it after the commit.
    pub(crate) used: u64,
    /// By how much the amount in memory falls, and by how much it rises again without a check.
    lowered: u64,
    covered: u64,
    /// What the limits allowed beyond that.
    pub(crate) refilled: u64,
    settled: u64,
}

impl Slice {
    /// What a request can still reserve.
    pub(crate) fn free(&self) -> u64 {
        self.amount.saturating_sub(self.used)
    }

    /// Reserves this, if it is free.
    pub(crate) fn take(&mut self, pico: u64) -> bool {
        let is_free = pico <= self.free();
        if is_free {
            self.used = self.used.saturating_add(pico);
        }
        is_free
    }

    /// Notes what a request asks for, whether it gets it here or not.
    pub(crate) fn ask(&mut self, pico: u64, now_ms: u64) {
        self.demand.add(pico, now_ms);
    }

    /// Changes what a request holds or has spent.
    pub(crate) fn replace(&mut self, before: u64, after: u64) {
        self.used = self.used.saturating_sub(before).saturating_add(after);
    }

    /// Gives back what is free. `false` if nothing is.
    pub(crate) fn give_back(&mut self) -> bool {
        let is_any = self.free() > 0;
        self.amount = self.amount.min(self.used);
        is_any
    }

    /// What becomes of the slice with a commit. `row` is the amount of its row before; `left`, what the limits
    /// leave beside everything but this slice, `None` where it gets nothing more.
    pub(crate) fn change(
        &self,
        row: u64,
        taken: &Taken,
        left: Option<u64>,
        hosts: u64,
        now_ms: u64,
    ) -> SliceChange {
        // A row that has less than this host believes was set back with the database.
        let kept = self.amount.min(row).saturating_sub(taken.charged).saturating_sub(taken.moved);
        let used = self.used.saturating_sub(taken.settled).saturating_sub(taken.moved);
        let base = kept.max(used);
        let wanted = match left {
            Some(left) => {
                let demand = self.demand.at(now_ms);
                let most = left / hosts.max(1).saturating_mul(PARTS_PER_HOST);
                let wanted = used.saturating_add(demand.recent()).min(most);
                // Less than one request asks for is of no use here, and may be elsewhere.
                if wanted.saturating_sub(used) < demand.last { 0 } else { wanted }
            }
            None => 0,
        };
        let amount = base.max(wanted);
        SliceChange {
            amount,
            used,
            lowered: self.amount.saturating_sub(kept),
            covered: base.saturating_sub(kept),
            refilled: amount.saturating_sub(base),
            settled: taken.settled,
        }
    }

    /// Takes a durable change over. What moved is given back by the requests that moved. `is_refilled`: what
    /// the limits allowed still holds.
    pub(crate) fn apply(&mut self, change: &SliceChange, is_refilled: bool) {
        let refilled = if is_refilled { change.refilled } else { 0 };
        let kept = self.amount.saturating_sub(change.lowered);
        self.amount = kept.saturating_add(change.covered).saturating_add(refilled);
        self.used = self.used.saturating_sub(change.settled);
    }
}

/// What requests asked for in the time now and the one before, pico-dollars.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Demand {
    /// Number of the time now, each [`DEMAND_MS`] long.
    time: u64,
    now: u64,
    before: u64,
    /// What was asked for last.
    last: u64,
}

impl Demand {
    fn at(self, now_ms: u64) -> Demand {
        let time = now_ms / DEMAND_MS;
        match time.saturating_sub(self.time) {
            0 => self,
            1 => Demand { time, now: 0, before: self.now, last: self.last },
            _ => Demand { time, now: 0, before: 0, last: self.last },
        }
    }

    fn add(&mut self, pico: u64, now_ms: u64) {
        *self = self.at(now_ms);
        self.now = self.now.saturating_add(pico);
        self.last = pico;
    }

    fn recent(&self) -> u64 {
        self.now.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Taken = Taken { charged: 0, settled: 0, rows: 0, moved: 0, movers: 0 };

    #[test]
    fn a_slice_has_two_seconds_of_demand_and_at_most_a_part_of_what_is_left() {
        let mut slice = Slice::default();
        slice.ask(10, 100);
        slice.ask(10, 1_900);
        let amount = |left, hosts, now_ms| slice.change(0, &NOTHING, Some(left), hosts, now_ms).amount;
        assert_eq!(amount(1_000, 1, 1_900), 20);
        assert_eq!(amount(1_000, 1, 3_900), 20, "of the two seconds before");
        assert_eq!(amount(1_000, 1, 4_000), 0, "of no time before");
        assert_eq!(amount(60, 1, 1_900), 15);
        assert_eq!(amount(120, 2, 1_900), 15);
        assert_eq!(amount(39, 1, 1_900), 0, "less than one request asks for");
        assert_eq!(slice.change(0, &NOTHING, None, 1, 1_900).amount, 0);
    }

    #[test]
    fn a_commit_lowers_a_slice_by_what_rows_cost_and_refills_it() {
        let mut slice = Slice::default();
        slice.ask(100, 0);
        let granted = slice.change(0, &NOTHING, Some(1_000), 1, 0);
        assert_eq!((granted.amount, granted.refilled), (100, 100));
        slice.apply(&granted, true);
        assert!(slice.take(60) && !slice.take(41) && slice.take(40));
        slice.replace(60, 25);
        let taken = Taken { charged: 25, settled: 25, rows: 1, ..NOTHING };
        let flushed = slice.change(100, &taken, Some(975), 1, 0);
        assert_eq!((flushed.amount, flushed.used, flushed.refilled), (140, 40, 65));
        slice.apply(&flushed, true);
        assert_eq!((slice.amount, slice.used, slice.free()), (140, 40, 100));
        assert!(slice.give_back() && !slice.give_back());
        assert_eq!((slice.amount, slice.used), (40, 40));
    }

    #[test]
    fn what_was_spent_beyond_the_slice_is_covered_without_a_check() {
        let mut slice = Slice { amount: 10, ..Slice::default() };
        assert!(slice.take(4) && slice.take(6));
        slice.replace(6, 50);
        let taken = Taken { charged: 50, settled: 50, rows: 1, ..NOTHING };
        let change = slice.change(10, &taken, None, 1, 0);
        assert_eq!((change.amount, change.used), (4, 4), "the other request stays covered");
        slice.apply(&change, true);
        assert_eq!((slice.amount, slice.used), (4, 4));
    }

    #[test]
    fn a_refill_that_does_not_hold_any_more_is_not_used() {
        let mut slice = Slice::default();
        slice.ask(10, 0);
        let change = slice.change(0, &NOTHING, Some(1_000), 1, 0);
        slice.apply(&change, false);
        assert_eq!((change.amount, slice.amount), (10, 0));
    }
}
