//! The vault: secrets bound to exact host names. Each workspace and each intern has a vault, and
//! the operator has one.
//!
//! Names, hosts and values are parsed once, into types that cannot hold invalid ones. Their rows
//! are in `stored` and `crate::rows`, their mutations in `crate::changes`.

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

pub(crate) use access::{VaultReader, VaultSnapshot};
pub(crate) use damage::Damage;
pub use damage::{VaultFinding, VaultPart};
pub(crate) use head::VaultHead;
pub use host_name::{HostName, HostNameError, Hosts, HostsError};
pub(crate) use keys::{NONCE_BYTES, Nonce, SEALED_BYTES, VaultKeys};
pub use quota::{QuotaExceeded, QuotaMeasure, QuotaScope, VaultQuota};
pub(crate) use quota::{Quotas, VaultSize, check as check_quota};
pub use release::{Purpose, Release, ReleaseError, ReleaseRefusal, ReleaseScope};
pub use secret_name::{SecretName, SecretNameError};
pub use secret_value::{SecretValue, SecretValueError};
pub(crate) use stored::{Stored, head_key, head_range, name_in, secret_key, vault_of_head};
pub use verify::VaultReport;

/// Identifies a vault by its owner.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum VaultId {
    /// The vault of a workspace.
    Workspace(WorkspaceId),
    /// The vault of an intern.
    Intern(InternId),
    /// The vault of the operator, with provider keys. Clients have no access to it.
    Operator,
}

/// Length of an encoded vault id: one byte for its kind, 16 for the UUID of its owner.
pub(crate) const VAULT_ID_BYTES: usize = 17;

impl VaultId {
    /// The byte for the kind, which is the same in row keys and associated data.
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

    /// The reverse of [`VaultId::to_bytes`]; `None` for other bytes.
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

/// HMAC-SHA-256 of a value under its vault's fingerprint key. Equal values have equal fingerprints
/// within one vault only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// A prefix that is long enough to distinguish values in the audit log.
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

/// The first eight hexadecimal digits of a fingerprint.
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

/// Everything about a secret that may be shown. Does not contain the value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretMetadata {
    /// Its name, unique in its vault.
    pub name: SecretName,
    /// The hosts it may be released to; `None` for a legacy secret, which cannot be released.
    pub hosts: Option<Hosts>,
    /// Fingerprint of the value; `None` for a legacy secret.
    pub fingerprint: Option<Fingerprint>,
    /// When its name was first stored, Unix milliseconds. Replacing the value does not change it.
    pub created_at_ms: u64,
}

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

/// A part of a listing in the byte order of names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretPage<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Whether more entries follow.
    pub has_more: bool,
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
