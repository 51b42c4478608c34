//! `usage`: what was used, summed by key, model, day or workspace.

use clap::ValueEnum;
use cofferdam_store::{
    Clock, Directory, Store, UsageBy, UsageDay, UsageGroup, UsageLabel, UsageQuery, UsageReport, UsageTotals,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::money::{number, rounded};
use super::table::{or_dash, table};
use super::{CommandError, CommandOutcome, workspace_name};

/// The maximum number of groups; all others are summed in one more line.
const GROUPS_MAX: u32 = 1_000;

/// Which usage to show.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct UsageArguments {
    /// What to sum it by
    #[arg(long, value_enum, default_value = "day")]
    pub by: By,
    /// How many days back, today included [default: 30]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=92), conflicts_with = "since")]
    pub days: Option<u32>,
    /// From this day of UTC on, such as 2026-01-31; at the earliest the first of the 92 days that are kept
    #[arg(long, value_name = "DAY")]
    pub since: Option<String>,
    /// Of this workspace only, by name or id
    #[arg(long)]
    pub workspace: Option<String>,
    /// How many lines; the others are summed in one
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=i64::from(GROUPS_MAX)))]
    pub limit: u32,
}

/// What usage is summed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Keys, the dearest first.
    Key,
    /// Models, the dearest first.
    Model,
    /// Days of UTC, the newest first.
    Day,
    /// Workspaces, the dearest first.
    Workspace,
}

pub(super) fn carry_out(wanted: &UsageArguments, store: &Store) -> Result<CommandOutcome, CommandError> {
    let directory = store.directory();
    let workspace = wanted.workspace.as_deref().map(|given| directory.find_workspace(given)).transpose()?;
    let last = UsageDay::of_ms(Clock::system().now_ms());
    let kept = store.first_usage_day();
    let asked = match &wanted.since {
        None => last.minus(wanted.days.unwrap_or(30) - 1),
        Some(given) => {
            let day = given.parse::<UsageDay>();
            day.map_err(|error| CommandError::new(format!("`{given}`: {error}")))?
        }
    };
    let first = asked.max(kept);
    let by = match wanted.by {
        By::Key => UsageBy::Key,
        By::Model => UsageBy::Model,
        By::Day => UsageBy::Day,
        By::Workspace => UsageBy::Workspace,
    };
    let groups_max = wanted.limit.min(GROUPS_MAX) as usize;
    let workspace = workspace.map(|workspace| workspace.id);
    // Write queued rows first, so that requests that have just ended are included.
    store.flush()?;
    let report = store.usage_report(UsageQuery { first, last, by, workspace, groups_max })?;
    let document = json!({
        "from": first.to_string(),
        "to": last.to_string(),
        "by": wanted.by,
        "groups": report.groups.iter().map(|group| labelled(group, &directory)).collect::<Vec<Value>>(),
        "others": counts(&report.others),
        "total": counts(&report.sum),
    });
    let mut text = text(&report, wanted.by, &directory);
    if first != asked {
        text.insert_str(0, &format!("Usage is summed by day for 92 days; these begin with {first}.\n"));
    }
    Ok(CommandOutcome { document, text })
}

fn labelled(group: &UsageGroup, directory: &Directory) -> Value {
    let mut members = Map::new();
    match &group.label {
        UsageLabel::Day(day) => drop(members.insert("day".to_owned(), day.to_string().into())),
        UsageLabel::Model(model) => drop(members.insert("model".to_owned(), model.as_str().into())),
        UsageLabel::Workspace(id) => {
            members.insert("workspace_id".to_owned(), id.to_string().into());
            members.insert("workspace".to_owned(), workspace_name(directory, Some(*id)).into());
        }
        UsageLabel::Key(id) => {
            let name = directory.key(*id).and_then(|key| key.name.as_ref()).map(ToString::to_string);
            members.insert("key_id".to_owned(), id.to_string().into());
            members.insert("name".to_owned(), name.into());
        }
    }
    if let Value::Object(counts) = counts(&group.totals) {
        members.extend(counts);
    }
    members.into()
}

fn counts(totals: &UsageTotals) -> Value {
    json!({
        "requests": totals.requests(),
        "completed": totals.completed,
        "incomplete": totals.incomplete,
        "failed": totals.failed,
        "cancelled": totals.cancelled,
        "interrupted": totals.interrupted,
        "attempts": totals.attempts,
        "input_tokens": totals.input_tokens,
        "cached_tokens": totals.cached_tokens,
        "output_tokens": totals.output_tokens,
        "reasoning_tokens": totals.reasoning_tokens,
        "cost": number(totals.cost_pico),
        "byok_cost": number(totals.byok_pico),
    })
}

fn text(report: &UsageReport, by: By, directory: &Directory) -> String {
    let (first, second) = match by {
        By::Key => ("KEY", "NAME"),
        By::Model => ("MODEL", ""),
        By::Day => ("DAY", ""),
        By::Workspace => ("WORKSPACE", ""),
    };
    let mut rows: Vec<[String; 11]> = report
        .groups
        .iter()
        .map(|group| {
            let (label, name) = match &group.label {
                UsageLabel::Day(day) => (day.to_string(), String::new()),
                UsageLabel::Model(model) => (or_dash(Some(model).filter(|it| !it.is_empty())), String::new()),
                UsageLabel::Workspace(id) => (workspace_name(directory, Some(*id)), String::new()),
                UsageLabel::Key(id) => {
                    let name = directory.key(*id).and_then(|key| key.name.as_ref());
                    (id.to_string(), or_dash(name))
                }
            };
            row(label, name, &group.totals)
        })
        .collect();
    if report.others.requests() > 0 {
        rows.push(row("others".to_owned(), String::new(), &report.others));
    }
    rows.push(row("total".to_owned(), String::new(), &report.sum));
    let header = [
        first,
        second,
        "REQUESTS",
        "FAILED",
        "CANCELLED",
        "INPUT",
        "CACHED",
        "OUTPUT",
        "REASONING",
        "DOLLARS",
        "OWN KEYS",
    ];
    table(header, &rows)
}

fn row(label: String, name: String, totals: &UsageTotals) -> [String; 11] {
    [
        label,
        name,
        totals.requests().to_string(),
        totals.failed.saturating_add(totals.interrupted).to_string(),
        totals.cancelled.to_string(),
        totals.input_tokens.to_string(),
        totals.cached_tokens.to_string(),
        totals.output_tokens.to_string(),
        totals.reasoning_tokens.to_string(),
        rounded(totals.cost_pico),
        rounded(totals.byok_pico),
    ]
}
