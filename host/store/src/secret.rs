//! What a secret consists of: its name, hosts, value and fingerprint; and [`Secret`], bytes that are
//! never shown, copied or compared by accident. Names, hosts and values are parsed once, into types
//! that cannot hold invalid ones.
//!
//! [`Secret`] has no `Display`, `Clone`, `Serialize` or `Eq`, and its `Debug` prints nothing of the
//! content. [`Secret::expose`] is the only way to read the bytes, so that a search for that word
//! finds every place that reads a secret value.

mod fingerprint;
mod host_name;
mod metadata;
mod name;
mod value;

use std::fmt;

use zeroize::Zeroizing;

pub use fingerprint::{Fingerprint, FingerprintPrefix};
pub use host_name::{HostName, HostNameError, Hosts, HostsError};
pub use metadata::SecretMetadata;
pub use name::{SecretName, SecretNameError};
pub use value::{SecretValue, SecretValueError};

/// Secret bytes, wiped when dropped.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of the vector, which becomes the wiped buffer; nothing is copied.
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    /// The bytes. Keep the borrow short, and copy the bytes only into buffers that are wiped too.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Number of bytes. The length is not treated as secret.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(text.into_bytes())
    }
}

impl From<Zeroizing<Vec<u8>>> for Secret {
    fn from(bytes: Zeroizing<Vec<u8>>) -> Secret {
        Secret(bytes)
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Secret {
        Secret::new(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_neither_content_nor_length() {
        let secret = Secret::from("sk-live-canary".to_owned());
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(secret.expose(), b"sk-live-canary");
    }
}
