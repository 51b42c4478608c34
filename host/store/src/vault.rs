//! The vault: secrets bound to exact host names. Each workspace and each intern has a vault, and
//! the operator has one.
//!
//! Names, hosts and values are the types of `crate::secret`. The rows of secrets are in `stored` and
//! `head`, their keys in `keys`, their mutations in `crate::changes`.

mod access;
mod damage;
mod head;
mod keys;
pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod stored;
pub(crate) mod verify;

use crate::ids::VaultId;
use crate::secret::{Hosts, SecretMetadata, SecretName, SecretValue};

pub(crate) use access::{VaultReader, VaultSnapshot};
pub(crate) use damage::Damage;
pub(crate) use head::VaultHead;
pub(crate) use keys::{NONCE_BYTES, Nonce, SEALED_BYTES, VaultKeys};
pub use release::{BoundSecret, Release, ReleaseError, ReleaseRequest, ReleaseScope};
#[cfg(feature = "postgres")]
pub(crate) use stored::vaults_of;
pub(crate) use stored::{Stored, head_key, head_range, name_in, secret_key, vault_of_head};

/// The vault that an effective secret comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EffectiveScope {
    /// The intern's vault.
    Intern,
    /// The workspace's vault, because the intern has no secret of this name.
    Workspace,
}

/// A secret that an intern can use: its own, or the workspace's if it has none of this name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EffectiveSecret {
    /// The vault it comes from.
    pub scope: EffectiveScope,
    /// The secret.
    pub metadata: SecretMetadata,
}

/// A secret of an older system, imported without hosts.
#[derive(Debug)]
pub struct LegacySecret {
    /// Its name.
    pub name: SecretName,
    /// The value.
    pub value: SecretValue,
    /// Creation time in the older system, Unix milliseconds.
    pub created_at_ms: Option<u64>,
}

/// A secret to store.
#[derive(Debug)]
pub struct NewSecret {
    /// The vault to store it in.
    pub vault: VaultId,
    /// Its name.
    pub name: SecretName,
    /// The hosts it may be released to.
    pub hosts: Hosts,
    /// The value.
    pub value: SecretValue,
}
