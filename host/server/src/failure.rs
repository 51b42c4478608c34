//! Errors that end the program, and their exit codes.

use cofferdam_store::{LockError, OpenError};
use serde_json::json;

use crate::command::CommandError;
use crate::config::ConfigError;
use crate::operators::OperatorTokenError;
use crate::wiring::WiringError;

/// The command failed, or its outcome is unknown.
const FAILED: u8 = 1;
/// The command line is not valid. The parser reports most such errors itself.
const USAGE: u8 = 2;
/// The database of the store cannot be used now (`EX_UNAVAILABLE` of sysexits.h).
const UNAVAILABLE: u8 = 69;
/// The configuration is not valid (`EX_CONFIG` of sysexits.h).
const CONFIGURATION: u8 = 78;

/// A data directory in which another user can make a socket. A command may hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum UntrustedDirectory {
    #[error("{} belongs to user {owner}: nothing was sent to its admin.sock", path.display())]
    WrongOwner { path: std::path::PathBuf, owner: u32 },
    #[error("other users may write into {}: nothing was sent to its admin.sock", .0.display())]
    TooOpen(std::path::PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration is valid by itself but cannot be served.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    UntrustedDirectory(#[from] UntrustedDirectory),
    /// A command that only reads found no store.
    #[error("no store in {}; serve makes one", .0.display())]
    NoStore(std::path::PathBuf),
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The source that the configuration names gives no root key.
    #[error("vault.root_key: {0}")]
    RootKey(#[source] cofferdam_store::RootKeyError),
    /// The value of `--new` is not a source of a key.
    #[error("--new: {0}")]
    Source(#[source] cofferdam_store::SourceError),
    /// The operator token cannot be used.
    #[error(transparent)]
    OperatorToken(#[from] OperatorTokenError),
    /// The source of the new root key gives no usable key.
    #[error("no new root key: {0}")]
    NewRootKey(#[from] cofferdam_store::RootKeyError),
    /// A backup was not restored.
    #[error(transparent)]
    Vault(#[from] cofferdam_store::VaultError),
    /// The running host has written a backup where this process does not find it.
    #[error(
        "the running host wrote {}, but this process does not find it there: the host has directories of its own \
         (systemd's PrivateTmp, a container). The file stays there until the host ends. Name a file in the data directory, \
         and move it away afterwards", .0.display()
    )]
    BackupElsewhere(std::path::PathBuf),
    /// The confirmation question was not answered with `y`.
    #[error("nothing was done: the answer was not `y`; `--yes` does not ask")]
    NotConfirmed,
    /// The command was understood and failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The command was sent and no reply came.
    #[error(
        "outcome unknown: the connection to the running process broke after sending; look before repeating"
    )]
    OutcomeUnknown,
    #[error(transparent)]
    Runtime(#[from] cofferdam_runtime::StartError),
    /// A write of the store failed. Only the next start can find out what is durable.
    #[error("the store cannot write, the log has the reason; start again to go on with what is durable")]
    StoreFailed,
    /// A write of the store does not finish.
    #[error("the store does not finish writing; start again to go on with what is durable")]
    StoreHangs,
    /// A listener, a file or standard output failed.
    #[error("{what}: {cause}")]
    System {
        /// What was attempted.
        what: String,
        cause: std::io::Error,
    },
    #[error("plugin {0} does not compile; the log has the reason")]
    Plugin(String),
    /// `doctor` found what is bad.
    #[error("{0} findings are bad")]
    Bad(u64),
    /// `health` found a host that is not ready, or none.
    #[error("not ready: {0}")]
    NotReady(String),
    /// `tour` did not come to its end.
    #[error("the tour failed while {step}: {cause}")]
    Tour {
        /// What it was doing, as in `asking the model`.
        step: String,
        cause: String,
    },
}

impl Failure {
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Wiring(_) | Self::RootKey(_) => CONFIGURATION,
            Self::Command(error) if error.is_configuration => CONFIGURATION,
            Self::Source(_) => USAGE,
            Self::Open(error) if error.is_configuration() => CONFIGURATION,
            Self::Open(error) if error.is_unavailable() => UNAVAILABLE,
            Self::Vault(error) if error.is_configuration() => CONFIGURATION,
            Self::Vault(error) if error.is_unavailable() => UNAVAILABLE,
            _ => FAILED,
        }
    }

    /// The name of the plugin that cannot be used, where this is the reason.
    pub(crate) fn plugin(&self) -> Option<&str> {
        match self {
            Self::Plugin(name) => Some(name),
            Self::Wiring(error) => error.plugin(),
            _ => None,
        }
    }

    /// The error as a reply to the process that sent the command.
    pub(crate) fn into_reply(self) -> CommandError {
        let is_configuration = self.exit_code() == CONFIGURATION;
        match self {
            Self::Command(error) => error,
            failure => CommandError { is_configuration, ..CommandError::new(failure.to_string()) },
        }
    }

    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |cause| Self::System { what, cause }
    }

    /// The text for standard error: one JSON document if JSON was asked for.
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
