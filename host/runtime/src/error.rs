//! What can go wrong with a plugin, told apart by whose fault it is. Messages
//! name plugins, files and limits, never anything a guest or a client said.

use std::fmt;
use std::path::PathBuf;

/// The runtime could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sandbox refused its settings even without a pool.
    #[error("the sandbox does not start on this machine: {0}")]
    Engine(String),
    /// The thread that ends runaway guests could not be started.
    #[error("the epoch thread does not start: {0}")]
    Ticker(std::io::Error),
}

/// A plugin could not be loaded. Each message is one line that says what to change.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The folder of plugins, a manifest or a component could not be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The manifest is wrong.
    #[error("{origin}: {error}")]
    Manifest {
        /// The file.
        origin: String,
        /// What is wrong in it.
        error: ManifestError,
    },
    /// The component does not keep the contract.
    #[error("{origin}: {error}")]
    Contract {
        /// The file.
        origin: String,
        /// The first thing that is wrong.
        error: ContractError,
    },
    /// A user other than root and the host's user can change the folder or a file.
    #[error("{}: {reason}; plugins are code, so only root and the user of this host may change them", path.display())]
    Untrusted {
        /// The folder, a manifest or a component.
        path: PathBuf,
        /// Who can.
        reason: Distrust,
    },
    /// Two plugins answer to one name.
    #[error("{origin}: the {what} `{id}` is taken by {first}: give this plugin another")]
    Duplicate {
        /// The file.
        origin: String,
        /// What is there twice.
        what: &'static str,
        /// The name that is there twice.
        id: String,
        /// Who has it already.
        first: String,
    },
    /// A plugin has the name of one that is part of the program.
    #[error(
        "{origin}: {name} is built in; to put this plugin in its place, set `replaces = true` in [plugins.{name}] \
         of the configuration"
    )]
    BuiltIn {
        /// The file.
        origin: String,
        /// The name.
        name: String,
    },
    /// The component is not the one that the operator's configuration pins.
    #[error(
        "{origin}: the component of {name} has the SHA-256 {digest}, and [plugins.{name}] sha256 pins {pinned}"
    )]
    Pinned {
        /// The file.
        origin: String,
        /// The plugin.
        name: String,
        /// What the configuration says, in hexadecimal.
        pinned: String,
        /// What the component has.
        digest: String,
    },
    /// The operator's configuration names a plugin that is not there.
    #[error("[plugins.{name}]: no plugin of this name is installed")]
    UnknownPlugin {
        /// The name in the configuration.
        name: String,
    },
}

/// Who can change a file of a plugin, and should not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// It belongs to another user.
    #[error("belongs to user {owner}")]
    Owner {
        /// The user's number.
        owner: u32,
    },
    /// Every user may write it.
    #[error("every user may write it (mode {mode:o})")]
    WritableForAll {
        /// Its permissions.
        mode: u32,
    },
    /// A group may write it that is not the host's own.
    #[error("group {group} may write it (mode {mode:o})")]
    WritableForGroup {
        /// The group's number.
        group: u32,
        /// Its permissions.
        mode: u32,
    },
}

/// What is wrong in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ManifestError {
    /// The line, counted from 1.
    pub line: usize,
    /// The key and what is wrong with it.
    pub message: String,
}

/// Why a component is not a plugin for this host: one line, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ContractError(pub(crate) String);

/// A call into a plugin failed for a reason that is not a [`crate::wire::Failure`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plugin {plugin} {kind}")]
pub struct CallError {
    /// The plugin's name.
    pub plugin: String,
    /// What happened.
    pub kind: CallErrorKind,
}

/// What happened in a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// The guest broke; its instance is gone.
    Trap(TrapKind),
    /// The guest used up its processor time, or the call its wall time.
    OutOfTime,
    /// The guest broke after it was refused more memory.
    OutOfMemory,
    /// The guest's answer, or what it passed to an import, was longer than accepted.
    OutputTooLarge,
    /// The guest called the host more often than one call may.
    TooManyHostCalls,
    /// All instances are in use: not the plugin's fault, try again soon.
    Saturated,
    /// The component does not compile or link; the log has the reason.
    Compile,
    /// The plugin needs something it was not granted; the log has the line that grants it.
    Denied,
    /// The guest's answer breaks a rule of the contract.
    InvalidAnswer(&'static str),
    /// The component does not export what was called.
    NotExported(&'static str),
    /// The instance died in an earlier call.
    Dead,
}

/// How a guest broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrapKind {
    /// It gave up by itself: a panic or an abort.
    Unreachable,
    /// It recursed too deeply.
    StackOverflow,
    /// It touched memory or a table outside its bounds.
    OutOfBounds,
    /// It divided by zero, or an arithmetic conversion overflowed.
    Arithmetic,
    /// It handed over a value that is none of the declared type.
    InvalidValue,
    /// Anything else.
    Other,
}

impl TrapKind {
    /// The label of this kind in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::StackOverflow => "stack_overflow",
            Self::OutOfBounds => "out_of_bounds",
            Self::Arithmetic => "arithmetic",
            Self::InvalidValue => "invalid_value",
            Self::Other => "other",
        }
    }
}

impl CallErrorKind {
    /// The label of this kind in metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Trap(kind) => kind.as_str(),
            Self::OutOfTime => "out_of_time",
            Self::OutOfMemory => "out_of_memory",
            Self::OutputTooLarge => "output_too_large",
            Self::TooManyHostCalls => "too_many_host_calls",
            Self::Saturated => "saturated",
            Self::Compile => "compile",
            Self::Denied => "denied",
            Self::InvalidAnswer(_) => "invalid_answer",
            Self::NotExported(_) => "not_exported",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for CallErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trap(kind) => write!(f, "broke ({})", kind.as_str()),
            Self::OutOfTime => f.write_str("ran out of time"),
            Self::OutOfMemory => f.write_str("ran out of memory"),
            Self::OutputTooLarge => f.write_str("produced more output than accepted"),
            Self::TooManyHostCalls => f.write_str("called the host too often"),
            Self::Saturated => f.write_str("has no free instance"),
            Self::Compile => f.write_str("does not compile"),
            Self::Denied => f.write_str("lacks a grant"),
            Self::InvalidAnswer(rule) => write!(f, "broke a rule of the contract: {rule}"),
            Self::NotExported(export) => write!(f, "does not export {export}"),
            Self::Dead => f.write_str("died in an earlier call"),
        }
    }
}

impl CallError {
    pub(crate) fn new(plugin: &str, kind: CallErrorKind) -> Self {
        Self { plugin: plugin.to_owned(), kind }
    }

    /// Whether all instances were in use: answer 503 and ask to try again.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.kind == CallErrorKind::Saturated
    }
}
