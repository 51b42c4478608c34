//! The errors of plugins, grouped by cause. Messages name plugins, files and limits, and never
//! contain text from a guest or a client.

use std::fmt;
use std::path::PathBuf;

/// The runtime could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The WebAssembly engine refused its settings, even without a pool.
    #[error("the sandbox does not start on this machine: {0}")]
    Engine(String),
    /// The thread that interrupts long-running guests could not be started.
    #[error("the epoch thread does not start: {0}")]
    Ticker(std::io::Error),
}

/// A plugin could not be loaded. Each message is one line that says what to change.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The folder of plugins, a manifest or a component could not be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The manifest is wrong.
    #[error("{origin}: {error}")]
    Manifest {
        /// The plugin's name, as its file says it.
        name: String,
        /// Path of the manifest, or `embedded`.
        origin: String,
        /// The mistake and its line.
        error: ManifestError,
    },
    /// The component does not fit the contract.
    #[error("{origin}: {error}")]
    Contract {
        /// The plugin's name.
        name: String,
        /// The manifest and the component.
        origin: String,
        /// The first mistake.
        error: ContractError,
    },
    /// A user other than root and the host's user can change the folder or a file.
    #[error(
        "{}: {reason}; plugins are code, so only root and the user of this host may change them: {} {}",
        path.display(),
        reason.mend(),
        path.display()
    )]
    Untrusted {
        /// The folder, a manifest or a component.
        path: PathBuf,
        /// Which user can change it.
        reason: Distrust,
    },
    /// Two plugins have the same name, id or type.
    #[error("{origin}: the {what} `{id}` is taken by {first}: choose another")]
    Duplicate {
        /// Path of the manifest, or `embedded`.
        origin: String,
        /// What is not unique: `tool type`, `hook id` and so on.
        what: &'static str,
        /// The name that both plugins have.
        id: String,
        /// The plugin that has it already.
        first: String,
    },
    /// A plugin has the name of a built-in plugin and may not replace it.
    #[error(
        "{origin}: {name} is built in; to put this plugin in its place, set `replaces = true` in [plugins.{name}] \
         of the configuration"
    )]
    BuiltIn {
        /// Path of the manifest.
        origin: String,
        /// The name of both plugins.
        name: String,
    },
    /// The component is not the one that the operator's configuration pins.
    #[error(
        "{origin}: the component of {name} has the SHA-256 {digest}, and [plugins.{name}] sha256 pins {pinned}"
    )]
    Pinned {
        /// Path of the manifest, or `embedded`.
        origin: String,
        /// The plugin's name.
        name: String,
        /// The SHA-256 in the configuration, in hexadecimal.
        pinned: String,
        /// The SHA-256 of the component, in hexadecimal.
        digest: String,
    },
    /// The operator's configuration names a plugin that is not installed.
    #[error("[plugins.{name}]: no plugin of this name is installed")]
    UnknownPlugin {
        /// The name in the configuration.
        name: String,
    },
}

impl LoadError {
    /// The name of the plugin that is refused.
    #[must_use]
    pub fn plugin(&self) -> Option<&str> {
        match self {
            Self::Manifest { name, .. }
            | Self::Contract { name, .. }
            | Self::BuiltIn { name, .. }
            | Self::Pinned { name, .. } => Some(name),
            Self::Read { .. }
            | Self::Untrusted { .. }
            | Self::Duplicate { .. }
            | Self::UnknownPlugin { .. } => None,
        }
    }
}

/// Which user other than root and the host's own can change a file of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// The file belongs to another user.
    #[error("belongs to user {owner}")]
    Owner {
        /// The user's numeric id.
        owner: u32,
    },
    /// The file is writable for all users.
    #[error("every user may write it (mode {mode:o})")]
    WritableForAll {
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file is writable for a group other than the host's own.
    #[error("group {group} may write it (mode {mode:o})")]
    WritableForGroup {
        /// The group's numeric id.
        group: u32,
        /// Permission bits of the file.
        mode: u32,
    },
}

impl Distrust {
    /// The command that mends it, without the path.
    fn mend(self) -> &'static str {
        match self {
            Self::Owner { .. } => "chown root",
            Self::WritableForAll { .. } | Self::WritableForGroup { .. } => "chmod go-w",
        }
    }
}

/// A mistake in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ManifestError {
    /// The line, counted from 1.
    pub line: usize,
    /// The key and what is wrong with it.
    pub message: String,
}

/// Why a component is not a plugin for this host: one line that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ContractError(pub(crate) String);

/// A call into a plugin failed for another reason than a [`crate::wire::Failure`], which is a
/// guest's own answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plugin {plugin} {kind}")]
pub struct CallError {
    /// The plugin's name.
    pub plugin: String,
    /// The kind of error.
    pub kind: CallErrorKind,
}

/// The kinds of errors of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// The guest trapped. Its instance is gone.
    Trap(TrapKind),
    /// The guest used up its processor time, or the call took longer than its wall-clock limit.
    OutOfTime,
    /// The guest trapped after it was refused more memory.
    OutOfMemory,
    /// The guest's answer, or a value that it passed to an import, was longer than the limit.
    OutputTooLarge,
    /// The guest made more host calls than one call may.
    TooManyHostCalls,
    /// All instances are in use, or the memory or processors that guests share. Not the plugin's fault; a later
    /// attempt can succeed.
    Saturated,
    /// The component does not compile or link. The reason is in the log.
    Compile,
    /// The plugin requires an import that it was not granted. The log has the line that grants it.
    Denied,
    /// The guest's answer, or its call of an import, breaks a rule of the contract.
    InvalidAnswer(&'static str),
    /// The component does not export the called interface.
    NotExported(&'static str),
    /// The instance ended in an earlier call that failed or was dropped.
    Dead,
}

/// Why a guest trapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrapKind {
    /// The guest ended itself: a panic or an abort.
    Unreachable,
    /// The stack overflowed.
    StackOverflow,
    /// An access to memory or a table was out of bounds, or an indirect call had a wrong target.
    OutOfBounds,
    /// A division by zero, or an arithmetic conversion that overflowed.
    Arithmetic,
    /// A value passed to the host does not have the declared type.
    InvalidValue,
    /// Any other trap.
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
            Self::Saturated => f.write_str("has no free instance, memory or processor"),
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

    /// Whether all instances were in use. The client should get a 503 and try again.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.kind == CallErrorKind::Saturated
    }
}
