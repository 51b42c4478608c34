//! Names of secrets (interface.md 2.2).

use std::fmt;
use std::str::FromStr;

/// The longest name, in characters (all of them ASCII).
const LENGTH_MAX: usize = 255;

/// A name: lower-case letters, digits and single underscores, a letter first, no underscore last.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SecretName(Box<str>);

/// Text that is not a secret's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a secret's name has 1 to 255 lower-case letters, digits and single underscores, starts with a letter and does not end with an underscore"
)]
pub struct SecretNameError;

impl SecretName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<SecretName, SecretNameError> {
        let bytes = text.as_bytes();
        let alphabet = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        let good = (1..=LENGTH_MAX).contains(&bytes.len())
            && bytes.iter().all(alphabet)
            && bytes.first().is_some_and(u8::is_ascii_lowercase)
            && bytes.last() != Some(&b'_')
            && !text.contains("__");
        if good { Ok(SecretName(text.into())) } else { Err(SecretNameError) }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
