//! Secret values on their way from the command line, or from a file, to the process that holds the store. A value in JSON is
//! decoded from its text, which is wiped, directly into a buffer that is wiped too. The JSON parser only finds its
//! position, because a parser that decodes texts uses buffers that are not wiped.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

/// Text that is never displayed and is wiped when dropped. It is only sent over the socket of the
/// data directory, to which only the owner of that directory can connect.
#[derive(Clone, Default)]
pub struct Sensitive(Zeroizing<String>);

impl Sensitive {
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<Sensitive> for Zeroizing<String> {
    fn from(text: Sensitive) -> Self {
        text.0
    }
}

impl From<Zeroizing<String>> for Sensitive {
    fn from(text: Zeroizing<String>) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Sensitive(..)")
    }
}

impl Serialize for Sensitive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Reads from JSON that is in memory as a whole, from nothing else.
impl<'de> Deserialize<'de> for Sensitive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?;
        unescape(json.get()).map(Self).ok_or_else(|| D::Error::custom("not a text"))
    }
}

/// Decodes a JSON string; `None` for other JSON and for unpaired surrogates. The buffer never
/// grows, because an escape is never shorter than the character it encodes.
pub(crate) fn unescape(json: &str) -> Option<Zeroizing<String>> {
    let mut rest = json.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = Zeroizing::new(String::with_capacity(rest.len()));
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let kind = escape.chars().next()?;
        rest = escape.get(kind.len_utf8()..)?;
        text.push(match kind {
            '"' | '\\' | '/' => kind,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let (character, after) = code_point(rest)?;
                rest = after;
                character
            }
            _ => return None,
        });
    }
    text.push_str(rest);
    Some(text)
}

/// The character for the four digits after `\u`, or for a surrogate pair of such escapes, and the
/// rest of the text.
fn code_point(digits: &str) -> Option<(char, &str)> {
    let (unit, rest) = code_unit(digits)?;
    let (low, after) = match rest.strip_prefix("\\u").and_then(code_unit) {
        Some((low, after)) if (0xd800..0xdc00).contains(&unit) => (Some(low), after),
        _ => (None, rest),
    };
    let units = [unit, low.unwrap_or_default()];
    let units = units.get(..1 + usize::from(low.is_some()))?;
    let mut characters = char::decode_utf16(units.iter().copied());
    let character = characters.next()?.ok()?;
    characters.next().is_none().then_some((character, after))
}

fn code_unit(digits: &str) -> Option<(u16, &str)> {
    let (digits, rest) = digits.split_at_checked(4)?;
    let unit = u16::from_str_radix(digits, 16).ok()?;
    // `from_str_radix` would accept a `+` sign.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some((unit, rest))
}

#[cfg(test)]
mod tests {
    use serde::de::value::{BorrowedStrDeserializer, Error};

    use super::*;

    fn read(json: &str) -> Option<String> {
        serde_json::from_str(json).ok().map(|text: Sensitive| text.expose().to_owned())
    }

    #[test]
    fn a_value_is_decoded_as_the_json_parser_does() {
        for text in ["", "plain", "é\u{1f600}", "\"\\/\u{8}\u{c}\n\r\t\0", "\\u0041", "x\u{fffd}"] {
            let sent = Sensitive::from(Zeroizing::new(text.to_owned()));
            assert_eq!(read(&serde_json::to_string(&sent).unwrap()).as_deref(), Some(text));
        }
        for json in [
            r#""\u00e9\ud83d\ude00\/""#,
            r#" "\b\f" "#,
            r#""\ud83d""#,
            r#""\ude00\ud83d""#,
            r#""\u+041""#,
            r#""\x""#,
        ] {
            assert_eq!(read(json), serde_json::from_str::<String>(json).ok(), "{json}");
        }
        for json in ["1", "null", "[\"a\"]", "{\"a\":\"b\"}", "\"a", "a"] {
            assert_eq!(read(json), None, "{json}");
        }
    }

    #[test]
    fn a_value_is_not_taken_from_a_parser_that_has_decoded_it() {
        let decoded = BorrowedStrDeserializer::<Error>::new("CANARY");
        assert!(Sensitive::deserialize(decoded).is_err());
        assert!(serde_json::from_reader::<_, Sensitive>("\"CANARY\"".as_bytes()).is_err());
    }

    #[test]
    fn the_buffer_of_a_value_never_grows() {
        let json = serde_json::to_string(&"\u{1}é\"".repeat(500)).unwrap();
        let text = unescape(&json).unwrap();
        assert_eq!(text.capacity(), json.len() - 2);
    }
}
