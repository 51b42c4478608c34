//! Why a transaction did not commit.

use std::error::Error as _;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::witness::Loss;

/// The most characters of a message of the server.
const MESSAGE_CHARS_MAX: usize = 200;

/// Why the database did not do what was asked. The text of this program has no rows and no parameters
/// in it; that of the server is its first message, without detail, and cut.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No connection could be made to any of the hosts.
    #[error("no connection to the database: {0}")]
    Unreachable(String),
    /// The connection broke.
    #[error("the connection to the database was lost: {0}")]
    Lost(String),
    /// A commit in doubt turned out not to be there.
    #[error("the commit was lost with its connection")]
    NotCommitted,
    /// The answer to the COMMIT of a whole store was lost, and the database does not say what became of it.
    #[error(
        "the answer to the commit was lost, and the database does not say whether the copy is there; run the \
         command again"
    )]
    CopyInDoubt,
    /// The database did not answer in time. The connection is not used any more.
    #[error("the database did not answer within {0:?}")]
    Silent(Duration),
    /// The server refused a statement.
    #[error("the database refused a statement: {message} ({})", code.code())]
    Refused {
        /// The error code.
        code: SqlState,
        /// The server's message, without its detail, at most 200 characters.
        message: String,
    },
    /// A guard was deleted while the transaction waited for it.
    #[error("a guard was deleted by another transaction")]
    GuardGone,
    /// The server does not prepare the statements of a lane, or gave its transaction to a session that has not
    /// prepared them.
    #[error("the database does not keep prepared statements")]
    NotPrepared,
    /// The transaction took longer than a group may.
    #[error("a group of changes was not done within {0:?}")]
    TooLong(Duration),
    /// The answer to a question has more bytes than a host takes into memory.
    #[error("the rows that a group of changes reads have more than {0} bytes")]
    TooMuch(usize),
    /// A group of changes asks for something new each time it is applied.
    #[error("a group of changes was applied {0} times and still lacks rows")]
    TooManyRounds(usize),
    /// Rows of a keyspace that this engine does not answer questions about.
    #[error("no table has these rows of the keyspace `{0}`")]
    NoTable(&'static str),
    /// The chain that the lane has just made is not there: what made it was not kept.
    #[error("the new chain of this lane was not kept")]
    NoChain,
    /// This host has no row any more: other hosts took it for dead.
    #[error("this host has no row in the table of hosts")]
    NoHost,
    /// The chain of the lane was sealed: other hosts took this host for dead.
    #[error("the chain of this lane is sealed")]
    Sealed,
    /// The chain of the lane is not in the state in which the lane left it.
    #[error("the chain of this lane was changed from outside: it is at {found:?} and was left at {left}")]
    ChainChanged {
        /// Its number now; `None` when its row is missing.
        found: Option<u64>,
        /// Its number as the lane knows it.
        left: u64,
    },
    /// The database does not have commits that it had acknowledged.
    #[error("the database has lost commits that it had acknowledged: {0}")]
    SetBack(Loss),
    /// The server does not have a commit that the database has acknowledged to this host.
    #[error(
        "the server lacks a sign of life that was committed: it is not the primary any more, or other hosts took this one for dead"
    )]
    FormerPrimary,
    /// The schema is not one that this program works with.
    #[error("the database has schema {found}, this program works with {known}")]
    OtherSchema {
        /// Number of the last migration made; 0 for a database without a schema.
        found: u32,
        /// Number of the last migration that this program knows.
        known: u32,
    },
    /// The header of the store, which another host has changed, cannot be taken over.
    #[error("the header was changed: {0}")]
    Header(String),
    /// The server returned what no statement of this program can return.
    #[error("the database returned an unexpected answer to {0}")]
    Unexpected(&'static str),
    /// The system's random source failed.
    #[error("no random numbers from the system")]
    Random(#[from] getrandom::Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        match error.as_db_error() {
            Some(refusal) => {
                let message = refusal.message().chars().take(MESSAGE_CHARS_MAX).collect();
                Failure::Refused { code: refusal.code().clone(), message }
            }
            None => {
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                Failure::Lost(format!("{error}{cause}"))
            }
        }
    }
}

impl Failure {
    /// Whether the same transaction can succeed when it is run again.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Failure::Unreachable(_)
            | Failure::Lost(_)
            | Failure::Silent(_)
            | Failure::NotCommitted
            | Failure::NoChain
            | Failure::NoHost
            | Failure::GuardGone => true,
            _ if self.lacks_prepared() || self.has_old_plan() => true,
            Failure::Refused { code, .. } => is_transient(code),
            _ => false,
        }
    }

    /// Whether another transaction was in its way.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Failure::GuardGone => true,
            Failure::Refused { code, .. } => {
                code.code().starts_with("40")
                    || *code == SqlState::UNIQUE_VIOLATION
                    || *code == SqlState::QUERY_CANCELED
            }
            _ => false,
        }
    }

    /// Whether the connection may be used again after a rollback.
    pub(crate) fn keeps_connection(&self) -> bool {
        match self {
            Failure::Unreachable(_) | Failure::Lost(_) | Failure::Silent(_) => false,
            _ if self.lacks_prepared() || self.has_old_plan() => false,
            Failure::Refused { code, .. } => !code.code().starts_with("57P"),
            _ => true,
        }
    }

    /// Whether the server lacks a prepared statement, or has another one of its name, as behind a pooler.
    pub(crate) fn lacks_prepared(&self) -> bool {
        match self {
            Failure::NotPrepared => true,
            Failure::Refused { code, .. } => {
                [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT].contains(code)
            }
            _ => false,
        }
    }

    /// Whether a prepared statement would return other columns since an upgrade of the schema, so that it has to be
    /// prepared again.
    fn has_old_plan(&self) -> bool {
        matches!(self, Failure::Refused { code, .. } if *code == SqlState::FEATURE_NOT_SUPPORTED)
    }

    /// Whether a transaction in which a statement or COMMIT failed with this has certainly committed
    /// nothing.
    pub(crate) fn is_rollback(&self) -> bool {
        let Failure::Refused { code, .. } = self else { return false };
        code.code().starts_with("40") && *code != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
    }
}

fn is_transient(code: &SqlState) -> bool {
    // Conflicts; shortage of resources; a server that ends, starts or is a standby; connections.
    let classes = ["40", "53", "57P", "08"];
    let codes = [
        SqlState::UNIQUE_VIOLATION,
        // The timeout of a statement.
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    classes.iter().any(|class| code.code().starts_with(class)) || codes.contains(code)
}
