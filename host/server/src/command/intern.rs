//! `intern create | list | delete`.

use clap::Subcommand;
use cofferdam_store::{Actor, Intern, NewIntern, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::table::table;
use super::{CommandError, CommandOutcome, ListArguments, Remote, name, workspace_name};
use crate::timestamp::timestamp;

/// What can be done to interns.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InternCommand {
    /// Create an intern of a workspace
    #[command(add = Remote::Changes)]
    Create {
        /// Its name, unique in the workspace
        name: String,
        /// The workspace, by name or id
        #[arg(long)]
        workspace: String,
        /// The member who creates it, by name or id [default: the workspace's owner]
        #[arg(long)]
        member: Option<String>,
    },
    /// List interns, oldest first
    #[command(add = Remote::Reads)]
    List(ListArguments),
    /// Delete an intern; its keys stop working
    #[command(add = Remote::Changes)]
    Delete {
        /// Its id, or its name if no other workspace has one of that name
        #[arg(value_name = "INTERN")]
        intern: String,
    },
}

pub(super) async fn carry_out(
    command: &InternCommand,
    store: &Store,
) -> Result<CommandOutcome, CommandError> {
    match command {
        InternCommand::Create { name: given, workspace, member } => {
            let workspace = store.find_workspace(workspace).await?.id;
            let created_by = match member {
                Some(member) => Some(store.find_member(Some(workspace), member).await?.id),
                None => None,
            };
            let wanted = NewIntern { name: name(given)?, workspace, created_by };
            let intern = store.create_intern(Actor::Operator, wanted)?;
            let text = format!("Created intern {} ({}).\n", intern.name, intern.id);
            Ok(CommandOutcome { document: document(&intern), text })
        }
        InternCommand::List(wanted) => list(wanted, store).await,
        InternCommand::Delete { intern } => {
            let intern = store.find_intern(None, intern).await?;
            store.delete_intern(Actor::Operator, intern.id)?;
            let text = format!("Deleted intern {} ({}).\n", intern.name, intern.id);
            Ok(CommandOutcome { document: json!({"id": intern.id.to_string(), "deleted": true}), text })
        }
    }
}

async fn list(wanted: &ListArguments, store: &Store) -> Result<CommandOutcome, CommandError> {
    let interns = wanted.records(store, async |of, before| store.interns(of, before).await).await?;
    let mut rows = Vec::with_capacity(interns.len());
    for intern in &interns {
        let creator = store.member(intern.created_by).await?;
        rows.push([
            intern.name.to_string(),
            intern.id.to_string(),
            workspace_name(store, intern.workspace).await?,
            creator.map_or_else(|| intern.created_by.to_string(), |member| member.name.to_string()),
            timestamp(intern.created_at_ms),
        ]);
    }
    let text = table(["NAME", "ID", "WORKSPACE", "CREATED BY", "CREATED"], &rows);
    Ok(CommandOutcome { document: interns.iter().map(|intern| listed(intern)).collect(), text })
}

fn document(intern: &Intern) -> Value {
    json!({
        "id": intern.id.to_string(),
        "name": intern.name.to_string(),
        "workspace_id": intern.workspace.to_string(),
        "created_by": intern.created_by.to_string(),
    })
}

fn listed(intern: &Intern) -> Value {
    let mut document = document(intern);
    if let Some(members) = document.as_object_mut() {
        members.insert("created_at".to_owned(), timestamp(intern.created_at_ms).into());
    }
    document
}
