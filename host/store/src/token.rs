//! API tokens: `cfd_<id>_<secret>_<crc>`.
//!
//! The id (12 characters) is public and is used to look up the key. The secret is 32 random bytes
//! in 43 base-62 digits. The checksum (6 digits of CRC-32) lets the host refuse random text without
//! a lookup and lets secret scanners recognise a leaked token. Each token has exactly one spelling.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::secret::Secret;

const PREFIX: &str = "cfd";
const ID_CHARS: usize = 12;
const SECRET_BYTES: usize = 32;
const SECRET_CHARS: usize = 43;
const CRC_CHARS: usize = 6;
const TOKEN_CHARS: usize = PREFIX.len() + ID_CHARS + SECRET_CHARS + CRC_CHARS + 3;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The public part of an API token: 12 characters of `0-9A-Za-z`.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId([u8; ID_CHARS]);

/// Text that is not a key id.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a key id has 12 letters or digits")]
pub struct KeyIdError;

impl KeyId {
    /// No id is less than this one.
    pub(crate) const LEAST: KeyId = KeyId([b'0'; ID_CHARS]);

    fn random() -> Result<KeyId, getrandom::Error> {
        let mut id = [0; ID_CHARS];
        let mut filled = 0;
        let mut pool = [0; 32];
        while filled < ID_CHARS {
            getrandom::fill(&mut pool)?;
            // 248 is the largest multiple of 62 that fits a byte. Bytes above it are skipped, else
            // some digits would be more likely than others.
            let fair = pool.iter().filter(|byte| **byte < 248);
            for (place, byte) in id.iter_mut().skip(filled).zip(fair) {
                *place = digit(u32::from(*byte) % 62);
                filled += 1;
            }
        }
        Ok(KeyId(id))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        // The bytes are ASCII letters and digits, so the conversion cannot fail.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8; ID_CHARS] {
        &self.0
    }
}

impl FromStr for KeyId {
    type Err = KeyIdError;

    fn from_str(text: &str) -> Result<KeyId, KeyIdError> {
        let bytes: [u8; ID_CHARS] = text.as_bytes().try_into().map_err(|_| KeyIdError)?;
        if bytes.iter().all(u8::is_ascii_alphanumeric) { Ok(KeyId(bytes)) } else { Err(KeyIdError) }
    }
}

impl TryFrom<String> for KeyId {
    type Error = KeyIdError;

    fn try_from(text: String) -> Result<KeyId, KeyIdError> {
        text.parse()
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> String {
        id.as_str().to_owned()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({})", self.as_str())
    }
}

/// A parsed token: the id to look up, and the secret to check against the stored proof.
pub(crate) struct Token {
    pub(crate) id: KeyId,
    pub(crate) secret: Zeroizing<[u8; SECRET_BYTES]>,
}

impl Token {
    pub(crate) fn random() -> Result<Token, getrandom::Error> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(secret.as_mut())?;
        Ok(Token { id: KeyId::random()?, secret })
    }

    /// The only text form of this token.
    pub(crate) fn to_text(&self) -> Secret {
        let mut text = Vec::with_capacity(TOKEN_CHARS);
        text.extend_from_slice(PREFIX.as_bytes());
        text.push(b'_');
        text.extend_from_slice(&self.id.0);
        text.push(b'_');
        text.extend_from_slice(encode_secret(&self.secret).as_ref());
        let crc = encode_crc(crc32fast::hash(&text));
        text.push(b'_');
        text.extend_from_slice(&crc);
        Secret::new(text)
    }

    /// Parses a token. `None` for any text that [`Token::to_text`] does not produce.
    pub(crate) fn parse(text: &str) -> Option<Token> {
        // With ASCII text only, the byte offsets below are also character offsets.
        if text.len() != TOKEN_CHARS || !text.is_ascii() {
            return None;
        }
        let (body, crc) = text.split_at_checked(TOKEN_CHARS - CRC_CHARS - 1)?;
        if crc.as_bytes() != [b"_".as_slice(), &encode_crc(crc32fast::hash(body.as_bytes()))].concat() {
            return None;
        }
        let rest = body.strip_prefix(PREFIX)?.strip_prefix('_')?;
        let (id, rest) = rest.split_at_checked(ID_CHARS)?;
        let secret = decode_secret(rest.strip_prefix('_')?.as_bytes())?;
        Some(Token { id: id.parse().ok()?, secret })
    }
}

/// The digit for a value below 62.
fn digit(value: u32) -> u8 {
    DIGITS.get(value as usize).copied().unwrap_or(b'0')
}

fn encode_crc(crc: u32) -> [u8; CRC_CHARS] {
    let mut digits = [b'0'; CRC_CHARS];
    let mut rest = crc;
    for digit in digits.iter_mut().rev() {
        *digit = self::digit(rest % 62);
        rest /= 62;
    }
    digits
}

/// Base 62, most significant digit first, padded with zeros to the fixed length.
fn encode_secret(secret: &[u8; SECRET_BYTES]) -> Zeroizing<[u8; SECRET_CHARS]> {
    let mut number = Zeroizing::new(*secret);
    let mut digits = Zeroizing::new([b'0'; SECRET_CHARS]);
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in number.iter_mut() {
            let value = remainder * 256 + u32::from(*byte);
            *byte = (value / 62) as u8;
            remainder = value % 62;
        }
        *digit = self::digit(remainder);
    }
    digits
}

/// The reverse of [`encode_secret`]. `None` for other characters, other lengths and numbers of 2²⁵⁶
/// and more.
fn decode_secret(digits: &[u8]) -> Option<Zeroizing<[u8; SECRET_BYTES]>> {
    if digits.len() != SECRET_CHARS {
        return None;
    }
    // Runs once per request, so it computes with 32-bit words instead of bytes, the most
    // significant word first.
    let mut number = Zeroizing::new([0_u32; SECRET_BYTES / 4]);
    for digit in digits {
        let mut carry = u64::from(value_of(*digit)?);
        for part in number.iter_mut().rev() {
            let value = u64::from(*part) * 62 + carry;
            *part = value as u32;
            carry = value >> 32;
        }
        if carry != 0 {
            return None;
        }
    }
    let mut secret = Zeroizing::new([0; SECRET_BYTES]);
    for (bytes, part) in secret.chunks_exact_mut(4).zip(number.iter()) {
        bytes.copy_from_slice(&part.to_be_bytes());
    }
    Some(secret)
}

/// The reverse of [`digit`].
fn value_of(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'Z' => Some(digit - b'A' + 10),
        b'a'..=b'z' => Some(digit - b'a' + 36),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text_of(token: &Token) -> String {
        String::from_utf8(token.to_text().expose().to_vec()).unwrap()
    }

    #[test]
    fn a_token_has_the_documented_shape() {
        let text = text_of(&Token::random().unwrap());
        let parts: Vec<&str> = text.split('_').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [3, 12, 43, 6]);
        assert_eq!(parts[0], "cfd");
    }

    #[test]
    fn digits_read_back() {
        for value in 0..62 {
            assert_eq!(value_of(digit(value)).map(u32::from), Some(value));
        }
        assert_eq!((0..=u8::MAX).filter(|byte| value_of(*byte).is_some()).count(), 62);
    }

    #[test]
    fn the_largest_secret_fits_and_the_next_number_does_not() {
        let largest = encode_secret(&[0xff; 32]);
        assert_eq!(decode_secret(largest.as_ref()).unwrap().as_ref(), &[0xff; 32]);
        let mut next = *largest;
        let last = next.last_mut().unwrap();
        *last = DIGITS[DIGITS.iter().position(|d| d == last).unwrap() + 1];
        assert!(decode_secret(&next).is_none());
        assert!(decode_secret(&[b'z'; 43]).is_none());
    }

    proptest! {
        #[test]
        fn every_token_parses_to_the_same_token(id in "[0-9A-Za-z]{12}", secret: [u8; 32]) {
            let token = Token { id: id.parse().unwrap(), secret: Zeroizing::new(secret) };
            let read = Token::parse(&text_of(&token)).unwrap();
            prop_assert_eq!(read.id, token.id);
            prop_assert_eq!(*read.secret, secret);
        }

        #[test]
        fn one_changed_character_is_refused(secret: [u8; 32], at in 0..TOKEN_CHARS, to in "[ -~]") {
            let token = Token { id: "abcdefghijkl".parse().unwrap(), secret: Zeroizing::new(secret) };
            let text = text_of(&token);
            let mut changed = text.clone();
            changed.replace_range(at..=at, &to);
            prop_assert_eq!(Token::parse(&changed).is_some(), changed == text);
        }

        #[test]
        fn a_parsed_token_is_written_the_same_way(text in "(cfd_)?\\PC{0,80}") {
            if let Some(token) = Token::parse(&text) {
                prop_assert_eq!(text_of(&token), text);
            }
        }
    }
}
