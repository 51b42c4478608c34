//! Why the program ends without having done what it was asked, and the exit code
//! that says so to scripts.

use cofferdam_store::{LockError, OpenError};
use serde_json::json;

use crate::command::CommandError;
use crate::config::ConfigError;
use crate::wiring::WiringError;

/// The command failed, or nobody knows its outcome.
const FAILED: u8 = 1;
/// What the command line says is not acceptable. Most such errors end in the parser.
const USAGE: u8 = 2;
/// The configuration is not acceptable.
const CONFIGURATION: u8 = 78;

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
    /// A command that only reads found no store.
    #[error("no store in {}; serve makes one", .0.display())]
    NoStore(std::path::PathBuf),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What `--new` says names no source.
    #[error("--new: {0}")]
    Source(#[source] cofferdam_store::SourceError),
    /// The source of a new root key gives none.
    #[error("no new root key: {0}")]
    NewRootKey(#[from] cofferdam_store::RootKeyError),
    /// A backup was not restored.
    #[error(transparent)]
    Vault(#[from] cofferdam_store::VaultError),
    /// The question before a command was not answered with yes.
    #[error("nothing was done: the answer was not `y`; `--yes` does not ask")]
    NotConfirmed,
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
    /// A write of the store failed. What is durable is known at the next start.
    #[error("the store cannot write, the log has the reason; start again to go on with what is durable")]
    StoreFailed,
    /// A write of the store does not end.
    #[error("the store does not finish writing; start again to go on with what is durable")]
    StoreHangs,
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
            Self::Config(_) | Self::Wiring(_) => CONFIGURATION,
            Self::Command(error) if error.is_configuration => CONFIGURATION,
            Self::Source(_) => USAGE,
            Self::Open(error) if error.is_configuration() => CONFIGURATION,
            Self::Vault(error) if error.is_configuration() => CONFIGURATION,
            _ => FAILED,
        }
    }

    /// The same for the process that is waiting for the outcome of a command.
    pub(crate) fn into_reply(self) -> CommandError {
        let is_configuration = self.exit_code() == CONFIGURATION;
        match self {
            Self::Command(error) => error,
            failure => CommandError { is_configuration, ..CommandError::new(failure.to_string()) },
        }
    }

    /// A system error with what was attempted.
    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |cause| Self::System { what, cause }
    }

    /// What standard error says, one JSON document when asked for JSON.
    #[must_use]
    pub fn describe(&self, as_json: bool) -> String {
        match self {
            _ if !as_json => format!("error: {self}"),
            Self::Command(CommandError { message, details: Some(details), .. }) => {
                json!({"error": message, "details": details}).to_string()
            }
            _ => json!({"error": self.to_string()}).to_string(),
        }
    }
}
