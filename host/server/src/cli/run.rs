//! Where a command runs. Whoever holds the lock of the store carries commands
//! out: this process when it gets the lock, else the one that serves, over the
//! socket in the data directory. A command is sent at most once.

use std::time::Instant;

use cofferdam_store::{DirectoryLock, LockError};

use super::{Action, Cli, Options};
use crate::admin::socket::{self, SendError};
use crate::command::{Command, Outcome, carry_out};
use crate::config::{Config, Environment};
use crate::facts::{self, Facts};
use crate::failure::Failure;
use crate::start::{PATIENCE, open, pause, runtime, write_out};
use crate::{serve, wiring};

/// Does what the command line says.
///
/// # Errors
///
/// It could not be done.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let Cli { options, action } = cli;
    match action {
        None => serve::run(&options, &super::Serve::default()),
        Some(Action::Serve(serve)) => serve::run(&options, &serve),
        Some(Action::Command(command)) => {
            let outcome = execute(&options, &command)?;
            print(&options, &outcome)
        }
    }
}

/// Writes the outcome on standard output.
fn print(options: &Options, outcome: &Outcome) -> Result<(), Failure> {
    if options.json { write_out(&format!("{}\n", outcome.document)) } else { write_out(&outcome.text) }
}

fn execute(options: &Options, command: &Command) -> Result<Outcome, Failure> {
    if !command.needs_store() && !options.data.join("lock").exists() {
        // Looking at the configuration must not make a store.
        return describe(options, command);
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let held = match DirectoryLock::acquire(&options.data) {
            Ok(lock) if command.needs_store() => return in_process(options, command, lock),
            Ok(_) => return describe(options, command),
            Err(error @ LockError::Held { .. }) => error,
            Err(error) => return Err(error.into()),
        };
        match socket::send(&options.data, command) {
            Ok(outcome) => return Ok(outcome?),
            Err(SendError::OutcomeUnknown) => return Err(Failure::OutcomeUnknown),
            Err(SendError::NotListening) if Instant::now() < end => pause(),
            Err(SendError::NotListening) => return Err(held.into()),
        }
    }
}

fn in_process(options: &Options, command: &Command, lock: DirectoryLock) -> Result<Outcome, Failure> {
    let config = Config::load(options.config.as_deref(), &options.data)?;
    // Whoever holds the lock knows that a socket which is there is a leftover.
    if socket::remove(&options.data).is_ok() {
        tracing::debug!("removed the socket of a host that ended without doing so");
    }
    let store = open(&config, lock, None)?;
    let outcome = carry_out(command, Some(&store), &Facts::default());
    store.close();
    Ok(outcome?)
}

/// Answers what only needs configuration and plugins.
fn describe(options: &Options, command: &Command) -> Result<Outcome, Failure> {
    let config = Config::load(options.config.as_deref(), &options.data)?;
    let runtime = runtime(&config, &options.data)?;
    let services = wiring::services(&config, None, &runtime, &Environment::offline(), 0)?;
    Ok(carry_out(command, None, &facts::of(&services.catalog, &services.plugins))?)
}
