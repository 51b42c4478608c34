//! The escapes of JSON strings.

use super::JsonError;

/// The text of a string whose escapes are well formed.
///
/// # Errors
///
/// When one half of a surrogate pair stands alone.
pub(super) fn unescape(json: &str) -> Result<String, JsonError> {
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut chars = escape.chars();
        let letter = chars.next().ok_or(JsonError)?;
        rest = chars.as_str();
        text.push(match letter {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let (character, after) = unicode(rest)?;
                rest = after;
                character
            }
            // A quote, a slash or a backslash.
            other => other,
        });
    }
    text.push_str(rest);
    Ok(text)
}

/// The character whose code comes first in the text, and the text after it.
fn unicode(text: &str) -> Result<(char, &str), JsonError> {
    let (high, rest) = code(text)?;
    if let Some(character) = char::from_u32(high) {
        return Ok((character, rest));
    }
    let (low, rest) = code(rest.strip_prefix("\\u").ok_or(JsonError)?)?;
    let pair = char::decode_utf16([high, low].map(|unit| unit as u16)).next();
    match pair {
        Some(Ok(character)) => Ok((character, rest)),
        _ => Err(JsonError),
    }
}

fn code(text: &str) -> Result<(u32, &str), JsonError> {
    let (digits, rest) = text.split_at_checked(4).ok_or(JsonError)?;
    let code = u32::from_str_radix(digits, 16).map_err(|_| JsonError)?;
    Ok((code, rest))
}
