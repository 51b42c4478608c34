//! The root key: its sources, the checks on its form, and how a store recognises it.
//!
//! All other keys are random and wrapped under this key. It is read from one configured source,
//! checked strictly, and has an id, so that a wrong key is reported as "X given, Y needed" and not
//! as a failed decryption. A key is generated only for a new store, and only into a file.

mod material;
mod source;
mod wrap_key;

use std::fmt;
use std::str::FromStr;

use argon2::{Algorithm, Argon2, Params, Version};
use hkdf::Hkdf;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use material::RootKeyMaterial;
pub(crate) use source::write_file;
pub use source::{PassphraseSource, RootKeyError, RootKeySource, SourceError, Variable};
pub(crate) use wrap_key::{KeyRing, WrapKey, WrapKeys};

use crate::hex;
use crate::secret::Secret;

pub(crate) const ROOT_KEY_BYTES: usize = 32;
/// A random key of 32 bytes has about 30 different byte values; fewer than eight mean a typed
/// pattern.
const DISTINCT_BYTES_MIN: usize = 8;

/// Public id of a root key: 16 hexadecimal digits derived from it. The key cannot be computed from
/// it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct RootKeyId([u8; 8]);

impl fmt::Display for RootKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl FromStr for RootKeyId {
    type Err = String;

    fn from_str(text: &str) -> Result<RootKeyId, String> {
        let bytes = hex::decode(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(RootKeyId).ok_or_else(|| "not the id of a root key".to_owned())
    }
}

impl TryFrom<String> for RootKeyId {
    type Error = String;

    fn try_from(text: String) -> Result<RootKeyId, String> {
        text.parse()
    }
}

impl From<RootKeyId> for String {
    fn from(id: RootKeyId) -> String {
        id.to_string()
    }
}

/// Parameters that turn a passphrase into a root key (Argon2id). Stored in the header, because the
/// same parameters must be used at every start.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub(crate) struct Stretching {
    #[serde(with = "hex")]
    salt: [u8; 16],
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

impl Stretching {
    /// A fresh salt. 64 MiB and three passes take about a tenth of a second, once per start.
    pub(crate) fn random() -> Result<Stretching, getrandom::Error> {
        let mut salt = [0; 16];
        getrandom::fill(&mut salt)?;
        Ok(Stretching { salt, memory_kib: 64 * 1024, passes: 3, lanes: 1 })
    }
}

/// What the header of a store contains about its root key.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub(crate) struct RootKeyRecord {
    pub(crate) id: RootKeyId,
    /// A second derived value. The id is printed in logs and commands; this check value is only in
    /// the header.
    #[serde(with = "hex")]
    check: [u8; 8],
    pub(crate) stretching: Option<Stretching>,
}

impl RootKeyRecord {
    /// Whether this is the record of a key, not of a passphrase.
    pub(crate) fn is_plain(&self) -> bool {
        self.stretching.is_none()
    }
}

#[derive(Clone)]
pub(crate) struct RootKey(Zeroizing<[u8; ROOT_KEY_BYTES]>);

impl RootKey {
    pub(crate) fn random() -> Result<RootKey, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; ROOT_KEY_BYTES]);
        getrandom::fill(bytes.as_mut())?;
        Ok(RootKey(bytes))
    }

    /// Accepts exactly 32 bytes that look random.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<RootKey, RootKeyError> {
        let found = bytes.len();
        let bytes: &[u8; ROOT_KEY_BYTES] =
            bytes.try_into().map_err(|_| RootKeyError::WrongLength { bytes: found })?;
        let mut seen = [false; 256];
        for byte in bytes {
            if let Some(place) = seen.get_mut(usize::from(*byte)) {
                *place = true;
            }
        }
        if seen.iter().filter(|seen| **seen).count() < DISTINCT_BYTES_MIN {
            return Err(RootKeyError::LowDiversity);
        }
        if bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
            return Err(RootKeyError::LooksLikeText);
        }
        Ok(RootKey(Zeroizing::new(*bytes)))
    }

    pub(crate) fn from_passphrase(passphrase: &Secret, how: &Stretching) -> Result<RootKey, RootKeyError> {
        let params = Params::new(how.memory_kib, how.passes, how.lanes, Some(ROOT_KEY_BYTES))
            .map_err(|_| RootKeyError::Stretching)?;
        let mut bytes = Zeroizing::new([0; ROOT_KEY_BYTES]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(passphrase.expose(), &how.salt, bytes.as_mut())
            .map_err(|_| RootKeyError::Stretching)?;
        Ok(RootKey(bytes))
    }

    pub(crate) fn id(&self) -> RootKeyId {
        RootKeyId(*self.derive(b"root-id"))
    }

    pub(crate) fn record(&self, stretching: Option<Stretching>) -> RootKeyRecord {
        RootKeyRecord { id: self.id(), check: *self.derive(b"kcv/v1"), stretching }
    }

    pub(crate) fn matches(&self, record: &RootKeyRecord) -> bool {
        self.id() == record.id && bool::from(self.derive::<8>(b"kcv/v1").ct_eq(&record.check))
    }

    /// The key derived for wrapping key records, and used for nothing else.
    pub(crate) fn wrap_key(&self) -> WrapKey {
        WrapKey::new(self.id(), self.derive(b"wrap/v1"))
    }

    pub(crate) fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex::encode(self.0.as_ref()))
    }

    fn derive<const N: usize>(&self, info: &[u8]) -> Zeroizing<[u8; N]> {
        let mut output = Zeroizing::new([0; N]);
        #[expect(
            clippy::expect_used,
            reason = "a 32-byte key and outputs of at most 32 bytes are always accepted"
        )]
        Hkdf::<Sha256>::from_prk(self.0.as_ref())
            .expect("the root key is as long as the hash")
            .expand(info, output.as_mut())
            .expect("the output is shorter than the limit");
        output
    }
}

#[cfg(test)]
mod tests;
