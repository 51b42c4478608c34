//! Detection of stored sums that differ from the sums of the usage rows.

use super::*;
use crate::changes::WriteBatch;
use crate::rows;
use crate::state::Gap;
use crate::usage::{Cell, KeySpent, UsageTotals, WorkspaceSpent};

const DOLLAR: u64 = 1_000_000_000_000;

/// The problems found in a store with three rows of one dollar each after this change.
fn problems_after(
    change: impl Fn(&mut WriteBatch, &UsageRow) -> Result<(), Gap> + Send + 'static,
) -> Vec<String> {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    for request in ["a", "b", "c"] {
        record_usage(&store, UsageRow { cost_pico: DOLLAR, ..usage_row(&store, request) });
    }
    store.flush().unwrap();
    assert_eq!(store.verify(&mut go_on).unwrap().problems, Vec::<String>::new());
    let row = store.usage_rows(1).now().unwrap().remove(0);
    store.submit(guarded([Guard::Store], move |batch| change(batch, &row))).unwrap();
    let problems = store.verify(&mut go_on).unwrap().problems;
    // A store with wrong sums can still be backed up and restored.
    store.backup(&scratch.path("backup"), &mut go_on).unwrap();
    problems
}

#[test]
fn a_wrong_sum_of_a_key_is_reported_with_the_difference() {
    let problems = problems_after(|batch, row| {
        let mut spent = KeySpent::default();
        spent.charged.add(row.at_ms, 4 * DOLLAR + 5);
        batch.put_row(Guard::Store, rows::key_spend_key(row.key), &spent)
    });
    let expected = "the key abcdefghijkl: it spent $4.000000000005 by its sum, $1.000000000005 more than its usage rows say ($3)";
    assert_eq!(problems, [expected]);
}

#[test]
fn a_missing_sum_is_compared_as_zero() {
    let problems = problems_after(|batch, row| {
        batch.drop_row(Guard::Store, rows::workspace_spend_key(row.workspace))?;
        batch.drop_row(Guard::Store, Cell::of(row).row_key())
    });
    let [workspace, day] = problems.try_into().unwrap();
    assert!(
        workspace.starts_with("the workspace ") && workspace.contains("$0 by its sum, $3 less "),
        "{workspace}"
    );
    assert!(day.contains(": the key abcdefghijkl with the model \"local/demo\": it spent $0 "), "{day}");
}

#[test]
fn windows_counts_and_byok_costs_are_compared_too() {
    let problems = problems_after(|batch, row| {
        let mut spent = KeySpent::default();
        for days in [2, 1, 0] {
            spent.charged.add(row.at_ms - days * crate::spend::DAY_MS, DOLLAR);
        }
        batch.put_row(Guard::Store, rows::key_spend_key(row.key), &spent)?;
        let spent = WorkspaceSpent { charged_pico: 3 * DOLLAR, byok_pico: 7 };
        batch.put_row(Guard::Store, rows::workspace_spend_key(row.workspace), &spent)?;
        let totals = UsageTotals { completed: 9, cost_pico: 3 * DOLLAR, ..UsageTotals::default() };
        batch.put_row(Guard::Store, Cell::of(row).row_key(), &totals)
    });
    assert_eq!(problems.len(), 3, "{problems:?}");
    let has =
        |part: &str| assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
    has("latest day, week or month");
    has("it paid to providers itself $0.000000000007 by its sum");
    has("(9 and 3 requests)");
}
