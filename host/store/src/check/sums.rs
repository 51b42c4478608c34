//! Checks that the stored sums of spend and usage equal the sums of the usage rows.

use std::collections::BTreeMap;

use super::{STEP, note};
use crate::dollars::Dollars;
use crate::error::Error;
use crate::ids::WorkspaceId;
use crate::operation::{Progress, VaultError, tell};
use crate::rows::{self, KEYS, Keyspace};
use crate::spend::UsageDay;
use crate::token::KeyId;
use crate::usage::{Cell, KeySpent, UsageTotals, WorkspaceSpent, block};
use crate::vault::VaultSnapshot;

/// Adds up all usage rows of the view in the order in which they were written, and notes each
/// stored sum that differs. `first_day` is the first day whose totals are kept. Where usage rows before a
/// day were dropped, sums over all days may be larger than what the rows say, but not smaller.
pub(crate) fn check_sums(
    view: &VaultSnapshot,
    first_day: UsageDay,
    dropped_before: Option<UsageDay>,
    problems: &mut Vec<String>,
    progress: &mut Progress<'_>,
) -> Result<(), VaultError> {
    let first_day = dropped_before.map_or(first_day, |kept| kept.max(first_day)).0;
    let mut sums = Sums { first_day, has_dropped: dropped_before.is_some(), ..Sums::default() };
    for (number, block) in (1_u64..).zip(view.usage_blocks()?) {
        if number % STEP == 0 {
            tell(progress, "usage rows added up", sums.rows, 0)?;
        }
        sums.add(&block?);
    }
    sums.compare(view, &mut |problem| note(problems, problem))?;
    Ok(())
}

/// The sums computed from the usage rows.
#[derive(Default)]
struct Sums {
    keys: BTreeMap<KeyId, KeySpent>,
    workspaces: BTreeMap<WorkspaceId, WorkspaceSpent>,
    days: BTreeMap<Cell, UsageTotals>,
    first_day: u32,
    /// Rows of earlier days were dropped.
    has_dropped: bool,
    rows: u64,
}

impl Sums {
    /// Skips a value that does not decode: the check of the audit chain reports it.
    fn add(&mut self, value: &[u8]) {
        for row in block::decode(value).unwrap_or_default() {
            self.rows += 1;
            self.keys.entry(row.key).or_default().add(&row);
            self.workspaces.entry(row.workspace).or_default().add(&row);
            let cell = Cell::of(&row);
            if cell.day >= self.first_day {
                self.days.entry(cell).or_default().add_row(&row);
            }
        }
    }

    fn compare(mut self, view: &VaultSnapshot, differs: &mut impl FnMut(String)) -> Result<(), Error> {
        for row in view.all_rows(Keyspace::Keys)? {
            let (key, value) = row?;
            self.compare_row(view, &key, &value, differs);
        }
        // What is left are sums of rows for which no sum is stored.
        let Sums { keys, workspaces, days, .. } = self;
        for (id, rows) in &keys {
            // The sums of a deleted key are deleted with it, but its usage rows stay.
            if view.key_row(&rows::api_key_key(*id))?.is_some() {
                compare_key(*id, &KeySpent::default(), rows, differs);
            }
        }
        workspaces
            .iter()
            .for_each(|(id, rows)| compare_workspace(*id, &WorkspaceSpent::default(), rows, differs));
        days.iter().for_each(|(cell, rows)| compare_day(cell, &UsageTotals::default(), rows, differs));
        Ok(())
    }

    /// Compares one stored sum, and removes the computed one.
    fn compare_row(
        &mut self,
        view: &VaultSnapshot,
        key: &[u8],
        value: &[u8],
        differs: &mut impl FnMut(String),
    ) {
        if let Some(id) = rows::key_of_spend(key) {
            let rows = self.keys.remove(&id).unwrap_or_default();
            let sum = read(view, key, value).unwrap_or(rows);
            if !(self.has_dropped && covers_key(&sum, &rows)) {
                compare_key(id, &sum, &rows, differs);
            }
        } else if let Some(id) = rows::workspace_of_spend(key) {
            let rows = self.workspaces.remove(&id).unwrap_or_default();
            let sum = read(view, key, value).unwrap_or(rows);
            if !(self.has_dropped && covers_workspace(&sum, &rows)) {
                compare_workspace(id, &sum, &rows, differs);
            }
        } else if let Some(cell) = Cell::from_row_key(key).filter(|cell| cell.day >= self.first_day) {
            let rows = self.days.remove(&cell).unwrap_or_default();
            compare_day(&cell, &read(view, key, value).unwrap_or(rows), &rows, differs);
        }
    }
}

/// A stored sum; `None` when its MAC does not match, which the check of the rows of `keys` reports.
fn read<T: serde::de::DeserializeOwned>(view: &VaultSnapshot, key: &[u8], value: &[u8]) -> Option<T> {
    rows::decode(view.keys(), KEYS, key, value)
}

/// Whether a sum is at least what the rows that are there say.
fn covers_key(sum: &KeySpent, rows: &KeySpent) -> bool {
    sum.charged.total() >= rows.charged.total() && sum.byok.total() >= rows.byok.total()
}

fn covers_workspace(sum: &WorkspaceSpent, rows: &WorkspaceSpent) -> bool {
    sum.charged_pico >= rows.charged_pico && sum.byok_pico >= rows.byok_pico
}

fn compare_key(id: KeyId, sum: &KeySpent, rows: &KeySpent, differs: &mut impl FnMut(String)) {
    let of = format!("the key {id}");
    let is_same = compare(&of, "spent", sum.charged.total(), rows.charged.total(), differs)
        & compare(&of, "paid to providers itself", sum.byok.total(), rows.byok.total(), differs);
    let has_same_windows = sum.charged.agrees_with(&rows.charged) && sum.byok.agrees_with(&rows.byok);
    if is_same && !has_same_windows {
        differs(format!(
            "{of}: what it spent in its latest day, week or month is not what its usage rows say"
        ));
    }
}

fn compare_workspace(
    id: WorkspaceId,
    sum: &WorkspaceSpent,
    rows: &WorkspaceSpent,
    differs: &mut impl FnMut(String),
) {
    let of = format!("the workspace {id}");
    compare(&of, "spent", sum.charged_pico, rows.charged_pico, differs);
    compare(&of, "paid to providers itself", sum.byok_pico, rows.byok_pico, differs);
}

fn compare_day(cell: &Cell, sum: &UsageTotals, rows: &UsageTotals, differs: &mut impl FnMut(String)) {
    let Cell { day, key, model, .. } = cell;
    let of = format!("{}: the key {key} with the model \"{model}\"", UsageDay(*day));
    let is_same = compare(&of, "spent", sum.cost_pico, rows.cost_pico, differs);
    if is_same && sum != rows {
        let requests = (sum.requests(), rows.requests());
        differs(format!(
            "{of}: the totals are not those of its usage rows ({} and {} requests)",
            requests.0, requests.1
        ));
    }
}

/// Reports two amounts that differ. True when they are equal.
fn compare(of: &str, did: &str, sum: u64, rows: u64, differs: &mut impl FnMut(String)) -> bool {
    let how = if sum > rows { "more" } else { "less" };
    let [sum_of, rows_of, off] = [sum, rows, sum.abs_diff(rows)].map(Dollars::from_pico);
    if sum != rows {
        differs(format!(
            "{of}: it {did} ${sum_of} by its sum, ${off} {how} than its usage rows say (${rows_of})"
        ));
    }
    sum == rows
}
