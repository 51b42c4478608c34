//! Commands of operators. A command is data: it is parsed from a command line and carried out here.
//! Between the two it may be sent over the admin socket to the process that holds the store.

mod credits;
mod import;
mod intern;
mod key;
mod member;
mod money;
mod plugin;
pub mod remote;
mod secret;
mod sensitive;
mod status;
mod store;
mod table;
mod usage;
mod vault;
mod vault_audit;
mod workspace;

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::Zeroize;

use cofferdam_store::{Name, Page, Store, WorkspaceId};

use table::or_dash;

pub use credits::CreditsCommand;
pub(crate) use import::not_a_regular_file;
pub use intern::InternCommand;
pub use key::{CreateKey, KeyCommand};
pub use member::MemberCommand;
pub(crate) use plugin::{
    Became, grant_lines, granted, held_text, indented, injection_text, logged, not_running, shown,
};
pub use plugin::{DevArguments, GrantCommand, LogsArguments, PluginCommand};
pub use plugin::{
    ExamineArguments, KitCommand, Language, NewArguments, NewKind, ProjectFolder, ReplayArguments,
    RerunArguments,
};
pub use plugin::{
    InstallArguments, ManageCommand, RemoveArguments, RollbackArguments, StagedPlugin, UpdateArguments,
};
pub use remote::Remote;
pub use secret::{SecretCommand, SecretScope};
pub use sensitive::Sensitive;
pub(crate) use sensitive::unescape;
pub(crate) use status::older_schema;
pub use usage::{By, UsageArguments, UsageCommand};
pub(crate) use vault::restored;
pub use vault::{AuditFilter, RecoveryCommand, VaultCommand};
pub use workspace::WorkspaceCommand;

use crate::facts::Facts;

/// A command, as typed and as sent.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Create, list, change and delete workspaces
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// Create, list, change and delete members of workspaces
    #[command(subcommand)]
    Member(MemberCommand),
    /// Create, list and delete interns of workspaces
    #[command(subcommand)]
    Intern(InternCommand),
    /// Create, list, change and revoke API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Show and change what workspaces may spend
    #[command(subcommand)]
    Credits(CreditsCommand),
    /// Show what was used, by day, key, model or workspace
    #[command(add = Remote::Reads)]
    Usage(UsageArguments),
    /// Store, list and delete secrets
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Verify, back up and restore the vault, change its keys, read its audit log
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Make the store that several hosts share, move one there, or upgrade it
    #[command(subcommand)]
    Store(StoreCommand),
    /// Show the state of the store and of the host
    #[command(add = Remote::Reads)]
    Status,
    /// List the models this host serves
    #[command(add = Remote::Reads)]
    Models(Folder),
    /// Look at plugins, grant them what they ask for, and write new ones
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Look for what is wrong with an installation, and say what to do
    Doctor(DoctorArguments),
    /// Print a link that opens the console of the running host; it works once
    Console,
}

impl Command {
    /// What the command needs of the store. Commands about plugins and models need only the
    /// configuration; only commands that write create a missing store.
    #[must_use]
    pub fn access(&self) -> StoreAccess {
        let writes = match self {
            Self::Models(_) | Self::Plugin(_) | Self::Doctor(_) | Self::Console => {
                return StoreAccess::Nothing;
            }
            Self::Status | Self::Usage(_) => false,
            Self::Workspace(command) => !matches!(command, WorkspaceCommand::List(_)),
            Self::Member(command) => !matches!(command, MemberCommand::List(_)),
            Self::Intern(command) => !matches!(command, InternCommand::List(_)),
            Self::Key(command) => !matches!(command, KeyCommand::List(_) | KeyCommand::Show { .. }),
            Self::Credits(command) => !matches!(command, CreditsCommand::Show { .. }),
            Self::Secret(command) => !matches!(command, SecretCommand::List { .. }),
            Self::Vault(command) => command.writes(),
            Self::Store(command) => !matches!(command, StoreCommand::Upgrade),
        };
        if writes { StoreAccess::Writes } else { StoreAccess::Reads }
    }

    /// Whether the command changes which plugins are installed.
    pub(crate) fn changes_plugins(&self) -> bool {
        matches!(
            self,
            Self::Plugin(PluginCommand::Manage(_) | PluginCommand::Grant(GrantCommand { accept: true, .. }))
        )
    }

    /// The plugin folder of a command that runs without a host.
    pub(crate) fn plugin_folder(&self) -> Option<&Path> {
        if let Self::Plugin(PluginCommand::Manage(command)) = self {
            return command.folder().plugins.as_deref();
        }
        let (Self::Models(folder)
        | Self::Plugin(PluginCommand::List(folder) | PluginCommand::Grant(GrantCommand { folder, .. }))) =
            self
        else {
            return None;
        };
        folder.plugins.as_deref()
    }
}

/// What can be done about the store as a whole.
#[derive(Debug, Clone, Copy, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreCommand {
    /// Make the store in the database of `[store] url`, once for all hosts, and print its first key
    Create,
    /// Upgrade the store in the database to the schema of this version, while hosts serve it
    ///
    /// Replace the program of all hosts first, one after the other: this version serves a store of the version
    /// before. Refused while a host runs that could not serve the store afterwards. Harmless where there is
    /// nothing to upgrade.
    Upgrade,
    /// Move the store of the data directory into the database of `[store] url`
    ///
    /// No host may serve the store meanwhile. All of it is checked before and after; a database with a store
    /// is refused. The data directory keeps its store and a note that keeps it from being served again. Cut
    /// short, it is run again.
    Migrate {
        /// Move the store of the database into the data directory, which has none; the database keeps a mark
        /// that keeps every host from serving it again
        #[arg(long)]
        to_directory: bool,
    },
}

/// What `doctor` looks at.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct DoctorArguments {
    /// Send nothing to providers: do not try their names, certificates and credentials
    #[arg(long)]
    pub offline: bool,
    /// The permissions of the data directory, read before this process tried to lock it, which
    /// removes those of other users. `None` if it does not exist.
    #[arg(skip)]
    pub data_mode: Option<u32>,
    /// Where plugins are.
    #[command(flatten)]
    #[serde(skip)]
    pub folder: Folder,
}

/// What a command needs of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreAccess {
    Nothing,
    /// A store that exists.
    Reads,
    /// A store; it is created if there is none.
    Writes,
}

/// Which plugins there are where no host runs that knows its own.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct Folder {
    /// The plugins of `serve --plugins DIR`, for when no host runs; one that runs knows its own
    #[arg(long = "plugins", value_name = "DIR")]
    #[serde(skip)]
    pub plugins: Option<PathBuf>,
}

/// The result of a command. Wiped when dropped, because it may contain a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// The JSON document, for programs.
    pub document: Value,
    /// The text for people, with a final line end.
    pub text: String,
}

impl Drop for CommandOutcome {
    fn drop(&mut self) {
        self.text.zeroize();
        wipe(&mut self.document);
    }
}

fn wipe(document: &mut Value) {
    match document {
        Value::String(text) => text.zeroize(),
        Value::Array(entries) => entries.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Receives the progress of a long command: what is counted, how many so far, and the total or 0 if
/// it is unknown. `ControlFlow::Break` asks the command to stop; it then fails and can be run again
/// for the rest.
pub type Progress<'p> = dyn FnMut(&str, u64, u64) -> ControlFlow<()> + 'p;

/// Why a command failed. The message is for the operator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommandError {
    /// A sentence without a final period.
    pub message: String,
    /// Details as JSON, for programs.
    #[serde(default)]
    pub details: Option<Value>,
    /// Whether the configuration is invalid, which has an exit code of its own.
    #[serde(default)]
    pub is_configuration: bool,
    /// Why it failed, for programs.
    #[serde(default)]
    pub cause: FailureCause,
}

/// Why a command failed, for the status of the admin API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// An argument, or a rule of the store or the configuration.
    #[default]
    Refused,
    /// Nothing has this name or id.
    NotFound,
    /// The name is taken, or several things have it.
    Conflict,
    /// The store takes no changes now, or another change came first; nothing was changed.
    Unavailable,
    /// The change may or may not be durable.
    OutcomeUnknown,
    /// The host or its store does not work.
    Broken,
}

impl FailureCause {
    fn of(error: &cofferdam_store::Error) -> Self {
        use cofferdam_store::{Error as E, LookupError};
        match error {
            E::Lookup(LookupError::NotFound { .. }) | E::NoSuchSecret => Self::NotFound,
            E::Lookup(LookupError::Ambiguous { .. }) | E::NameTaken { .. } => Self::Conflict,
            E::NoSpace
            | E::Busy
            | E::NoContact
            | E::NotWritable
            | E::Closed
            | E::NoRootKey
            | E::OtherRootKey { .. }
            | E::LimitsChanged => Self::Unavailable,
            E::TimedOut | E::WriteFailed => Self::OutcomeUnknown,
            E::Damaged | E::Random(_) | E::Engine(_) => Self::Broken,
            E::OtherWorkspace { .. }
            | E::OwnerStays
            | E::AlreadyExpired
            | E::KeyRevoked
            | E::TooMuchCredit
            | E::Quota(_)
            | E::Unbound => Self::Refused,
        }
    }
}

impl CommandError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        let cause = FailureCause::default();
        Self { message: message.into(), details: None, is_configuration: false, cause }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for CommandError {}

impl From<cofferdam_store::VaultError> for CommandError {
    fn from(error: cofferdam_store::VaultError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<cofferdam_store::Error> for CommandError {
    fn from(error: cofferdam_store::Error) -> Self {
        Self { cause: FailureCause::of(&error), ..Self::new(error.to_string()) }
    }
}

/// Carries out a command until its changes are durable. Waiting for a change blocks the thread.
/// `facts` describe the running host, if there is one. Progress is reported to `progress`.
///
/// # Errors
///
/// An unknown name, a rule of the store, or a failed write.
pub async fn carry_out(
    command: &Command,
    store: Option<&Store>,
    facts: &Facts,
    progress: &mut Progress<'_>,
) -> Result<CommandOutcome, CommandError> {
    match (command, store) {
        (Command::Store(StoreCommand::Upgrade), Some(store)) => store::upgrade(store),
        (Command::Store(_), _) => {
            Err(CommandError::new("a store is made and moved where its configuration is"))
        }
        (Command::Models(_), _) => Ok(status::models(facts)),
        (Command::Plugin(PluginCommand::List(_)), _) => Ok(plugin::list(facts)),
        (Command::Plugin(PluginCommand::Grant(_)), _) => {
            Err(CommandError::new("grants are changed where the configuration is"))
        }
        (Command::Plugin(PluginCommand::Logs(wanted)), _) => Err(not_running(wanted)),
        (Command::Plugin(PluginCommand::Manage(_)), _) => {
            Err(CommandError::new("plugins are installed where the data directory is"))
        }
        (Command::Doctor(_), _) => {
            Err(CommandError::new("an installation is checked where its configuration is"))
        }
        (Command::Console, _) => Err(CommandError::new("the console is a page of the running host")),
        (Command::Plugin(PluginCommand::Kit(_)), _) => {
            Err(CommandError::new("this command works on a folder of the author"))
        }
        (Command::Status, store) => status::status(store, facts).await,
        (Command::Workspace(command), Some(store)) => workspace::carry_out(command, store).await,
        (Command::Member(command), Some(store)) => member::carry_out(command, store).await,
        (Command::Intern(command), Some(store)) => intern::carry_out(command, store).await,
        (Command::Key(command), Some(store)) => key::carry_out(command, store).await,
        (Command::Credits(command), Some(store)) => credits::carry_out(command, store).await,
        (Command::Usage(wanted), Some(store)) => usage::carry_out(wanted, store).await,
        (Command::Secret(command), Some(store)) => secret::carry_out(command, store).await,
        (Command::Vault(command), Some(store)) => vault::carry_out(command, store, progress).await,
        (_, None) => Err(CommandError::new("this command needs a store")),
    }
}

fn name(given: &str) -> Result<Name, CommandError> {
    given.parse().map_err(|error: cofferdam_store::NameError| {
        CommandError::new(format!("`{given}` is not a name: {error}"))
    })
}

/// The name of a workspace in tables.
async fn workspace_name(store: &Store, id: WorkspaceId) -> Result<String, CommandError> {
    Ok(or_dash(store.workspace(id).await?.map(|workspace| workspace.name.clone())))
}

/// The most records of one listing, which is one document.
const LISTED_MAX: u32 = 50_000;

/// How many records are listed.
#[derive(Debug, Clone, Copy, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListLimit {
    /// List only the newest ones, at most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(LISTED_MAX)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
}

/// Which records of workspaces are listed.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListArguments {
    /// List only those of this workspace, given by name or id
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    limit: ListLimit,
}

impl ListLimit {
    /// The records of a listing, oldest first. `page` lists those before a record, newest first.
    ///
    /// # Errors
    /// More than [`LISTED_MAX`] records without a limit, and those of `page`.
    async fn records<T>(
        self,
        page: impl AsyncFn(Option<&T>) -> Result<Page<T>, cofferdam_store::Error>,
    ) -> Result<Vec<T>, CommandError> {
        let limit = self.limit.unwrap_or(LISTED_MAX) as usize;
        let mut all = Vec::new();
        loop {
            let Page { entries, has_more } = page(all.last()).await?;
            all.extend(entries);
            let is_more = all.len() > limit || all.len() == limit && has_more;
            if is_more && self.limit.is_none() {
                return Err(CommandError::new(format!(
                    "there are more than {LISTED_MAX}; `--limit N` lists the newest N of them"
                )));
            }
            if !has_more || is_more {
                all.truncate(limit);
                all.reverse();
                return Ok(all);
            }
        }
    }
}

impl ListArguments {
    /// The records of the wanted workspace or of all, as for [`ListLimit::records`].
    async fn records<T>(
        &self,
        store: &Store,
        page: impl AsyncFn(Option<WorkspaceId>, Option<&T>) -> Result<Page<T>, cofferdam_store::Error>,
    ) -> Result<Vec<T>, CommandError> {
        let of = match &self.workspace {
            Some(workspace) => Some(store.find_workspace(workspace).await?.id),
            None => None,
        };
        self.limit.records(async |before| page(of, before).await).await
    }
}

/// A text as one word of a shell, in quotes.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A text as one word of a shell, in quotes only where it needs them.
fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) { text.to_owned() } else { quoted(text) }
}

#[cfg(test)]
mod tests;
