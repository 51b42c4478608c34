//! `vault verify | backup | restore | rotate-root | rotate-keys | import-legacy |
//! audit | recovery new`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Subcommand;
use cofferdam_store::{Actor, RestoreSummary, RootKeyMaterial, Store, VaultError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::sensitive::Sensitive;
pub use super::vault_audit::AuditFilter;
use super::{CommandError, CommandOutcome, FailureCause, Progress, Remote};
use crate::timestamp::timestamp;

/// An upper bound of the text around a recovery key, in bytes.
const TEXT_BYTES: usize = 1024;

/// What can be done to the vault as a whole.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VaultCommand {
    /// Check every secret, every vault's head, the audit chain and the anchor
    #[command(add = Remote::Reads)]
    Verify,
    /// Remove vaults whose workspace or intern is lost, with their secrets
    RemoveOrphans,
    /// Write a backup: everything but the root key, still encrypted
    Backup {
        /// The file to make; one that exists is not touched
        file: PathBuf,
    },
    /// Restore a backup into a directory that holds the root key and nothing else
    Restore {
        /// The backup
        file: PathBuf,
    },
    /// Put another root key in the place of the one in use; requests go on meanwhile
    RotateRoot {
        /// Where the new one comes from: file:PATH (made if missing), env:NAME, fd:N or passphrase:SOURCE
        #[arg(long = "new", value_name = "SOURCE")]
        source: String,
        /// What the source gave, read by the process that was started.
        #[arg(skip)]
        material: Option<Sensitive>,
    },
    /// Give every vault a new encryption key and encrypt its secrets with it
    RotateKeys,
    /// Take over secrets of an older system; they are kept, listed and released nowhere
    ImportLegacy {
        /// JSON lines: name, value and, if known, created_at
        file: PathBuf,
        /// The workspace they belong to, by name or id
        #[arg(long, value_name = "W")]
        workspace: String,
    },
    /// Print the audit log as JSON lines
    #[command(add = Remote::Reads)]
    Audit(AuditFilter),
    /// Manage the recovery key
    #[command(subcommand)]
    Recovery(RecoveryCommand),
}

impl VaultCommand {
    /// Whether the command changes the store, so that a missing store is created for it.
    pub(super) fn writes(&self) -> bool {
        match self {
            Self::Verify | Self::Backup { .. } | Self::Restore { .. } | Self::Audit(_) => false,
            Self::RemoveOrphans
            | Self::RotateRoot { .. }
            | Self::RotateKeys
            | Self::ImportLegacy { .. }
            | Self::Recovery(_) => true,
        }
    }
}

/// What can be done about the recovery key.
#[derive(Debug, Clone, Copy, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryCommand {
    /// Make a recovery key, in place of an earlier one; it is shown once and never again
    New,
}

pub(super) async fn carry_out(
    command: &VaultCommand,
    store: &Store,
    progress: &mut Progress<'_>,
) -> Result<CommandOutcome, CommandError> {
    match command {
        VaultCommand::Verify => verify(store, progress),
        VaultCommand::RemoveOrphans => remove_orphans(store, progress),
        VaultCommand::Backup { file } => {
            let made = store.backup(file, progress)?;
            let document = json!({
                "file": file, "store_id": made.store.to_string(), "seq": made.seq, "rows": made.rows,
                "bytes": made.bytes, "root_key_id": made.root_key.to_string(),
                "made_at": timestamp(made.made_at_ms),
            });
            let up_to = if store.database_hosts().is_some() { "position" } else { "commit" };
            let text = format!(
                "Wrote {} rows up to {up_to} {} into {}. Restoring it takes root key {}{}.\n",
                made.rows,
                made.seq,
                file.display(),
                made.root_key,
                if made.has_recovery_key { " or the recovery key" } else { "" },
            );
            Ok(CommandOutcome { document, text })
        }
        VaultCommand::Restore { .. } => Err(CommandError::new("this directory has a store already")),
        VaultCommand::RotateRoot { material, .. } => {
            let material = material.as_ref().ok_or_else(|| CommandError::new("no root key was given"))?;
            let material = RootKeyMaterial::parse(material.expose()).map_err(VaultError::from)?;
            rotate_root(command, material, store, progress)
        }
        VaultCommand::RotateKeys => {
            let done = store.rotate_vault_keys(progress)?;
            let document = json!({
                "vaults": done.vaults, "secrets": done.secrets, "keys_deleted": done.keys_deleted,
            });
            let text = format!(
                "{} vaults have a new key, {} secrets were encrypted again, {} keys deleted.\n\
                 The keys before are kept for 30 days; the host that runs then, or its next start, deletes them.\n",
                done.vaults, done.secrets, done.keys_deleted
            );
            Ok(CommandOutcome { document, text })
        }
        VaultCommand::ImportLegacy { file, workspace } => {
            let workspace = store.find_workspace(workspace).await?.id;
            let done = super::import::import(file, workspace, store, progress)?;
            let document = json!({"imported": done.imported, "kept": done.kept});
            let text = format!(
                "Imported {} secrets; {} names have a secret already, which was kept.\n",
                done.imported, done.kept
            );
            Ok(CommandOutcome { document, text })
        }
        VaultCommand::Audit(filter) => super::vault_audit::page(filter, store).await,
        VaultCommand::Recovery(RecoveryCommand::New) => {
            let made = store.new_recovery_key(progress)?;
            let key = std::str::from_utf8(made.key.expose()).unwrap_or_default();
            let document = json!({"recovery_key_id": made.id.to_string(), "recovery_key": key});
            // The buffer does not grow: a buffer that grows would leave a copy of the key that is
            // not wiped.
            let mut text = String::with_capacity(TEXT_BYTES + key.len());
            let written = write!(
                text,
                "This is recovery key {}. It is shown this once, and an earlier one is of no use any more:\n\n  \
                 {key}\n\nKeep it away from this machine. With it as `root_key` the store opens without its root \
                 key;\ngive it a new one then with `vault rotate-root`.\n",
                made.id
            );
            written.map_err(|error| CommandError::new(error.to_string()))?;
            Ok(CommandOutcome { document, text })
        }
    }
}

fn verify(store: &Store, progress: &mut Progress<'_>) -> Result<CommandOutcome, CommandError> {
    let found = store.verify(progress)?;
    let document = json!({
        "ok": found.problems.is_empty(),
        "seq": found.seq, "vaults": found.vaults, "orphans": found.orphans, "secrets": found.secrets,
        "audit_records": found.audit_records, "usage_rows": found.usage_rows,
        "usage_dropped_before": found.usage_dropped_before.map(|day| day.to_string()),
        "problems": found.problems,
    });
    let commits = match store.database_hosts() {
        None => format!(" up to commit {}", found.seq),
        Some(_) => String::new(),
    };
    let dropped = found.usage_dropped_before;
    let dropped = dropped.map_or_else(String::new, |day| format!("; those before {day} were dropped"));
    let text = format!(
        "Checked{commits}: {} vaults with {} secrets, {} audit records with {} usage rows{dropped}.\n",
        found.vaults, found.secrets, found.audit_records, found.usage_rows
    );
    if found.problems.is_empty() {
        return Ok(CommandOutcome { document, text: format!("{text}All is well.\n") });
    }
    let problems: String = found.problems.iter().map(|problem| format!("\n  {problem}")).collect();
    let cure = match found.orphans {
        0 => String::new(),
        orphans => format!(
            "\n{orphans} vaults have lost their workspace or intern: `vault remove-orphans` removes them with their \
             secrets"
        ),
    };
    Err(CommandError {
        message: format!("{text}{} problems:{problems}{cure}", found.problems.len()),
        details: Some(document),
        is_configuration: false,
        cause: FailureCause::Broken,
    })
}

fn remove_orphans(store: &Store, progress: &mut Progress<'_>) -> Result<CommandOutcome, CommandError> {
    let removed = store.remove_orphans(Actor::Operator, progress)?;
    let vaults: Vec<String> = removed.vaults.iter().map(ToString::to_string).collect();
    let mut text = format!("Removed {} vaults with {} secrets.\n", vaults.len(), removed.secrets);
    text.extend(vaults.iter().map(|vault| format!("  {vault}\n")));
    Ok(CommandOutcome { document: json!({"vaults": vaults, "secrets": removed.secrets}), text })
}

fn rotate_root(
    command: &VaultCommand,
    material: RootKeyMaterial,
    store: &Store,
    progress: &mut Progress<'_>,
) -> Result<CommandOutcome, CommandError> {
    let done = store.rotate_root(material, progress)?;
    let mut text = format!(
        "Root key {} has replaced {}: {} key records were wrapped again.\n",
        done.root_key, done.previous, done.records
    );
    let is_in_database = store.database_hosts().is_some();
    let configure = done.replaced_file.is_none() && !is_in_database;
    match (&done.replaced_file, &done.kept_file) {
        (Some(file), Some(kept)) => text.push_str(&format!(
            "{} holds the new key now, nothing is left to configure. The old one is kept in {}: backups made \
             before need it.\n",
            file.display(),
            kept.display()
        )),
        _ if is_in_database => text.push_str(
            "Every host has it. `root_key_previous` can be taken out of the configuration of each now. Keep the old \
             key for as long as you keep copies of the database made before.\n",
        ),
        _ => {
            let VaultCommand::RotateRoot { source, .. } = command else { return Err(CommandError::new("")) };
            text.push_str(&format!(
                "Before the next start, put the new key where `vault.root_key` reads the old one, or set in the \
                 configuration:\n\n  [vault]\n  root_key = {}\n\n\
                 The host has to be able to read it. Keep the old key for as long as you keep backups made before.\n",
                json!(source)
            ));
        }
    }
    let document = json!({
        "root_key_id": done.root_key.to_string(),
        "previous_root_key_id": done.previous.to_string(),
        "records": done.records,
        "configure_root_key": configure,
        "replaced_file": done.replaced_file,
        "kept_file": done.kept_file,
    });
    Ok(CommandOutcome { document, text })
}

/// The output of `vault restore`.
pub(crate) fn restored(file: &std::path::Path, done: &RestoreSummary) -> CommandOutcome {
    let document = json!({
        "file": file, "store_id": done.store.to_string(), "root_key_id": done.root_key.to_string(),
        "made_at": timestamp(done.made_at_ms), "age_s": done.age_ms / 1000, "seq": done.seq,
        "rows": done.rows, "vaults": done.vaults, "secrets": done.secrets,
        "audit_records": done.audit_records, "keys": done.keys,
    });
    let text = format!(
        "Restored {} of {}, {} old: commit {}, {} rows, {} vaults with {} secrets, {} API keys.\n\
         It is wrapped under root key {}. What was revoked or deleted after the backup is there again.\n",
        done.store,
        timestamp(done.made_at_ms),
        age(done.age_ms),
        done.seq,
        done.rows,
        done.vaults,
        done.secrets,
        done.keys,
        done.root_key,
    );
    CommandOutcome { document, text }
}

fn age(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
