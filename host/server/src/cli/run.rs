//! Carries out the command line: starts the host, or runs a command and prints its outcome.

use std::path::Path;

use cofferdam_store::{LastBackup, Store};
use zeroize::Zeroizing;

use super::create::{create, migrate, migrate_back};
use super::generate::{completions, manual};
use super::health::health;
use super::prepare::prepare;
use super::tour::tour;
use super::{Action, Cli};
use crate::command::{
    AuditFilter, Command, CommandError, CommandOutcome, DoctorArguments, KitCommand, ManageCommand,
    PluginCommand, StoreCommand, VaultCommand, restored,
};
use crate::config::Config;
use crate::execute::{examine, execute, teller};
use crate::failure::Failure;
use crate::hygiene::end_with;
use crate::options::{Options, Serve};
use crate::plugin_kit::{self, Checked};
use crate::serve;
use crate::start::{acquire, open_options, write_out, write_part};
use crate::telemetry::PluginLines;

/// Carries out the command line. A host reports `lines` to operators.
///
/// # Errors
///
/// The command failed.
pub fn run(cli: Cli, lines: PluginLines) -> Result<(), Failure> {
    let Cli { options, parent, action } = cli;
    if let Some(parent) = parent {
        end_with(parent).map_err(Failure::system("--parent"))?;
    }
    match action {
        None => serve::run(&options, &Serve::default(), lines),
        Some(Action::Serve(serve)) => serve::run(&options, &serve, lines),
        Some(Action::Tour) => tour(&options),
        Some(Action::Health { url }) => health(&options, url.as_ref()),
        Some(Action::Completions { shell }) => completions(&options, shell),
        Some(Action::Man { directory }) => manual(&options, &directory),
        Some(Action::Command(mut command)) => {
            prepare(&mut command)?;
            match &command {
                Command::Store(StoreCommand::Create) => create(&options),
                Command::Store(StoreCommand::Migrate { to_directory: false }) => migrate(&options),
                Command::Store(StoreCommand::Migrate { to_directory: true }) => migrate_back(&options),
                Command::Vault(VaultCommand::Restore { file }) => print(&options, &restore(&options, file)?),
                Command::Vault(VaultCommand::Audit(filter)) => audit(&options, filter.clone()),
                Command::Vault(VaultCommand::Backup { file }) => {
                    let made = execute(&options, &command)?;
                    look_for_backup(file, &made).inspect_err(|_| forget_backup(&options))?;
                    print(&options, &made)
                }
                Command::Doctor(arguments) => doctor(&options, arguments),
                Command::Plugin(PluginCommand::Kit(kit)) => for_authors(&options, kit),
                Command::Plugin(PluginCommand::Manage(change)) => manage(&options, change.clone()),
                command => print(&options, &execute(&options, command)?),
            }
        }
    }
}

/// Writes the outcome to standard output.
pub(super) fn print(options: &Options, outcome: &CommandOutcome) -> Result<(), Failure> {
    if options.json {
        write_out(&Zeroizing::new(format!("{}\n", outcome.document)))
    } else {
        write_out(&outcome.text)
    }
}

/// Prints what the checks found. The command fails if something is bad.
fn doctor(options: &Options, arguments: &DoctorArguments) -> Result<(), Failure> {
    let outcome = examine(options, arguments)?;
    print(options, &outcome)?;
    match outcome.document.get("bad").and_then(serde_json::Value::as_u64) {
        Some(0) => Ok(()),
        bad => Err(Failure::Bad(bad.unwrap_or_default())),
    }
}

/// Carries out a command for authors of plugins. What a check found wrong is printed before the error.
fn for_authors(options: &Options, command: &KitCommand) -> Result<(), Failure> {
    let Checked { outcome, wrong, what } = plugin_kit::carry_out(options, command)?;
    print(options, &outcome)?;
    match wrong {
        0 => Ok(()),
        1 => Err(CommandError::new(format!("one {what} failed")).into()),
        wrong => Err(CommandError::new(format!("{wrong} {what}s failed")).into()),
    }
}

/// Changes which plugins are installed. What is to be installed is copied and checked first.
fn manage(options: &Options, mut command: ManageCommand) -> Result<(), Failure> {
    let mut copy = None;
    if let Some((file, staged)) = command.package() {
        let made = plugin_kit::stage(options, file)?;
        *staged = Some(made.staged.clone());
        copy = Some(made);
    }
    let outcome = execute(options, &Command::Plugin(PluginCommand::Manage(command)));
    drop(copy);
    print(options, &outcome?)
}

/// Creates a store from a backup. It runs in this process, since there is no store yet that a host
/// could hold.
fn restore(options: &Options, file: &Path) -> Result<CommandOutcome, Failure> {
    let config = Config::load(options.config.as_deref(), &options.data)?;
    let lock = acquire(&options.data)?;
    let (open, mut teller) = (open_options(&config, None), teller(options));
    let done = match &config.store.database {
        Some(database) => Store::restore_into(&database.prepare()?, &open, file, &mut teller)?,
        None => Store::restore(&lock, &open, file, &mut teller)?,
    };
    Ok(restored(file, &done))
}

/// Checks that the backup is there for this process too. A host that runs under systemd or in a container may have a
/// `/tmp` or other directories of its own, which are gone when it ends.
fn look_for_backup(file: &Path, made: &CommandOutcome) -> Result<(), Failure> {
    let bytes = made.document.get("bytes").and_then(serde_json::Value::as_u64);
    let found = std::fs::metadata(file).map(|found| found.len());
    if found.is_ok_and(|found| bytes.is_none_or(|bytes| bytes == found)) {
        return Ok(());
    }
    Err(Failure::BackupElsewhere(file.to_owned()))
}

/// Has `doctor` warn that there is no backup.
fn forget_backup(options: &Options) {
    if let Err(error) = LastBackup::forget(&options.data) {
        tracing::warn!(%error, "the note about the last backup could not be removed");
    }
}

/// Prints the audit log page by page, because it may be longer than one reply.
fn audit(options: &Options, mut filter: AuditFilter) -> Result<(), Failure> {
    if let Some(newest) = filter.newest {
        return newest_audit_records(options, filter, newest);
    }
    // What stands before the next record of the JSON array.
    let mut before = "[";
    loop {
        let mut page = audit_page(options, &filter)?;
        let next = page.document.get("next").and_then(serde_json::Value::as_u64);
        let text = match records_of(&mut page) {
            Some(records) if options.json => records
                .iter()
                .map(|record| format!("{}{record}", std::mem::replace(&mut before, ",")))
                .collect(),
            _ => std::mem::take(&mut page.text),
        };
        if write_part(&text)?.is_break() {
            return Ok(());
        }
        let Some(next) = next else { break };
        filter.since = next;
    }
    match before {
        _ if !options.json => Ok(()),
        "[" => write_out("[]\n"),
        _ => write_out("]\n"),
    }
}

/// Prints the newest records of the audit log that pass the filter, oldest first.
fn newest_audit_records(options: &Options, mut filter: AuditFilter, newest: u32) -> Result<(), Failure> {
    let mut found = Vec::new();
    loop {
        filter.newest = Some(newest.saturating_sub(found.len() as u32));
        let mut page = audit_page(options, &filter)?;
        let Some(previous) = page.document.get("previous") else {
            return Err(CommandError::new(
                "the running host does not know `--newest`: is it an older version?",
            )
            .into());
        };
        filter.before = previous.as_u64();
        let mut older = records_of(&mut page).map(std::mem::take).unwrap_or_default();
        older.append(&mut found);
        found = older;
        if filter.before.is_none() || found.len() >= newest as usize {
            break;
        }
    }
    if options.json {
        return write_out(&format!("{}\n", serde_json::Value::Array(found)));
    }
    found.iter().try_for_each(|record| write_out(&format!("{record}\n")))
}

fn audit_page(options: &Options, filter: &AuditFilter) -> Result<CommandOutcome, Failure> {
    execute(options, &Command::Vault(VaultCommand::Audit(filter.clone())))
}

fn records_of(page: &mut CommandOutcome) -> Option<&mut Vec<serde_json::Value>> {
    page.document.get_mut("records")?.as_array_mut()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::look_for_backup;
    use crate::command::CommandOutcome;

    #[test]
    fn a_backup_that_is_not_where_it_was_asked_for_is_a_failure() {
        let made = |bytes: usize| CommandOutcome { document: json!({ "bytes": bytes }), text: String::new() };
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let bytes = include_str!("../../Cargo.toml").len();
        assert!(look_for_backup(&here, &made(bytes)).is_ok());
        for (file, bytes) in [(here.as_path(), bytes + 1), (Path::new("/nowhere/monday"), bytes)] {
            let failure = look_for_backup(file, &made(bytes)).unwrap_err().to_string();
            assert!(failure.contains(&*file.to_string_lossy()), "{failure}");
        }
    }
}
