//! The ledger compared with a model that keeps lists of all events.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Reserve { key: usize, estimate: u64 },
    Settle { open: usize, cost: u64 },
    Drop { open: usize },
    Release { open: usize },
    Pledge { open: usize, estimate: u64 },
    Spend { open: usize, cost: u64 },
    PartOver { open: usize },
    AddCredit { amount: u64 },
    Later { ms: u64 },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3_usize, 0..200_u64).prop_map(|(key, estimate)| Step::Reserve { key, estimate }),
        4 => (any::<usize>(), 0..300_u64).prop_map(|(open, cost)| Step::Settle { open, cost }),
        1 => any::<usize>().prop_map(|open| Step::Drop { open }),
        1 => any::<usize>().prop_map(|open| Step::Release { open }),
        4 => (any::<usize>(), 0..200_u64).prop_map(|(open, estimate)| Step::Pledge { open, estimate }),
        4 => (any::<usize>(), 0..100_u64).prop_map(|(open, cost)| Step::Spend { open, cost }),
        2 => any::<usize>().prop_map(|open| Step::PartOver { open }),
        1 => (0..500_u64).prop_map(|amount| Step::AddCredit { amount }),
        2 => (0..3 * DAY_MS).prop_map(|ms| Step::Later { ms }),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..40)
}

/// The expected state of the accounts, as lists of events.
#[derive(Default)]
struct Model {
    credited: u64,
    paid: Vec<(usize, u64, u64)>,
    open: Vec<Open>,
}

/// A request in progress.
struct Open {
    key: usize,
    held: u64,
    spent: u64,
    /// What each of its parts may still spend.
    parts: Vec<(u64, Pledge)>,
    reservation: Reservation,
}

impl Open {
    fn used(&self) -> u64 {
        self.spent + self.parts.iter().map(|(left, _)| left).sum::<u64>()
    }
}

/// A request for a reservation.
#[derive(Default)]
struct Asks {
    held: u64,
    used: u64,
    has_parts: bool,
    estimate: u64,
}

impl Asks {
    /// What one limit leaves for the request, if the estimate is allowed.
    fn left(&self, limit: u64, spent: u64, others: u64) -> Option<u64> {
        let certain = if self.has_parts { 0 } else { self.used };
        limit.checked_sub(spent + certain).filter(|rest| *rest > 0)?;
        let left = limit.saturating_sub(spent + others + self.used);
        let is_alone = others == 0 && !self.has_parts;
        (is_alone || self.estimate <= left).then_some(left)
    }
}

impl Model {
    fn spent(&self) -> u64 {
        self.paid.iter().map(|(_, _, cost)| cost).sum()
    }

    fn held(&self, of: impl Fn(usize) -> bool) -> u64 {
        self.open.iter().filter(|open| of(open.key)).map(|open| open.held).sum()
    }

    fn in_window(&self, key: usize, window: SpendWindow, now_ms: u64) -> u64 {
        let end = window.resets_at_ms(now_ms);
        let counts = |at: u64| end.is_none() || window.resets_at_ms(at) == end;
        self.paid.iter().filter(|(of, at, _)| *of == key && counts(*at)).map(|(_, _, cost)| cost).sum()
    }

    /// The most that one of the limits leaves for the request beyond what it has used, if the estimate is allowed.
    fn left(&self, key: usize, limits: &SpendLimits, now_ms: u64, asks: &Asks) -> Option<u64> {
        let others = |held: u64| held - asks.held;
        let mut left = asks.left(self.credited, self.spent(), others(self.held(|_| true)))?;
        for window in SpendWindow::ALL {
            let Some(limit) = limits.of(window) else { continue };
            let others = others(self.held(|of| of == key));
            left = left.max(asks.left(limit, self.in_window(key, window, now_ms), others)?);
        }
        Some(left)
    }

    fn pick(&mut self, open: usize) -> Option<Open> {
        let count = self.open.len();
        (count > 0).then(|| self.open.swap_remove(open % count))
    }

    fn look(&mut self, open: usize) -> Option<&mut Open> {
        let count = self.open.len();
        self.open.get_mut(open.checked_rem(count)?)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// For any sequence of reservations, pledges, spending, settling, dropping and releasing, over
    /// several days and restarts: accounts, rows and totals equal the sums of the events, and a
    /// request is refused only if the limits require it.
    #[test]
    fn accounts_rows_and_totals_equal_the_sum_of_events(steps in steps()) {
        let scratch = ScratchDirectory::new();
        let mut store = scratch.open();
        let limits = [
            SpendLimits::default(),
            SpendLimits { day_pico: Some(150), week_pico: Some(400), ..SpendLimits::default() },
            SpendLimits { month_pico: Some(300), total_pico: Some(900), ..SpendLimits::default() },
        ];
        let keys = limits.map(|limits| key_with(&store, limits));
        store.add_credit(OPERATOR, workspace(&store), 1_000).unwrap();
        let mut model = Model { credited: 1_000, ..Model::default() };
        for step in steps {
            let now_ms = scratch.clock.now_ms();
            match step {
                Step::Reserve { key, estimate } => {
                    let asks = Asks { estimate, ..Asks::default() };
                    let expected = model.left(key, &limits[key], now_ms, &asks).map(|left| left.min(estimate));
                    let reserved = reserve(&store, keys[key], estimate);
                    prop_assert_eq!(reserved.is_ok(), expected.is_some());
                    if let (Ok(reservation), Some(held)) = (reserved, expected) {
                        model.open.push(Open { key, held, spent: 0, parts: Vec::new(), reservation });
                    }
                }
                Step::Pledge { open, estimate } => {
                    let Some(&mut Open { key, held, spent, ref reservation, .. }) = model.look(open) else {
                        continue;
                    };
                    let pledge = reservation.pledge(estimate).now().map(Option::unwrap);
                    let used = model.look(open).unwrap().used();
                    let has_parts = used > spent;
                    let asks = Asks { held, used, has_parts, estimate };
                    let left = model.left(key, &limits[key], now_ms, &asks);
                    prop_assert_eq!(pledge.is_ok(), estimate == 0 || left.is_some());
                    let (Ok(pledge), Some(open)) = (pledge, model.look(open)) else { continue };
                    let pledged = estimate.min(left.unwrap_or_default());
                    open.parts.push((pledged, pledge));
                    open.held = held.max(used + pledged);
                }
                Step::Spend { open, cost } => {
                    let Some(open) = model.look(open) else { continue };
                    open.spent += cost;
                    let part = open.parts.last_mut().map(|(left, pledge)| {
                        *left = left.saturating_sub(cost);
                        pledge
                    });
                    let spent = open.spent;
                    open.reservation.spend(part, |row| row.cost_pico = spent);
                    open.held = open.held.max(open.used());
                }
                Step::PartOver { open } => {
                    if let Some(open) = model.look(open) {
                        open.parts.pop();
                    }
                }
                Step::Settle { open, cost } => {
                    if let Some(Open { key, reservation, .. }) = model.pick(open) {
                        settle(&reservation, cost);
                        model.paid.push((key, now_ms, cost));
                    }
                }
                Step::Drop { open } => {
                    if let Some(Open { key, spent, .. }) = model.pick(open) {
                        model.paid.push((key, now_ms, spent));
                    }
                }
                Step::Release { open } => {
                    if let Some(Open { key, spent, reservation, .. }) = model.pick(open) {
                        reservation.release();
                        model.paid.push((key, now_ms, spent));
                    }
                }
                Step::AddCredit { amount } => {
                    store.add_credit(OPERATOR, workspace(&store), amount).unwrap();
                    model.credited += amount;
                }
                Step::Later { ms } => scratch.clock.advance(Duration::from_millis(ms)),
                Step::Reopen => {
                    model.paid.extend(model.open.drain(..).map(|open| (open.key, now_ms, open.spent)));
                    store.close();
                    store = scratch.open();
                }
            }
            let expected = (Some(model.credited), model.spent(), model.held(|_| true));
            prop_assert_eq!(balance(&store), expected);
            for (number, key) in keys.iter().enumerate() {
                let spend = store.key_spend(*key).now().unwrap();
                prop_assert_eq!(spend.reserved_pico, model.held(|of| of == number));
                for window in SpendWindow::ALL {
                    let expected = model.in_window(number, window, scratch.clock.now_ms());
                    prop_assert_eq!(spend.charged.of(window), expected, "{}", window);
                }
            }
        }
        let now_ms = scratch.clock.now_ms();
        model.paid.extend(model.open.drain(..).map(|open| (open.key, now_ms, open.spent)));
        store.flush().unwrap();
        let rows: u64 = store.usage_rows(1_000).now().unwrap().iter().map(|row| row.cost_pico).sum();
        prop_assert_eq!(rows, model.spent());
        let (first, last) = (UsageDay(0), UsageDay::of_ms(scratch.clock.now_ms()));
        let query = UsageQuery { first, last, by: UsageBy::Day, workspace: None, groups_max: 1_000 };
        prop_assert_eq!(store.usage_report(query).now().unwrap().sum.cost_pico, model.spent());
    }
}
