//! `credits show | add | unlimited`.

use clap::Subcommand;
use cofferdam_store::{Actor, Balance, Dollars, Store, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::money::{number, signed};
use super::table::{listing, or_dash, pairs};
use super::{CommandError, CommandOutcome, ListLimit, Remote};

/// What can be done to a workspace's credit.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreditsCommand {
    /// Show what a workspace has paid in and used up, or what all have, oldest first
    #[command(add = Remote::Reads)]
    Show {
        /// Its name or id [default: all]
        #[arg(conflicts_with = "limit")]
        workspace: Option<String>,
        #[command(flatten)]
        #[serde(flatten)]
        limit: ListLimit,
    },
    /// Add credit; a workspace without limit becomes a prepaid one
    #[command(add = Remote::Changes, arg_required_else_help = true)]
    Add {
        /// Its name or id
        workspace: String,
        /// How many dollars, such as 12.50
        dollars: Dollars,
    },
    /// Let a workspace spend without limit; its balance is gone
    #[command(add = Remote::Changes, arg_required_else_help = true)]
    Unlimited {
        /// Its name or id
        workspace: String,
    },
}

pub(super) async fn carry_out(
    command: &CreditsCommand,
    store: &Store,
) -> Result<CommandOutcome, CommandError> {
    match command {
        CreditsCommand::Show { workspace: Some(workspace), .. } => {
            show(store, &*store.find_workspace(workspace).await?).await
        }
        CreditsCommand::Show { workspace: None, limit } => list(*limit, store).await,
        CreditsCommand::Add { workspace, dollars } => {
            if dollars.pico() == 0 {
                return Err(CommandError::new("the amount to add is more than 0"));
            }
            let id = store.find_workspace(workspace).await?.id;
            show(store, &store.add_credit(Actor::Operator, id, dollars.pico())?).await
        }
        CreditsCommand::Unlimited { workspace } => {
            let id = store.find_workspace(workspace).await?.id;
            show(store, &store.set_unlimited(Actor::Operator, id)?).await
        }
    }
}

async fn list(limit: ListLimit, store: &Store) -> Result<CommandOutcome, CommandError> {
    let workspaces = limit.records(async |before| store.workspaces(before).await).await?;
    let found = store.balances(workspaces.iter().map(|workspace| workspace.id).collect()).await?;
    // One without a balance was deleted meanwhile.
    let found =
        workspaces.iter().zip(found).filter_map(|(workspace, balance)| Some((&**workspace, balance?)));
    let balances: Vec<(&Workspace, Balance)> = found.collect();
    let row = |(workspace, balance): &(&Workspace, Balance)| {
        [
            workspace.name.to_string(),
            kind(balance).to_owned(),
            or_dash(balance.credited_pico.map(dollars)),
            or_dash(balance.left_pico().map(|left| format!("${}", signed(left)))),
            dollars(balance.spent_pico),
            dollars(balance.reserved_pico),
        ]
    };
    let document = |(workspace, balance): &(&Workspace, Balance)| document(workspace, balance);
    Ok(listing(["WORKSPACE", "CREDIT", "ADDED", "LEFT", "SPENT", "RESERVED"], &balances, row, document))
}

async fn show(store: &Store, workspace: &Workspace) -> Result<CommandOutcome, CommandError> {
    let Workspace { id, name, .. } = workspace;
    let balance = store.balance(*id).await?;
    let kind = kind(&balance);
    let mut rows = vec![("workspace", format!("{name} ({id})")), ("credit", kind.to_owned())];
    if let (Some(credited), Some(left)) = (balance.credited_pico, balance.left_pico()) {
        rows.extend([("added", dollars(credited)), ("left", format!("${}", signed(left)))]);
    }
    rows.extend([("spent", dollars(balance.spent_pico)), ("reserved", dollars(balance.reserved_pico))]);
    Ok(CommandOutcome { document: document(workspace, &balance), text: pairs(&rows) })
}

fn document(workspace: &Workspace, balance: &Balance) -> Value {
    json!({
        "workspace_id": workspace.id.to_string(),
        "workspace": workspace.name.as_str(),
        "credit": kind(balance),
        "added": balance.credited_pico.map(number),
        "left": balance.left_pico().and_then(|left| signed(left).parse::<Value>().ok()),
        "spent": number(balance.spent_pico),
        "reserved": number(balance.reserved_pico),
    })
}

fn kind(balance: &Balance) -> &'static str {
    if balance.credited_pico.is_some() { "prepaid" } else { "unlimited" }
}

fn dollars(pico: u64) -> String {
    format!("${}", Dollars::from_pico(pico))
}
