//! `member create | list | set | delete`.

use clap::Subcommand;
use cofferdam_store::{Actor, Member, MemberRole, NewMember, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::table::table;
use super::{CommandError, CommandOutcome, ListArguments, Remote, name, workspace_name};
use crate::timestamp::timestamp;

/// What can be done to members.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberCommand {
    /// Create a member of a workspace
    #[command(add = Remote::Changes)]
    Create {
        /// Its name, unique in the workspace
        name: String,
        /// The workspace, by name or id
        #[arg(long)]
        workspace: String,
        /// `admin` sees all interns of the workspace, `member` those it created
        #[arg(long, value_name = "admin|member", default_value = "member")]
        role: MemberRole,
    },
    /// List members, oldest first
    #[command(add = Remote::Reads)]
    List(ListArguments),
    /// Change the role of a member
    #[command(add = Remote::Changes)]
    Set {
        /// Its id, or its name if no other workspace has one of that name
        #[arg(value_name = "MEMBER")]
        member: String,
        /// The new role
        #[arg(long, value_name = "admin|member")]
        role: MemberRole,
    },
    /// Delete a member; its keys stop working, interns it created stay
    #[command(add = Remote::Changes)]
    Delete {
        /// Its id, or its name if no other workspace has one of that name
        #[arg(value_name = "MEMBER")]
        member: String,
    },
}

pub(super) async fn carry_out(
    command: &MemberCommand,
    store: &Store,
) -> Result<CommandOutcome, CommandError> {
    match command {
        MemberCommand::Create { name: given, workspace, role } => {
            let workspace = store.find_workspace(workspace).await?.id;
            let wanted = NewMember { name: name(given)?, workspace, role: *role };
            let member = store.create_member(Actor::Operator, wanted)?;
            let text = format!("Created {} {} ({}).\n", member.role, member.name, member.id);
            Ok(CommandOutcome { document: document(&member), text })
        }
        MemberCommand::List(wanted) => list(wanted, store).await,
        MemberCommand::Set { member, role } => {
            let id = store.find_member(None, member).await?.id;
            let member = store.set_member_role(Actor::Operator, id, *role)?;
            let text = format!("{} is {} now.\n", member.name, member.role);
            Ok(CommandOutcome { document: document(&member), text })
        }
        MemberCommand::Delete { member } => {
            let id = store.find_member(None, member).await?.id;
            let done = store.delete_member(Actor::Operator, id)?;
            let text = format!(
                "Deleted member {} ({id}); {} keys were revoked.\n",
                done.member.name, done.keys_revoked
            );
            let document = json!({"id": id.to_string(), "deleted": true, "keys_revoked": done.keys_revoked});
            Ok(CommandOutcome { document, text })
        }
    }
}

async fn list(wanted: &ListArguments, store: &Store) -> Result<CommandOutcome, CommandError> {
    let members = wanted.records(store, async |of, before| store.members(of, before).await).await?;
    let mut rows = Vec::with_capacity(members.len());
    for member in &members {
        rows.push([
            member.name.to_string(),
            member.id.to_string(),
            workspace_name(store, member.workspace).await?,
            member.role.to_string(),
            timestamp(member.created_at_ms),
        ]);
    }
    let text = table(["NAME", "ID", "WORKSPACE", "ROLE", "CREATED"], &rows);
    Ok(CommandOutcome { document: members.iter().map(|member| document(member)).collect(), text })
}

fn document(member: &Member) -> Value {
    json!({
        "id": member.id.to_string(),
        "name": member.name.to_string(),
        "workspace_id": member.workspace.to_string(),
        "role": member.role.as_str(),
        "created_at": timestamp(member.created_at_ms),
    })
}
