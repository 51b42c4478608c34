use proptest::prelude::*;

use super::*;

fn ms(text: &str) -> u64 {
    let at: Timestamp = text.parse().unwrap();
    u64::try_from(at.as_millisecond()).unwrap()
}

#[test]
fn windows_are_those_of_the_calendar_in_utc() {
    for (now, day, week, month) in [
        ("2026-01-01T00:00:00Z", "2026-01-02", "2026-01-05", "2026-02-01"),
        ("2026-01-31T23:59:59.999Z", "2026-02-01", "2026-02-02", "2026-02-01"),
        ("2026-02-01T00:00:00Z", "2026-02-02", "2026-02-02", "2026-03-01"),
        ("2026-02-02T00:00:00Z", "2026-02-03", "2026-02-09", "2026-03-01"),
        ("2024-02-29T12:00:00Z", "2024-03-01", "2024-03-04", "2024-03-01"),
        ("2026-12-31T23:59:59Z", "2027-01-01", "2027-01-04", "2027-01-01"),
    ] {
        let start = |day: &str| Some(u64::from(day.parse::<UsageDay>().unwrap().0) * DAY_MS);
        let found = SpendWindow::ALL.map(|window| window.resets_at_ms(ms(now)));
        assert_eq!(found, [start(day), start(week), start(month), None], "{now}");
    }
}

#[test]
fn windows_reset_at_calendar_boundaries() {
    let mut spent = Spent::default();
    let seen = |spent: &Spent, now: &str| {
        let at = spent.at(ms(now));
        (at.day_pico, at.week_pico, at.month_pico, at.total_pico)
    };
    // A Saturday, and the last day of its month.
    spent.add(ms("2026-01-31T23:59:59.999Z"), 5);
    assert_eq!(seen(&spent, "2026-01-31T23:59:59.999Z"), (5, 5, 5, 5));
    assert_eq!(seen(&spent, "2026-02-01T00:00:00Z"), (0, 5, 0, 5), "a Sunday: the week goes on");
    spent.add(ms("2026-02-01T00:00:00Z"), 7);
    assert_eq!(seen(&spent, "2026-02-01T23:59:59Z"), (7, 12, 7, 12));
    assert_eq!(seen(&spent, "2026-02-02T00:00:00Z"), (0, 0, 7, 12), "a Monday");
    assert_eq!(seen(&spent, "2026-03-01T00:00:00Z"), (0, 0, 0, 12));
}

#[test]
fn a_clock_that_is_set_back_does_not_reset_a_window() {
    let mut spent = Spent::default();
    spent.add(ms("2026-02-01T00:00:01Z"), 7);
    spent.add(ms("2026-01-31T23:00:00Z"), 5);
    let at = spent.at(ms("2026-01-31T23:00:00Z"));
    assert_eq!((at.day_pico, at.month_pico, at.total_pico), (12, 12, 12));
}

#[test]
fn windows_go_on_after_a_clock_that_was_ahead_is_set() {
    let mut spent = Spent::default();
    let seen = |spent: &Spent, now: &str| {
        let at = spent.at(ms(now));
        (at.day_pico, at.week_pico, at.month_pico, at.total_pico)
    };
    spent.add(ms("2026-01-29T12:00:00Z"), 3);
    spent.add(ms("2030-02-01T00:00:00Z"), 7);
    assert_eq!(seen(&spent, "2026-01-29T13:00:00Z"), (3, 3, 3, 10), "limits are not given away");
    spent.add(ms("2026-01-30T12:00:00Z"), 5);
    assert_eq!(seen(&spent, "2026-01-30T13:00:00Z"), (5, 8, 8, 15));
    assert_eq!(seen(&spent, "2026-01-31T00:00:00Z"), (0, 8, 8, 15));
    assert_eq!(seen(&spent, "2026-02-02T00:00:00Z"), (0, 0, 0, 15), "windows end in time");
    let mut earlier = spent;
    (earlier.day.before, earlier.day.before_pico) = (0, 0);
    assert!(spent.agrees_with(&earlier) && spent != earlier, "sums of earlier versions have one window");
    let kept: Spent = serde_json::from_str(&serde_json::to_string(&spent).unwrap()).unwrap();
    assert_eq!(kept, spent);
}

#[test]
fn a_row_of_days_ago_leaves_the_sum_of_today_as_it_is() {
    let mut spent = Spent::default();
    spent.add(ms("2026-01-28T12:00:00Z"), 3);
    spent.add(ms("2026-01-31T12:00:00Z"), 5);
    // A request that was interrupted by an outage is charged with the date on which it began.
    spent.add(ms("2026-01-25T12:00:00Z"), 7);
    assert_eq!(spent.at(ms("2026-01-31T13:00:00Z")).day_pico, 5);
    assert_eq!(spent.total(), 15);
}

#[test]
fn days_are_read_as_they_are_written() {
    assert_eq!("2026-01-31".parse::<UsageDay>().unwrap().to_string(), "2026-01-31");
    for wrong in ["", "2026-02-30", "2026-1-31", "31.01.2026", "1969-12-31", "2026-01-31T00:00:00", "today"] {
        assert_eq!(wrong.parse::<UsageDay>(), Err(UsageDayError), "{wrong}");
    }
}

#[test]
fn unset_limits_are_not_written() {
    assert_eq!(serde_json::to_string(&SpendLimits::default()).unwrap(), "{}");
    let limits = SpendLimits::default().with(SpendWindow::Week, Some(5));
    assert_eq!(
        serde_json::from_str::<SpendLimits>(&serde_json::to_string(&limits).unwrap()).unwrap(),
        limits
    );
    assert_eq!(SpendWindow::ALL.map(|window| limits.of(window)), [None, Some(5), None, None]);
}

proptest! {
    /// Whenever the payments are made, each window has the sum of those on its days.
    #[test]
    fn a_window_has_the_sum_of_its_payments(
        steps in proptest::collection::vec((0..3 * DAY_MS, 1_u64..1_000), 1..60)
    ) {
        let mut spent = Spent::default();
        let mut now_ms = ms("2026-01-15T00:00:00Z");
        let mut paid: Vec<(u64, u64)> = Vec::new();
        for (later, pico) in steps {
            now_ms += later;
            spent.add(now_ms, pico);
            paid.push((now_ms, pico));
            for window in SpendWindow::ALL {
                let end = window.resets_at_ms(now_ms);
                let inside = |at: u64| end.is_none() || window.resets_at_ms(at) == end;
                let expected: u64 = paid.iter().filter(|(at, _)| inside(*at)).map(|(_, pico)| pico).sum();
                prop_assert_eq!(spent.at(now_ms).of(window), expected, "{}", window);
            }
        }
    }
}
