//! `usage`: what was used, summed by key, model, day or workspace.

use clap::ValueEnum;
use cofferdam_store::{
    Actor, Clock, Store, UsageBy, UsageDay, UsageGroup, UsageLabel, UsageQuery, UsageReport, UsageTotals,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::money::{number, rounded};
use super::table::{or_dash, table};
use super::{CommandError, CommandOutcome, workspace_name};

/// The maximum number of groups; all others are summed in one more line.
const GROUPS_MAX: u32 = 1_000;

/// Which usage to show.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(args_conflicts_with_subcommands = true)]
pub struct UsageArguments {
    #[command(subcommand)]
    pub command: Option<UsageCommand>,
    /// What to sum it by
    #[arg(long, value_enum, default_value = "day")]
    pub by: By,
    /// How many days back, today included [default: 30]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=92), conflicts_with = "since")]
    pub days: Option<u32>,
    /// From this day of UTC on, such as 2026-01-31; at the earliest the first of the 92 days that are kept
    #[arg(long, value_name = "DAY")]
    pub since: Option<UsageDay>,
    /// Of this workspace only, by name or id
    #[arg(long)]
    pub workspace: Option<String>,
    /// How many lines; the others are summed in one
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=i64::from(GROUPS_MAX)))]
    pub limit: u32,
}

/// What can be done to what is stored about usage.
#[derive(Debug, Clone, clap::Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageCommand {
    /// Delete the rows of single requests of days long over from a store in a database; sums and reports stay
    ///
    /// The audit log keeps a record of it. Credit, limits and the totals of `usage` do not change.
    Drop {
        /// The first day of UTC whose rows are kept, such as 2026-01-31; today at the latest
        #[arg(long, value_name = "DAY")]
        before: UsageDay,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
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

fn drop_rows(store: &Store, before: UsageDay) -> Result<CommandOutcome, CommandError> {
    let rows = store.drop_usage(Actor::Operator, before)?;
    let document = json!({"before": before.to_string(), "rows": rows});
    Ok(CommandOutcome { document, text: format!("Dropped the {rows} usage rows of days before {before}.\n") })
}

pub(super) async fn carry_out(
    wanted: &UsageArguments,
    store: &Store,
) -> Result<CommandOutcome, CommandError> {
    // The confirmation question was already asked by the operator's process.
    if let Some(UsageCommand::Drop { before, yes: _ }) = &wanted.command {
        return drop_rows(store, *before);
    }
    let workspace = match &wanted.workspace {
        Some(given) => Some(store.find_workspace(given).await?.id),
        None => None,
    };
    let last = UsageDay::of_ms(Clock::system().now_ms());
    let kept = store.first_usage_day();
    let asked = wanted.since.unwrap_or_else(|| last.minus(wanted.days.unwrap_or(30) - 1));
    let first = asked.max(kept);
    let by = match wanted.by {
        By::Key => UsageBy::Key,
        By::Model => UsageBy::Model,
        By::Day => UsageBy::Day,
        By::Workspace => UsageBy::Workspace,
    };
    let groups_max = wanted.limit.min(GROUPS_MAX) as usize;
    // Write queued rows first, so that requests that have just ended are included.
    store.flush()?;
    let report = store.usage_report(UsageQuery { first, last, by, workspace, groups_max }).await?;
    let (mut groups, mut rows) = (Vec::new(), Vec::new());
    for UsageGroup { label, totals } in &report.groups {
        let (mut document, cells) = described(label, store).await?;
        if let (Value::Object(members), Value::Object(counts)) = (&mut document, counts(totals)) {
            members.extend(counts);
        }
        groups.push(document);
        rows.push(row(cells, totals));
    }
    let document = json!({
        "from": first.to_string(),
        "to": last.to_string(),
        "by": wanted.by,
        "groups": groups,
        "others": counts(&report.others),
        "total": counts(&report.sum),
    });
    let mut text = text(&report, wanted.by, rows);
    if first != asked {
        text.insert_str(0, &format!("Usage is summed by day for 92 days; these begin with {first}.\n"));
    }
    Ok(CommandOutcome { document, text })
}

/// What a group is about: the first members of its document, and its first two cells.
async fn described(label: &UsageLabel, store: &Store) -> Result<(Value, [String; 2]), CommandError> {
    Ok(match label {
        UsageLabel::Day(day) => (json!({"day": day.to_string()}), [day.to_string(), String::new()]),
        UsageLabel::Model(model) => {
            let cell = or_dash(Some(model).filter(|it| !it.is_empty()));
            (json!({"model": model.as_str()}), [cell, String::new()])
        }
        UsageLabel::Workspace(id) => {
            let name = workspace_name(store, *id).await?;
            (json!({"workspace_id": id.to_string(), "workspace": name}), [name, String::new()])
        }
        UsageLabel::Key(id) => {
            let key = store.key(*id).await?;
            let name = key.as_ref().and_then(|key| key.key().name.as_ref());
            let document = json!({"key_id": id.to_string(), "name": name.map(ToString::to_string)});
            (document, [id.to_string(), or_dash(name)])
        }
    })
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

fn text(report: &UsageReport, by: By, mut rows: Vec<[String; 11]>) -> String {
    let (first, second) = match by {
        By::Key => ("KEY", "NAME"),
        By::Model => ("MODEL", ""),
        By::Day => ("DAY", ""),
        By::Workspace => ("WORKSPACE", ""),
    };
    if report.others.requests() > 0 {
        rows.push(row(["others".to_owned(), String::new()], &report.others));
    }
    rows.push(row(["total".to_owned(), String::new()], &report.sum));
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

fn row([label, name]: [String; 2], totals: &UsageTotals) -> [String; 11] {
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
