//! Values of secrets.

use std::fmt;

use zeroize::Zeroizing;

/// Longest value, in characters (Unicode scalar values).
const CHARS_MAX: usize = 65_536;

/// A value: 1 to 65,536 characters, kept byte for byte and wiped when dropped.
pub struct SecretValue(Zeroizing<String>);

/// A value that is empty or too long.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a secret's value has 1 to 65536 characters")]
pub struct SecretValueError;

impl SecretValue {
    /// Takes ownership of the text. Nothing is trimmed or normalised.
    ///
    /// # Errors
    /// The text is empty or too long. It is wiped.
    pub fn new(text: Zeroizing<String>) -> Result<SecretValue, SecretValueError> {
        // Counts no further than one past the limit, so that a very long text costs no more.
        let chars = text.chars().take(CHARS_MAX + 1).count();
        if (1..=CHARS_MAX).contains(&chars) { Ok(SecretValue(text)) } else { Err(SecretValueError) }
    }

    /// The bytes. Keep the borrow short, and copy the bytes only into buffers that are wiped too.
    pub(crate) fn expose(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(..)")
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::SecretValue;

    #[test]
    fn characters_are_counted_and_bytes_are_kept() {
        let is_value = |text: String| SecretValue::new(Zeroizing::new(text)).is_ok();
        assert!(!is_value(String::new()));
        for character in ["a", "\0", "é", "\u{1f600}"] {
            assert!(is_value(character.to_owned()), "{character:?}");
            assert!(is_value(character.repeat(65_536)), "{character:?}");
            assert!(!is_value(character.repeat(65_537)), "{character:?}");
        }
        let value = SecretValue::new(Zeroizing::new(" e\u{301}\r\n".to_owned())).unwrap();
        assert_eq!(value.expose(), " e\u{301}\r\n".as_bytes());
        assert_eq!(format!("{value:?}"), "SecretValue(..)");
    }
}
