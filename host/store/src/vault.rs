//! The vault: secrets bound to exact host names, one vault per workspace, per intern, and one of the operator.
//!
//! Names, hosts and values are parsed once at the edge into types that cannot be wrong; what goes to the disk
//! and comes back is decided in `rows`, what may change in `changes`.

mod access;
mod damage;
mod head;
mod host_name;
mod keys;
pub(crate) mod list;
mod quota;
pub(crate) mod release;
mod secret_name;
mod secret_value;
pub(crate) mod stored;
pub(crate) mod verify;

use std::fmt;
use std::str::FromStr;

use crate::hex;
use crate::ids::{IdError, InternId, WorkspaceId};

pub(crate) use access::{Access, View};
pub(crate) use damage::Damage;
pub use damage::{VaultFinding, VaultPart};
pub(crate) use head::Head;
pub use host_name::{HostName, HostNameError, Hosts, HostsError};
pub(crate) use keys::{NONCE_BYTES, Nonce, SEALED_BYTES, VaultKeys};
pub use quota::{QuotaExceeded, QuotaMeasure, QuotaScope, VaultQuota};
pub(crate) use quota::{Quotas, VaultSize, check as check_quota};
pub use release::{Purpose, Release, ReleaseError, ReleaseRefusal, ReleaseScope};
pub use secret_name::{SecretName, SecretNameError};
pub use secret_value::{SecretValue, SecretValueError};
pub(crate) use stored::{Stored, head_key, head_range, name_in, secret_key, vault_of_head};
pub use verify::VaultReport;

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

/// Bytes of a vault's id: its kind and the UUID of whose it is.
pub(crate) const VAULT_ID_BYTES: usize = 17;

impl VaultId {
    /// The one byte for the kind, the same in every key and every statement.
    pub(crate) fn kind(self) -> u8 {
        match self {
            VaultId::Workspace(_) => b'w',
            VaultId::Intern(_) => b'i',
            VaultId::Operator => b'o',
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; VAULT_ID_BYTES] {
        let owner = match &self {
            VaultId::Workspace(id) => *id.as_bytes(),
            VaultId::Intern(id) => *id.as_bytes(),
            VaultId::Operator => [0; 16],
        };
        let mut bytes = [self.kind(); VAULT_ID_BYTES];
        if let Some(rest) = bytes.last_chunk_mut() {
            *rest = owner;
        }
        bytes
    }

    /// The reverse of [`VaultId::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<VaultId> {
        let (kind, owner) = bytes.split_first()?;
        let owner: [u8; 16] = owner.try_into().ok()?;
        match kind {
            b'w' => Some(VaultId::Workspace(WorkspaceId::from_bytes(owner))),
            b'i' => Some(VaultId::Intern(InternId::from_bytes(owner))),
            b'o' if owner == [0; 16] => Some(VaultId::Operator),
            _ => None,
        }
    }
}

impl fmt::Display for VaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VaultId::Workspace(id) => write!(f, "workspace/{id}"),
            VaultId::Intern(id) => write!(f, "intern/{id}"),
            VaultId::Operator => f.write_str("operator"),
        }
    }
}

impl FromStr for VaultId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<VaultId, IdError> {
        match text.split_once('/') {
            Some(("workspace", id)) => id.parse().map(VaultId::Workspace),
            Some(("intern", id)) => id.parse().map(VaultId::Intern),
            None if text == "operator" => Ok(VaultId::Operator),
            _ => Err(IdError),
        }
    }
}

/// HMAC-SHA-256 of a value under its vault's fingerprint key; comparable within one vault only
/// (interface.md 2.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// Enough of it to tell two values apart in the audit log.
    pub fn prefix(&self) -> FingerprintPrefix {
        let [a, b, c, d, ..] = self.0;
        FingerprintPrefix([a, b, c, d])
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(&self.0))
    }
}

/// The first eight digits of a fingerprint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FingerprintPrefix([u8; 4]);

impl fmt::Display for FingerprintPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl FromStr for FingerprintPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<FingerprintPrefix, String> {
        let bytes = hex::decode(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(FingerprintPrefix).ok_or_else(|| "not the start of a fingerprint".to_owned())
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

/// A secret of an older system, to take over without hosts.
#[derive(Debug)]
pub struct LegacySecret {
    /// Its name.
    pub name: SecretName,
    /// The value.
    pub value: SecretValue,
    /// When it was made there, Unix milliseconds.
    pub created_at_ms: Option<u64>,
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
