//! Lower-case hexadecimal, for keys in files and for digests in JSON rows.

use serde::{Deserialize, Deserializer, Serializer};
use zeroize::Zeroizing;

/// Lower-case hexadecimal digits of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    // Allocated at its final length, so that it never moves: the bytes may be a key.
    let mut text = String::with_capacity(bytes.len() * 2);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    text.extend(digits.filter_map(|digit| char::from_digit(digit.into(), 16)));
    text
}

/// `None` when a character is not a hexadecimal digit or the number of digits is odd.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    // Allocated at its final length, so that it never moves, and wiped on every early return: the
    // bytes may be a key.
    let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
    for [high, low] in pairs {
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    rest.is_empty().then(|| std::mem::take(&mut *bytes))
}

fn digit(character: u8) -> Option<u8> {
    u8::try_from(char::from(character).to_digit(16)?).ok()
}

pub(crate) fn serialize<S: Serializer, T: AsRef<[u8]>>(bytes: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encode(bytes.as_ref()))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: TryFrom<Vec<u8>>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bytes = decode(&text).ok_or_else(|| serde::de::Error::custom("not hexadecimal"))?;
    T::try_from(bytes).map_err(|_| serde::de::Error::custom("wrong number of bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn odd_lengths_and_other_characters_are_refused() {
        for text in ["0", "0g", "é0", " 00"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
        assert_eq!(decode("00fFa1"), Some(vec![0, 0xff, 0xa1]));
    }

    proptest! {
        #[test]
        fn encoded_bytes_decode_to_the_same_bytes(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
