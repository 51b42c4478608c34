//! Why the program ends without having done what it was asked, and the exit code
//! that says so to scripts.

use cofferdam_store::{LockError, OpenError};
use serde_json::json;

use crate::command::CommandError;
use crate::config::ConfigError;
use crate::wiring::WiringError;

/// The command failed, or nobody knows its outcome.
const FAILED: u8 = 1;
/// The configuration is not acceptable. Usage errors are 2 and end in the parser.
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
    /// A write of the store failed. What is durable is known at the next start.
    #[error("the store cannot write; start again to go on with what is durable")]
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
            Self::Open(error) if error.is_configuration() => CONFIGURATION,
            _ => FAILED,
        }
    }

    /// A system error with what was attempted.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |cause| Self::System { what, cause }
    }

    /// What standard error says, one JSON document when asked for JSON.
    #[must_use]
    pub fn describe(&self, as_json: bool) -> String {
        if as_json { json!({"error": self.to_string()}).to_string() } else { format!("error: {self}") }
    }
}
