//! What a source gave, before it is known which store it is for.

use std::fmt;

use zeroize::Zeroizing;

use super::source::{decode_key, stretch};
use super::{RootKey, RootKeyError, RootKeyId, RootKeyRecord, Stretching};
use crate::hex;
use crate::secret::Secret;

/// A root key as given, or a passphrase that becomes one with the salt of a store.
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

    /// As text, for the one way it travels: the socket in the data directory.
    pub fn expose(&self) -> Zeroizing<String> {
        match &self.0 {
            Material::Key(key) => key.to_hex(),
            Material::Passphrase(words) => {
                // In digits: a passphrase is bytes, which need not be text.
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
    /// See [`RootKeyError`]: a key that no source would have given.
    pub fn parse(text: &str) -> Result<RootKeyMaterial, RootKeyError> {
        match text.strip_prefix(PASSPHRASE) {
            Some(digits) => {
                let words = hex::decode(digits).ok_or(RootKeyError::NotAKey)?;
                Ok(Self::of_passphrase(Secret::new(words)))
            }
            None => decode_key(&Secret::from(text.to_owned())).map(Self::of_key),
        }
    }

    /// The key that this is for a store stretching passphrases so, or keeping plain keys.
    pub(crate) fn to_key(&self, stretching: Option<&Stretching>) -> Result<RootKey, RootKeyError> {
        match (&self.0, stretching) {
            (Material::Key(key), None) => Ok(key.clone()),
            (Material::Passphrase(words), Some(how)) => stretch(words, how),
            (Material::Passphrase(_), None) => Err(RootKeyError::OtherKind { store_has_passphrase: false }),
            (Material::Key(_), Some(_)) => Err(RootKeyError::OtherKind { store_has_passphrase: true }),
        }
    }

    /// The key of this record, if this is it.
    pub(crate) fn key_of(&self, record: &RootKeyRecord) -> Result<Option<RootKey>, RootKeyError> {
        match self.to_key(record.stretching.as_ref()) {
            Ok(key) => Ok(key.matches(record).then_some(key)),
            Err(RootKeyError::OtherKind { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A key that no store has yet.
    pub(crate) fn to_new_key(&self) -> Result<(RootKey, Option<Stretching>), RootKeyError> {
        let stretching = match &self.0 {
            Material::Key(_) => None,
            Material::Passphrase(_) => Some(Stretching::random()?),
        };
        Ok((self.to_key(stretching.as_ref())?, stretching))
    }

    /// The id of the key; of a passphrase only a store knows it.
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
