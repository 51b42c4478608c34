//! `intern create | list | delete`.

use clap::Subcommand;
use cofferdam_store::{Actor, Intern, NewIntern, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::table::listing;
use super::{CommandError, CommandOutcome, name, workspace_name};
use crate::timestamp::timestamp;

/// What can be done to interns.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InternCommand {
    /// Create an intern of a workspace
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
    /// List all interns
    List,
    /// Delete an intern; its keys stop working
    Delete {
        /// Its id, or its name if no other workspace has one of that name
        #[arg(value_name = "INTERN")]
        intern: String,
    },
}

pub(super) fn carry_out(command: &InternCommand, store: &Store) -> Result<CommandOutcome, CommandError> {
    match command {
        InternCommand::Create { name: given, workspace, member } => {
            let directory = store.directory();
            let workspace = directory.find_workspace(workspace)?.id;
            let created_by = match member {
                Some(member) => Some(directory.find_member(Some(workspace), member)?.id),
                None => None,
            };
            let wanted = NewIntern { name: name(given)?, workspace, created_by };
            let intern = store.create_intern(Actor::Operator, wanted)?;
            let text = format!("Created intern {} ({}).\n", intern.name, intern.id);
            Ok(CommandOutcome { document: document(&intern), text })
        }
        InternCommand::List => Ok(list(store)),
        InternCommand::Delete { intern } => {
            let intern = store.directory().find_intern(None, intern)?.clone();
            store.delete_intern(Actor::Operator, intern.id)?;
            let text = format!("Deleted intern {} ({}).\n", intern.name, intern.id);
            Ok(CommandOutcome { document: json!({"id": intern.id.to_string(), "deleted": true}), text })
        }
    }
}

fn list(store: &Store) -> CommandOutcome {
    let directory = store.directory();
    let row = |intern: &&Intern| {
        let creator = directory.member(intern.created_by);
        [
            intern.name.to_string(),
            intern.id.to_string(),
            workspace_name(&directory, Some(intern.workspace)),
            creator.map_or_else(|| intern.created_by.to_string(), |member| member.name.to_string()),
            timestamp(intern.created_at_ms),
        ]
    };
    let header = ["NAME", "ID", "WORKSPACE", "CREATED BY", "CREATED"];
    listing(header, &directory.interns(), row, |intern| listed(intern))
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
