//! Daily totals of usage rows, and reports made of them.
//!
//! The totals lie in the store beside the rows they sum, written in the same commit, so that a report reads days
//! instead of requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::rows;
use crate::spend::{UsageDay, day_of};
use crate::token::KeyId;
use crate::usage::{UsageOutcome, UsageRow};

/// How many days back totals are kept, today included. They are all read and checked when the store is opened.
pub(crate) const DAYS_KEPT: u32 = 92;
/// Groups of a report that are kept apart while it is made.
const GROUPS_MAX: usize = 10_000;
/// The longest part of a model's name that totals are kept apart by, in bytes.
const MODEL_BYTES_MAX: usize = 1_000;

/// What rows add up to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct UsageTotals {
    /// Requests that ended in full.
    pub completed: u64,
    /// Requests cut by a limit.
    pub incomplete: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests whose client went away.
    pub cancelled: u64,
    /// Requests that were running when the host ended.
    pub interrupted: u64,
    /// Endpoints asked.
    pub attempts: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens read from a cache.
    pub cached_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Tokens written while reasoning.
    pub reasoning_tokens: u64,
    /// What was charged, pico-dollars.
    pub cost_pico: u64,
    /// What inference with own credentials cost at the providers, pico-dollars.
    pub byok_pico: u64,
}

impl UsageTotals {
    /// All requests, however they ended.
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

    /// Adds other totals.
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

/// What totals are kept for: a day, a workspace, a key and a model.
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

    /// The key its totals lie under.
    pub(crate) fn row_key(&self) -> Vec<u8> {
        rows::day_totals_key(self.day, self.workspace, self.key, &self.model)
    }

    /// What lies under a key; `None` for keys of other rows.
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

/// What a report is grouped by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UsageBy {
    /// Keys, the dearest first.
    Key,
    /// Models, the dearest first.
    Model,
    /// Days, the newest first.
    Day,
    /// Workspaces, the dearest first.
    Workspace,
}

/// What a report is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UsageQuery {
    /// The first day. Totals are kept for 92 days.
    pub first: UsageDay,
    /// The last day.
    pub last: UsageDay,
    /// Grouped by this.
    pub by: UsageBy,
    /// Of this workspace only.
    pub workspace: Option<WorkspaceId>,
    /// So many groups at most; what the others add up to is told in one.
    pub groups_max: usize,
}

/// What the rows of a group have in common.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum UsageLabel {
    /// A key.
    Key(KeyId),
    /// A model; empty for requests that asked none.
    Model(String),
    /// A day.
    Day(UsageDay),
    /// A workspace.
    Workspace(WorkspaceId),
}

/// One line of a report.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UsageGroup {
    /// What it is about.
    pub label: UsageLabel,
    /// What its rows add up to.
    pub totals: UsageTotals,
}

/// Totals, grouped.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UsageReport {
    /// The groups, in the order of [`UsageBy`].
    pub groups: Vec<UsageGroup>,
    /// What the groups add up to that are not listed.
    pub others: UsageTotals,
    /// Everything.
    pub sum: UsageTotals,
}

/// A report in the making.
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
            // What costs nothing is ordered by how much it is used.
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
