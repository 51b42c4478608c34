//! Decides where a command runs. The process that holds the lock of the store carries it out: this
//! process if it gets the lock, else the running host, over the socket in the data directory. A
//! command is sent at most once.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cofferdam_engine::Memory;
use cofferdam_store::{DirectoryLock, LockError, Store};

use crate::admin::socket::{self, SendError};
use crate::command::{
    Command, CommandError, CommandOutcome, DoctorArguments, PluginCommand, Progress, StoreAccess, carry_out,
    not_running,
};
use crate::config::{Config, DatabaseConfig, Environment};
use crate::doctor;
use crate::facts::{self, Facts};
use crate::failure::Failure;
use crate::grants::GrantEditor;
use crate::install;
use crate::installed::{self, PluginPlaces};
use crate::options::Options;
use crate::start::{PATIENCE, StoreUse, ask, block_on, connect, open, pause, runtime};
use crate::wiring;

/// The progress line on a terminal; erased when dropped.
struct ProgressLine {
    shown: bool,
}

impl ProgressLine {
    fn show(&mut self, text: &str) {
        self.shown = true;
        ask(&format!("\r{text}\x1b[K"));
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown {
            ask("\r\x1b[K");
        }
    }
}

/// Shows progress on one line of the terminal that is overwritten each time. Shows nothing when
/// standard error is not a terminal or JSON was asked for.
pub(crate) fn teller(options: &Options) -> impl FnMut(&str, u64, u64) -> ControlFlow<()> + use<> {
    let wanted = !options.json && std::io::stderr().is_terminal();
    let mut line = ProgressLine { shown: false };
    move |what, done, of| {
        if wanted && !what.is_empty() {
            let of = if of == 0 { String::new() } else { format!(" of {of}") };
            line.show(&format!("{done}{of} {what}"));
        }
        ControlFlow::Continue(())
    }
}

/// Checks an installation in this process or in the running host.
pub(crate) fn examine(options: &Options, arguments: &DoctorArguments) -> Result<CommandOutcome, Failure> {
    let arguments = &DoctorArguments { data_mode: doctor::mode(&options.data), ..arguments.clone() };
    // Without a lock file no host runs. Taking the lock would create the data directory.
    if !options.data.join("lock").exists() && matches!(Store::exists(&options.data), Ok(false)) {
        return doctor::alone(options, arguments, DirectoryLock::check_owner(&options.data).map(|()| None));
    }
    let command = Command::Doctor(arguments.clone());
    match lock_or_send(options, &command, &mut teller(options)) {
        Ok(LockOrSent::Locked(lock)) => doctor::alone(options, arguments, Ok(Some(lock))),
        Ok(LockOrSent::Sent(outcome)) => Ok(outcome),
        Err(Failure::Lock(error @ LockError::WrongOwner { .. })) => {
            doctor::alone(options, arguments, Err(error))
        }
        Err(error) => Err(error),
    }
}

/// Carries out a command in this process or in the running host.
pub(crate) fn execute(options: &Options, command: &Command) -> Result<CommandOutcome, Failure> {
    let access = command.access();
    // A configuration with a mistake is no reason to send nothing to a host that runs with an earlier one.
    let config = Config::load(options.config.as_deref(), &options.data);
    if access != StoreAccess::Nothing
        && let Ok(config) = &config
        && let Some(database) = &config.store.database
    {
        return on_database(options, config, database, command);
    }
    let writes = access == StoreAccess::Writes || command.changes_plugins();
    if !writes && !options.data.join("lock").exists() {
        // Without a lock file no host runs. A command that only reads must not create the data
        // directory, which taking the lock would do.
        match access {
            StoreAccess::Nothing => return describe(options, command),
            _ if !Store::exists(&options.data)? => {
                // A mistake may be in what says where the store is.
                return Err(config.err().map_or_else(|| no_store(options), Failure::from));
            }
            _ => {}
        }
    }
    let progress = &mut teller(options);
    match lock_or_send(options, command, progress)? {
        LockOrSent::Sent(outcome) => Ok(outcome),
        LockOrSent::Locked(_) if access == StoreAccess::Nothing => describe(options, command),
        LockOrSent::Locked(lock) => in_process(options, command, lock, progress),
    }
}

/// Who carries out a command.
enum LockOrSent {
    /// This process, which holds the lock of the store.
    Locked(DirectoryLock),
    /// The running host has done it.
    Sent(CommandOutcome),
}

/// Takes the lock of the store, or sends the command to the host that holds it.
fn lock_or_send(
    options: &Options,
    command: &Command,
    progress: &mut Progress<'_>,
) -> Result<LockOrSent, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        let refused = match DirectoryLock::acquire(&options.data) {
            Ok(lock) => return Ok(LockOrSent::Locked(lock)),
            Err(error @ LockError::Held { .. }) => error,
            // Root reaches the host of another user, such as that of a systemd unit.
            Err(error @ LockError::WrongOwner { .. }) if rustix::process::geteuid().is_root() => error,
            Err(error) => return Err(error.into()),
        };
        let is_held = matches!(refused, LockError::Held { .. });
        match socket::send(&options.data, command, progress) {
            Ok(outcome) => return Ok(LockOrSent::Sent(outcome?)),
            Err(SendError::OutcomeUnknown) => return Err(Failure::OutcomeUnknown),
            Err(SendError::Untrusted(directory)) => return Err(directory.into()),
            Err(SendError::NotListening) if is_held && Instant::now() < end => pause(),
            Err(SendError::NotListening) => return Err(refused.into()),
        }
    }
}

/// Carries out a command on a store in a database: in the host of this data directory if one runs, which
/// has the root key and the password, else in this process, beside hosts elsewhere.
fn on_database(
    options: &Options,
    config: &Config,
    database: &DatabaseConfig,
    command: &Command,
) -> Result<CommandOutcome, Failure> {
    let progress = &mut teller(options);
    match socket::send(&options.data, command, progress) {
        Ok(outcome) => return Ok(outcome?),
        Err(SendError::OutcomeUnknown) => return Err(Failure::OutcomeUnknown),
        Err(SendError::Untrusted(directory)) => return Err(directory.into()),
        Err(SendError::NotListening) => {}
    }
    let store = connect(config, database, StoreUse::Command)?;
    store.note_backups_in(&options.data);
    let mut facts = Facts::default();
    installed::add_from_lock(&mut facts, &options.data);
    let outcome = block_on(carry_out(command, Some(&store), &facts, progress));
    store.close();
    Ok(outcome??)
}

fn in_process(
    options: &Options,
    command: &Command,
    lock: DirectoryLock,
    progress: &mut Progress<'_>,
) -> Result<CommandOutcome, Failure> {
    let exists = Store::exists(&options.data)?;
    if !exists && command.access() == StoreAccess::Reads {
        return Err(no_store(options));
    }
    let config = Config::load(options.config.as_deref(), &options.data)?;
    // This process holds the lock, so an existing socket is a leftover.
    if socket::remove(&options.data).is_ok() {
        tracing::debug!("removed the socket of a host that ended without doing so");
    }
    let store = open(&config, lock, None)?;
    if !exists {
        ask(&format!("made a store in {}\n", full_path(&options.data).display()));
    }
    let mut facts = Facts::default();
    installed::add_from_lock(&mut facts, &options.data);
    let outcome = block_on(carry_out(command, Some(&store), &facts, progress));
    store.close();
    Ok(outcome??)
}

fn no_store(options: &Options) -> Failure {
    Failure::NoStore(full_path(&options.data))
}

fn full_path(data: &Path) -> PathBuf {
    std::path::absolute(data).unwrap_or_else(|_| data.to_owned())
}

/// Answers commands that need only the configuration and plugins.
fn describe(options: &Options, command: &Command) -> Result<CommandOutcome, Failure> {
    if matches!(command, Command::Console) {
        let message = "no host serves this data directory; start one with `cofferdam serve`";
        return Err(CommandError::new(message).into());
    }
    if let Command::Plugin(PluginCommand::Logs(wanted)) = command {
        return Err(not_running(wanted).into());
    }
    let config = Config::load(options.config.as_deref(), &options.data)?;
    let runtime = runtime(&config, &options.data)?;
    let folder = command.plugin_folder();
    if let Command::Plugin(command @ (PluginCommand::Grant(_) | PluginCommand::Manage(_))) = command {
        return install::carry_out(&GrantEditor::alone(options, folder, runtime), command);
    }
    let environment = Environment::offline();
    let places = PluginPlaces::new(&options.data, folder);
    let services = wiring::catalog_services(&config, places, &runtime, &environment, &Memory::default(), 0)?;
    let mut facts = facts::of(&services.catalog, &services.plugins);
    installed::add_from_lock(&mut facts, &options.data);
    Ok(block_on(carry_out(command, None, &facts, &mut teller(options)))??)
}
