//! Fingerprints of values: equal in one vault when the values are equal.

use std::fmt;
use std::str::FromStr;

use crate::hex;

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
