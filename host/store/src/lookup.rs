//! Errors of looking up an entity by name or id.

use std::fmt;

/// Kind of the entity that was looked for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RecordKind {
    /// A workspace.
    Workspace,
    /// A member.
    Member,
    /// An intern.
    Intern,
    /// An API key.
    Key,
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordKind::Workspace => "workspace",
            RecordKind::Member => "member",
            RecordKind::Intern => "intern",
            RecordKind::Key => "key",
        })
    }
}

/// Why a name or an id did not find exactly one entity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LookupError {
    /// No entity has this name or id.
    #[error("no {kind} `{given}`")]
    NotFound {
        /// Kind of entity that was looked for.
        kind: RecordKind,
        /// The name or id that was given.
        given: String,
    },
    /// Several entities have this name, in different workspaces.
    #[error("{count} {kind}s are called `{given}`; give the id")]
    Ambiguous {
        /// Kind of entity that was looked for.
        kind: RecordKind,
        /// The name that was given.
        given: String,
        /// Number of entities of this name.
        count: usize,
    },
}

impl LookupError {
    pub(crate) fn not_found(kind: RecordKind, given: impl fmt::Display) -> LookupError {
        LookupError::NotFound { kind, given: given.to_string() }
    }
}
