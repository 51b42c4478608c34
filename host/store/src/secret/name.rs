//! Names of secrets.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest name, in characters (all of them ASCII).
const LENGTH_MAX: usize = 255;

/// A name: lower-case letters, digits and single underscores; begins with a letter, does not end
/// with an underscore. Clones share the text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SecretName(Arc<str>);

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::SecretName;

    fn is_name(text: &str) -> bool {
        text.parse::<SecretName>().is_ok_and(|name| name.as_str() == text)
    }

    #[test]
    fn names_follow_the_documented_pattern() {
        for name in ["a", "a1", "a_b", "z9", "copy", &"a".repeat(255)] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(256);
        for text in
            ["", "A", "1a", "_a", "a_", "a__b", "a-b", "a.b", "é", "aé", "a\n", "\na", "a b", "a\0", &long]
        {
            assert!(!is_name(text), "{text:?}");
        }
    }

    /// The same rule written in another way: each underscore is followed by a letter or a digit.
    fn matches(text: &str) -> bool {
        let mut after_underscore = false;
        for (index, byte) in text.bytes().enumerate() {
            let good = match byte {
                b'a'..=b'z' => true,
                b'0'..=b'9' => index > 0,
                b'_' => index > 0 && !after_underscore,
                _ => false,
            };
            if !good {
                return false;
            }
            after_underscore = byte == b'_';
        }
        (1..=255).contains(&text.len()) && !after_underscore
    }

    proptest! {
        #[test]
        fn nearly_valid_names_are_refused(text in "[a-cA1_\\n.-]{0,8}") {
            prop_assert_eq!(is_name(&text), matches(&text));
        }

        #[test]
        fn names_are_accepted(text in "[a-z](_?[a-z0-9]){0,127}") {
            prop_assert!(is_name(&text));
        }
    }
}
