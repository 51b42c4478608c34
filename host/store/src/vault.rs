//! The vault: secrets bound to exact host names, one vault per workspace, per intern, and one of the operator.
//!
//! Names, hosts and values are parsed once at the edge into types that cannot be wrong; what goes to the disk
//! and comes back is decided in `rows`, what may change in `changes`.

mod host_name;
mod secret_name;
mod secret_value;

use crate::hex;
use crate::ids::{InternId, WorkspaceId};

pub use host_name::{HostName, HostNameError, Hosts, HostsError};
pub use secret_name::{SecretName, SecretNameError};
pub use secret_value::{SecretValue, SecretValueError};

/// Which vault.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum VaultId {
    /// A workspace's own.
    Workspace(WorkspaceId),
    /// An intern's own.
    Intern(InternId),
    /// The operator's: provider keys. No client reaches it.
    Operator,
}

/// HMAC-SHA-256 of a value under its vault's fingerprint key; comparable within one vault only
/// (interface.md 2.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256:{}", hex::encode(&self.0))
    }
}

/// What is shown of a secret; the value is never among it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretMetadata {
    /// Its name, unique in its vault.
    pub name: SecretName,
    /// Where it may be released to; `None` for a legacy secret, which is released nowhere.
    pub hosts: Option<Hosts>,
    /// `None` for a legacy secret.
    pub fingerprint: Option<Fingerprint>,
    /// When its name was first stored, Unix milliseconds. Replacing the value keeps it.
    pub created_at_ms: u64,
}

/// Where an effective secret comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EffectiveScope {
    /// The intern's own vault.
    Intern,
    /// The workspace's, because the intern has none of this name.
    Workspace,
}

/// A secret as an intern has it: the winner among its own and the workspace's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EffectiveSecret {
    /// Where it comes from.
    pub scope: EffectiveScope,
    /// The winner.
    pub metadata: SecretMetadata,
}

/// A part of a listing in the byte order of names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Whether at least one more follows.
    pub has_more: bool,
}

/// A secret to store.
#[derive(Debug)]
pub struct NewSecret {
    /// The vault it goes to.
    pub vault: VaultId,
    /// Its name.
    pub name: SecretName,
    /// Where it may be released to.
    pub hosts: Hosts,
    /// The value.
    pub value: SecretValue,
}
