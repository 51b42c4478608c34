//! What a source gave: a key or a passphrase, before the store it belongs to is known.

use std::fmt;

use zeroize::Zeroizing;

use super::source::{decode_key, stretch};
use super::{RootKey, RootKeyError, RootKeyId, RootKeyRecord, Stretching};
use crate::hex;
use crate::secret::Secret;

/// A root key, or a passphrase that becomes a root key with the salt of a store.
pub struct RootKeyMaterial(Material);

enum Material {
    Key(RootKey),
    Passphrase(Secret),
}

const PASSPHRASE: &str = "passphrase ";

impl RootKeyMaterial {
    pub(crate) fn of_key(key: RootKey) -> RootKeyMaterial {
        RootKeyMaterial(Material::Key(key))
    }

    pub(crate) fn of_passphrase(passphrase: Secret) -> RootKeyMaterial {
        RootKeyMaterial(Material::Passphrase(passphrase))
    }

    /// As text, for the one place it is sent to: the control socket in the data directory.
    pub fn expose(&self) -> Zeroizing<String> {
        match &self.0 {
            Material::Key(key) => key.to_hex(),
            Material::Passphrase(words) => {
                // In hexadecimal, because a passphrase is a sequence of bytes that need not be
                // UTF-8.
                let digits = Zeroizing::new(hex::encode(words.expose()));
                let mut text = Zeroizing::new(String::with_capacity(PASSPHRASE.len() + digits.len()));
                text.push_str(PASSPHRASE);
                text.push_str(&digits);
                text
            }
        }
    }

    /// The reverse of [`RootKeyMaterial::expose`].
    ///
    /// # Errors
    /// See [`RootKeyError`]: the same checks as for a source.
    pub fn parse(text: &str) -> Result<RootKeyMaterial, RootKeyError> {
        match text.strip_prefix(PASSPHRASE) {
            Some(digits) => {
                let words = hex::decode(digits).ok_or(RootKeyError::NotAKey)?;
                Ok(Self::of_passphrase(Secret::new(words)))
            }
            None => decode_key(&Secret::from(text.to_owned())).map(Self::of_key),
        }
    }

    /// The root key for a store: stretches the passphrase with the store's parameters. `stretching`
    /// is `None` for a store made with a plain key.
    pub(crate) fn to_key(&self, stretching: Option<&Stretching>) -> Result<RootKey, RootKeyError> {
        match (&self.0, stretching) {
            (Material::Key(key), None) => Ok(key.clone()),
            (Material::Passphrase(words), Some(how)) => stretch(words, how),
            (Material::Passphrase(_), None) => Err(RootKeyError::OtherKind { store_has_passphrase: false }),
            (Material::Key(_), Some(_)) => Err(RootKeyError::OtherKind { store_has_passphrase: true }),
        }
    }

    /// The root key that this record describes; `None` when this is another key.
    pub(crate) fn key_of(&self, record: &RootKeyRecord) -> Result<Option<RootKey>, RootKeyError> {
        match self.to_key(record.stretching.as_ref()) {
            Ok(key) => Ok(key.matches(record).then_some(key)),
            Err(RootKeyError::OtherKind { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The root key of a new store, with fresh stretching parameters for a passphrase.
    pub(crate) fn to_new_key(&self) -> Result<(RootKey, Option<Stretching>), RootKeyError> {
        let stretching = match &self.0 {
            Material::Key(_) => None,
            Material::Passphrase(_) => Some(Stretching::random()?),
        };
        Ok((self.to_key(stretching.as_ref())?, stretching))
    }

    /// The key, if this is one and no passphrase.
    pub(crate) fn plain_key(&self) -> Option<&RootKey> {
        match &self.0 {
            Material::Key(key) => Some(key),
            Material::Passphrase(_) => None,
        }
    }

    /// Id of the key. `None` for a passphrase, whose key depends on the store's salt.
    pub fn id(&self) -> Option<RootKeyId> {
        match &self.0 {
            Material::Key(key) => Some(key.id()),
            Material::Passphrase(_) => None,
        }
    }
}

impl fmt::Debug for RootKeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootKeyMaterial(..)")
    }
}
