//! Where a command runs. Whoever holds the lock of the store carries commands
//! out: this process when it gets the lock, else the one that serves, over the
//! socket in the data directory. A command is sent at most once.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_runtime::{Runtime, RuntimeConfig};
use cofferdam_store::{Clock, DirectoryLock, LockError, OpenError, OpenOptions, Store};
use serde_json::json;

use super::{Action, Cli, Options, exit};
use crate::admin::socket::{self, SendError};
use crate::command::{Command, CommandError, Facts, Outcome, carry_out};
use crate::config::{Config, ConfigError, Environment};
use crate::wiring::{self, WiringError};
use crate::{cache, facts, serve};

/// How long a lock that is held, and a socket that is not there yet, are tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Why the program ends without having done what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is not acceptable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration cannot be served.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The data directory cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The command was understood and failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The command was sent and nobody answered.
    #[error(
        "outcome unknown: the connection to the running process broke after sending; look before repeating"
    )]
    OutcomeUnknown,
    /// The sandbox does not start.
    #[error(transparent)]
    Runtime(#[from] cofferdam_runtime::StartError),
    /// A listener, a file or standard output failed.
    #[error("{what}: {cause}")]
    System {
        /// What was attempted.
        what: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A configured plugin does not compile.
    #[error("plugin {0} does not compile; the log has the reason")]
    Plugin(String),
}

impl Failure {
    /// The exit code that stands for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Wiring(_) => exit::CONFIGURATION,
            Self::Open(error) if error.is_configuration() => exit::CONFIGURATION,
            _ => exit::FAILED,
        }
    }

    /// A system error with what was attempted.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |cause| Self::System { what, cause }
    }
}

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

/// Writes text on standard output. A reader that went away is no failure of ours.
pub(crate) fn write_out(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::system("standard output")(error))
        }
        _ => Ok(()),
    }
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
    let store = open(&config, lock, None)?;
    let outcome = carry_out(command, Some(&store), &Facts::default());
    store.close();
    Ok(outcome?)
}

/// Opens the store with the root key of the configuration.
pub(crate) fn open(
    config: &Config,
    lock: DirectoryLock,
    accept_rollback: Option<u64>,
) -> Result<Store, OpenError> {
    let root_key = config.vault.root_key.clone();
    Store::open(lock, OpenOptions { root_key, accept_rollback, clock: Clock::system() })
}

/// Answers what only needs configuration and plugins.
fn describe(options: &Options, command: &Command) -> Result<Outcome, Failure> {
    let config = Config::load(options.config.as_deref(), &options.data)?;
    let runtime = runtime(&config, &options.data)?;
    let services = wiring::services(&config, None, &runtime, &Environment::offline(), 0)?;
    Ok(carry_out(command, None, &facts::of(&services.catalog, &services.plugins))?)
}

/// Starts the sandbox.
pub(crate) fn runtime(config: &Config, data: &Path) -> Result<Runtime, Failure> {
    let settings = RuntimeConfig {
        streams: config.limits.streams,
        cache_dir: cache::directory(data),
        tick: Duration::from_millis(2),
    };
    Ok(Runtime::start(settings)?)
}

/// Waits a moment between two tries.
#[expect(clippy::disallowed_methods, reason = "the command line has one thread and nothing else to do")]
pub(crate) fn pause() {
    std::thread::sleep(PAUSE);
}

/// What `--json` prints about a failure, on standard error like all errors.
#[must_use]
pub fn describe_failure(failure: &Failure, as_json: bool) -> String {
    if as_json { json!({"error": failure.to_string()}).to_string() } else { format!("error: {failure}") }
}
