//! `Name`: the name of a workspace, member, intern or key, chosen by people.
//!
//! A name is checked once by [`Name::parse`] and trusted afterwards. The rules keep a name
//! printable on one line and different from every id, because every command takes a name or an id
//! in the same place.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Longest name, in Unicode scalar values.
const NAME_CHARS_MAX: usize = 64;

/// A valid name: 1 to 64 characters, no control characters, no space at either end, not a UUID. Clones share
/// the text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// Why a text is not a [`Name`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a name must not be empty")]
    Empty,
    /// The text has more than 64 characters.
    #[error("a name has at most 64 characters, this one has {chars}")]
    TooLong {
        /// Number of characters in the text.
        chars: usize,
    },
    /// A control or line-breaking character.
    #[error("a name must not contain control characters")]
    ControlCharacter,
    /// White space first or last, which is invisible in a listing.
    #[error("a name must not begin or end with white space")]
    OuterSpace,
    /// The text is a UUID. In a command it could be meant as a name or as an id.
    #[error("a name must not have the form of a UUID")]
    LooksLikeId,
}

impl Name {
    /// Checks a text against the rules. Nothing is trimmed or changed.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn parse(text: &str) -> Result<Name, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        let chars = text.chars().count();
        if chars > NAME_CHARS_MAX {
            return Err(NameError::TooLong { chars });
        }
        if text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
            return Err(NameError::ControlCharacter);
        }
        if text.trim() != text {
            return Err(NameError::OuterSpace);
        }
        if Uuid::try_parse(text).is_ok() {
            return Err(NameError::LooksLikeId);
        }
        Ok(Name(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        Name::parse(text)
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Name, NameError> {
        Name::parse(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0.as_ref().to_owned()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_rule_has_its_refusal() {
        let long = "x".repeat(65);
        let cases = [
            ("", NameError::Empty),
            (long.as_str(), NameError::TooLong { chars: 65 }),
            ("a\nb", NameError::ControlCharacter),
            ("a\u{7f}", NameError::ControlCharacter),
            (" a", NameError::OuterSpace),
            ("a\u{a0}", NameError::OuterSpace),
            ("67e55044-10b1-426f-9247-bb680e5fe0c8", NameError::LooksLikeId),
            ("67E5504410B1426F9247BB680E5FE0C8", NameError::LooksLikeId),
        ];
        for (text, refusal) in cases {
            assert_eq!(Name::parse(text), Err(refusal), "{text:?}");
        }
    }

    #[test]
    fn a_name_may_have_sixty_four_characters_of_any_script() {
        assert!(Name::parse(&"é".repeat(64)).is_ok());
        assert!(Name::parse("Team A (eu)").is_ok());
    }

    proptest! {
        #[test]
        fn parsing_never_changes_the_text(text in "\\PC{0,80}") {
            if let Ok(name) = Name::parse(&text) {
                prop_assert_eq!(name.as_str(), text);
            }
        }
    }
}
