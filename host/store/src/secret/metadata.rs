//! What may be shown about a secret.

use super::{Fingerprint, Hosts, SecretName};

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
