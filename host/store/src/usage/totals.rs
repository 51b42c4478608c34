//! Daily totals of usage rows, and reports made from them.
//!
//! The totals are stored in the same commit as the rows they sum up, so that a report reads one row
//! per day and group instead of one per request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::rows;
use crate::spend::{UsageDay, day_of};
use crate::token::KeyId;
use crate::usage::{UsageOutcome, UsageRow};

/// Number of days, including today, whose totals are kept. All of them are read and checked when
/// the store is opened.
pub(crate) const DAYS_KEPT: u32 = 92;
/// Largest number of separate groups while a report is made.
const GROUPS_MAX: usize = 10_000;
/// Longest part of a model's name that distinguishes totals, in bytes.
const MODEL_BYTES_MAX: usize = 1_000;

/// Sums of usage rows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct UsageTotals {
    /// Requests that were answered in full.
    pub completed: u64,
    /// Requests whose answer was cut by a limit.
    pub incomplete: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Requests whose client disconnected.
    pub cancelled: u64,
    /// Requests that were running when the host ended.
    pub interrupted: u64,
    /// Endpoints asked.
    pub attempts: u64,
    /// Input tokens.
    pub input_tokens: u64,
    /// Input tokens from a provider's cache.
    pub cached_tokens: u64,
    /// Output tokens, including reasoning.
    pub output_tokens: u64,
    /// Output tokens spent on reasoning.
    pub reasoning_tokens: u64,
    /// Cost charged, pico-dollars.
    pub cost_pico: u64,
    /// Cost at the providers of inference with callers' own credentials, pico-dollars.
    pub byok_pico: u64,
}

impl UsageTotals {
    /// Number of requests, whatever their outcome.
    pub fn requests(&self) -> u64 {
        let outcomes = [self.completed, self.incomplete, self.failed, self.cancelled, self.interrupted];
        outcomes.into_iter().fold(0, u64::saturating_add)
    }

    pub(crate) fn add_row(&mut self, row: &UsageRow) {
        let outcome = match row.outcome {
            UsageOutcome::Completed => &mut self.completed,
            UsageOutcome::Incomplete => &mut self.incomplete,
            UsageOutcome::Failed => &mut self.failed,
            UsageOutcome::Cancelled => &mut self.cancelled,
            UsageOutcome::Interrupted => &mut self.interrupted,
        };
        *outcome = outcome.saturating_add(1);
        self.add(&UsageTotals {
            attempts: row.attempts.into(),
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            output_tokens: row.output_tokens,
            reasoning_tokens: row.reasoning_tokens,
            cost_pico: row.cost_pico,
            byok_pico: row.byok_pico,
            ..UsageTotals::default()
        });
    }

    /// Adds other totals to these.
    pub fn add(&mut self, more: &UsageTotals) {
        let parts = [
            (&mut self.completed, more.completed),
            (&mut self.incomplete, more.incomplete),
            (&mut self.failed, more.failed),
            (&mut self.cancelled, more.cancelled),
            (&mut self.interrupted, more.interrupted),
            (&mut self.attempts, more.attempts),
            (&mut self.input_tokens, more.input_tokens),
            (&mut self.cached_tokens, more.cached_tokens),
            (&mut self.output_tokens, more.output_tokens),
            (&mut self.reasoning_tokens, more.reasoning_tokens),
            (&mut self.cost_pico, more.cost_pico),
            (&mut self.byok_pico, more.byok_pico),
        ];
        for (sum, part) in parts {
            *sum = sum.saturating_add(part);
        }
    }
}

/// The key of one row of totals: a day, a workspace, an API key and a model.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Cell {
    pub(crate) day: u32,
    pub(crate) workspace: WorkspaceId,
    pub(crate) key: KeyId,
    pub(crate) model: String,
}

impl Cell {
    pub(crate) fn of(row: &UsageRow) -> Cell {
        let model = row.model.get(..row.model.floor_char_boundary(MODEL_BYTES_MAX)).unwrap_or_default();
        let day = day_of(row.at_ms);
        Cell { day, workspace: row.workspace, key: row.key, model: model.to_owned() }
    }

    /// Row key of these totals in the keyspace `keys`.
    pub(crate) fn row_key(&self) -> Vec<u8> {
        rows::day_totals_key(self.day, self.workspace, self.key, &self.model)
    }

    /// The reverse of [`Cell::row_key`]; `None` for keys of other rows.
    pub(crate) fn from_row_key(key: &[u8]) -> Option<Cell> {
        let rest = key.strip_prefix(rows::day_totals_start(0).first_chunk::<1>()?)?;
        let (day, rest) = rest.split_first_chunk::<4>()?;
        let (workspace, rest) = rest.split_first_chunk::<16>()?;
        let (id, model) = rest.split_first_chunk::<12>()?;
        Some(Cell {
            day: u32::from_be_bytes(*day),
            workspace: WorkspaceId::from_bytes(*workspace),
            key: std::str::from_utf8(id).ok()?.parse().ok()?,
            model: std::str::from_utf8(model).ok()?.to_owned(),
        })
    }
}

/// What a report is grouped by, and the order of its groups.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UsageBy {
    /// By API key, the highest cost first.
    Key,
    /// By model, the highest cost first.
    Model,
    /// By day, the newest first.
    Day,
    /// By workspace, the highest cost first.
    Workspace,
}

/// Parameters of a report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UsageQuery {
    /// The first day. Totals are kept for 92 days.
    pub first: UsageDay,
    /// The last day.
    pub last: UsageDay,
    /// What to group by.
    pub by: UsageBy,
    /// Only this workspace, if given.
    pub workspace: Option<WorkspaceId>,
    /// Largest number of groups. The totals of further groups are summed in
    /// [`UsageReport::others`].
    pub groups_max: usize,
}

/// What the rows of a group have in common.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum UsageLabel {
    /// A key.
    Key(KeyId),
    /// A model; empty for requests that were sent to none.
    Model(String),
    /// A day.
    Day(UsageDay),
    /// A workspace.
    Workspace(WorkspaceId),
}

/// One group of a report.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UsageGroup {
    /// What its rows have in common.
    pub label: UsageLabel,
    /// Sums of its rows.
    pub totals: UsageTotals,
}

/// A usage report.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UsageReport {
    /// The groups, in the order of [`UsageBy`].
    pub groups: Vec<UsageGroup>,
    /// Totals of the groups that are not listed.
    pub others: UsageTotals,
    /// Totals of all groups, listed or not.
    pub sum: UsageTotals,
}

/// A report under construction.
pub(crate) struct Report {
    query: UsageQuery,
    groups: BTreeMap<UsageLabel, UsageTotals>,
    report: UsageReport,
}

impl Report {
    pub(crate) fn new(query: UsageQuery) -> Report {
        Report { query, groups: BTreeMap::new(), report: UsageReport::default() }
    }

    pub(crate) fn add(&mut self, cell: Cell, totals: &UsageTotals) {
        let Cell { day, workspace, key, model } = cell;
        if self.query.workspace.is_some_and(|wanted| wanted != workspace) {
            return;
        }
        let label = match self.query.by {
            UsageBy::Key => UsageLabel::Key(key),
            UsageBy::Model => UsageLabel::Model(model),
            UsageBy::Day => UsageLabel::Day(UsageDay(day)),
            UsageBy::Workspace => UsageLabel::Workspace(workspace),
        };
        self.report.sum.add(totals);
        let is_full = self.groups.len() >= GROUPS_MAX;
        match self.groups.get_mut(&label) {
            Some(group) => group.add(totals),
            None if is_full => self.report.others.add(totals),
            None => drop(self.groups.insert(label, *totals)),
        }
    }

    pub(crate) fn finish(self) -> UsageReport {
        let Report { query, groups, mut report } = self;
        let mut groups: Vec<UsageGroup> =
            groups.into_iter().rev().map(|(label, totals)| UsageGroup { label, totals }).collect();
        if query.by != UsageBy::Day {
            // Groups of equal cost, such as zero, are ordered by their number of requests.
            groups.sort_by_key(|group| {
                let UsageTotals { cost_pico, .. } = group.totals;
                std::cmp::Reverse((cost_pico, group.totals.requests()))
            });
        }
        let others = groups.split_off(groups.len().min(query.groups_max));
        for group in others {
            report.others.add(&group.totals);
        }
        UsageReport { groups, ..report }
    }
}
