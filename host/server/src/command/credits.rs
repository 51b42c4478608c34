//! `credits show | add | unlimited`.

use clap::Subcommand;
use cofferdam_store::{Actor, Dollars, Store, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::money::{number, signed};
use super::table::pairs;
use super::{CommandError, CommandOutcome, Remote};

/// What can be done to a workspace's credit.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreditsCommand {
    /// Show what a workspace has paid in and used up
    #[command(add = Remote::Reads, arg_required_else_help = true)]
    Show {
        /// Its name or id
        workspace: String,
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
        CreditsCommand::Show { workspace } => show(store, &*store.find_workspace(workspace).await?).await,
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

async fn show(store: &Store, workspace: &Workspace) -> Result<CommandOutcome, CommandError> {
    let Workspace { id, name, .. } = workspace;
    let balance = store.balance(*id).await?;
    let dollars = |pico: u64| format!("${}", Dollars::from_pico(pico));
    let kind = if balance.credited_pico.is_some() { "prepaid" } else { "unlimited" };
    let mut rows = vec![("workspace", format!("{name} ({id})")), ("credit", kind.to_owned())];
    if let (Some(credited), Some(left)) = (balance.credited_pico, balance.left_pico()) {
        rows.extend([("added", dollars(credited)), ("left", format!("${}", signed(left)))]);
    }
    rows.extend([("spent", dollars(balance.spent_pico)), ("reserved", dollars(balance.reserved_pico))]);
    let document = json!({
        "workspace_id": id.to_string(),
        "workspace": name.as_str(),
        "credit": kind,
        "added": balance.credited_pico.map(number),
        "left": balance.left_pico().and_then(|left| signed(left).parse::<Value>().ok()),
        "spent": number(balance.spent_pico),
        "reserved": number(balance.reserved_pico),
    });
    Ok(CommandOutcome { document, text: pairs(&rows) })
}
