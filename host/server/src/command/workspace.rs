//! `workspace create | list | set | delete`.

use std::sync::Arc;

use clap::{Subcommand, ValueEnum};
use cofferdam_store::{Actor, NewWorkspace, Store, Workspace, WorkspaceChange};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::table::listing;
use super::{CommandError, CommandOutcome, ListLimit, Remote, name};
use crate::timestamp::timestamp;

/// What can be done to workspaces.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceCommand {
    /// Create a workspace, with a member `owner` who is its admin
    #[command(add = Remote::Changes)]
    Create {
        /// Its name, unique in the store
        name: String,
        /// Keep it out of the Intern API programme: vault routes answer 404
        #[arg(long)]
        no_programme: bool,
        /// Let its vault be read but not written
        #[arg(long)]
        no_vault_writes: bool,
    },
    /// List workspaces, oldest first
    #[command(add = Remote::Reads)]
    List(ListLimit),
    /// Change a workspace
    #[command(add = Remote::Changes, arg_required_else_help = true)]
    Set {
        /// Its name or id
        #[arg(value_name = "WORKSPACE")]
        workspace: String,
        /// Whether it takes part in the Intern API programme
        #[arg(
            long,
            value_name = "on|off",
            required_unless_present = "vault_writes",
            hide_possible_values = true
        )]
        programme: Option<Switch>,
        /// Whether its vault can be written
        #[arg(long, value_name = "on|off", hide_possible_values = true)]
        vault_writes: Option<Switch>,
    },
    /// Delete a workspace with its members, its interns and their secrets; its keys stop working
    #[command(add = Remote::Changes, arg_required_else_help = true)]
    Delete {
        /// Its name or id
        #[arg(value_name = "WORKSPACE")]
        workspace: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

pub(super) async fn carry_out(
    command: &WorkspaceCommand,
    store: &Store,
) -> Result<CommandOutcome, CommandError> {
    match command {
        WorkspaceCommand::Create { name: given, no_programme, no_vault_writes } => {
            let wanted =
                NewWorkspace { name: name(given)?, programme: !no_programme, vault_writes: !no_vault_writes };
            let workspace = store.create_workspace(Actor::Operator, wanted)?;
            let text = format!("Created workspace {} ({}).\n", workspace.name, workspace.id);
            Ok(CommandOutcome { document: document(&workspace), text })
        }
        WorkspaceCommand::List(limit) => list(*limit, store).await,
        // The confirmation question was already asked by the operator's process.
        WorkspaceCommand::Delete { workspace, yes: _ } => delete(workspace, store).await,
        WorkspaceCommand::Set { workspace, programme, vault_writes } => {
            let id = store.find_workspace(workspace).await?.id;
            let is_on = |switch: Switch| switch == Switch::On;
            let change =
                WorkspaceChange { programme: programme.map(is_on), vault_writes: vault_writes.map(is_on) };
            let workspace = store.set_workspace(Actor::Operator, id, change)?;
            let text = format!(
                "Workspace {}: programme {}, vault writes {}.\n",
                workspace.name,
                on_off(workspace.programme),
                on_off(workspace.vault_writes)
            );
            Ok(CommandOutcome { document: document(&workspace), text })
        }
    }
}

async fn delete(workspace: &str, store: &Store) -> Result<CommandOutcome, CommandError> {
    let id = store.find_workspace(workspace).await?.id;
    let done = store.delete_workspace(Actor::Operator, id)?;
    let text = format!(
        "Deleted workspace {} ({id}) with {} members, {} interns and {} secrets; {} keys were revoked.\n",
        done.workspace.name, done.members, done.interns, done.secrets, done.keys_revoked
    );
    let document = json!({
        "id": id.to_string(),
        "deleted": true,
        "members": done.members,
        "interns": done.interns,
        "secrets": done.secrets,
        "keys_revoked": done.keys_revoked,
    });
    Ok(CommandOutcome { document, text })
}

async fn list(limit: ListLimit, store: &Store) -> Result<CommandOutcome, CommandError> {
    let workspaces = limit.records(async |before| store.workspaces(before).await).await?;
    let row = |workspace: &Arc<Workspace>| {
        [
            workspace.name.to_string(),
            workspace.id.to_string(),
            on_off(workspace.programme).to_owned(),
            on_off(workspace.vault_writes).to_owned(),
            timestamp(workspace.created_at_ms),
        ]
    };
    let header = ["NAME", "ID", "PROGRAMME", "VAULT WRITES", "CREATED"];
    Ok(listing(header, &workspaces, row, |workspace| document(workspace)))
}

fn document(workspace: &Workspace) -> Value {
    json!({
        "id": workspace.id.to_string(),
        "name": workspace.name.to_string(),
        "programme": workspace.programme,
        "vault_writes": workspace.vault_writes,
        "created_at": timestamp(workspace.created_at_ms),
    })
}

fn on_off(flag: bool) -> &'static str {
    if flag { "on" } else { "off" }
}
