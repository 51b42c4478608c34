//! The spellings in which a server may repeat a value: plain, escaped or encoded.
//!
//! Libraries differ in which characters they escape and in the case of hexadecimal digits. Each row
//! of the table below is what a widespread library does. Rows that do not change a value are
//! skipped for it.

use zeroize::Zeroizing;

/// A way to write a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spelling {
    /// The text itself, with some characters escaped.
    Text(Escape),
    /// Base64, without the characters that also depend on bytes before or after the value. `skip`
    /// is the number of the value's bits that belong to such a character in front: 0, 4 and 2 for
    /// the three alignments.
    Base64 { skip: usize, alphabet: &'static [u8; 64] },
    /// Two hexadecimal digits for each byte.
    Hex { digits: &'static [u8; 16] },
    /// Two bytes for each UTF-16 unit.
    Utf16 { is_big_endian: bool },
}

/// How single characters are escaped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Escape {
    Plain,
    /// JSON: quote, backslash and control characters are always escaped; those in `unicode` as `\u`
    /// and four digits; those outside ASCII if `is_beyond`; the slash as `\/` if `has_slash`.
    Json {
        unicode: u128,
        is_beyond: bool,
        has_slash: bool,
        digits: &'static [u8; 16],
    },
    /// URL: everything but `kept` as `%` and two digits; a space as a plus sign if `has_plus`.
    Percent {
        kept: u128,
        has_plus: bool,
        digits: &'static [u8; 16],
    },
    /// HTML and XML: references by name, decimal number or hexadecimal number.
    Html {
        named: u128,
        decimal: u128,
        hex: u128,
        digits: &'static [u8; 16],
    },
}

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const ALL: u128 = u128::MAX;
const NONE: u128 = 0;
const CONTROLS: u128 = 0xffff_ffff | 1 << 0x7f;
const ALPHANUMERIC: u128 = set(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
const UNRESERVED: u128 = ALPHANUMERIC | set(b"-._~");
/// Characters that JavaScript's `encodeURIComponent` does not escape.
const COMPONENT: u128 = UNRESERVED | set(b"!'()*");
/// Characters that JavaScript's `encodeURI` does not escape.
const WHOLE: u128 = COMPONENT | set(b";/?:@&=+$,#");
/// Characters that the URL standard's form encoding does not escape.
const FORM: u128 = ALPHANUMERIC | set(b"*-._");

const ESCAPES: &[Escape] = &[
    json(NONE, false, false, LOWER),
    json(NONE, true, false, LOWER),             // Python
    json(NONE, false, true, LOWER),             // with `\/`
    json(NONE, true, true, LOWER),              // PHP
    json(set(b"<>&"), false, false, LOWER),     // Go, Rails
    json(set(b"<>&'"), false, false, UPPER),    // PHP with its flags, Django
    json(set(b"<>&'="), false, false, LOWER),   // Gson
    json(set(b"<>&'\"+`"), true, false, UPPER), // .NET
    json(ALL, true, false, LOWER),
    json(ALL, true, false, UPPER),
    percent(UNRESERVED, false, UPPER),
    percent(UNRESERVED, false, LOWER),
    percent(UNRESERVED, true, UPPER),              // Python's `quote_plus`, Go
    percent(UNRESERVED | set(b"/"), false, UPPER), // Python's `quote`
    percent(COMPONENT, false, UPPER),
    percent(COMPONENT, false, LOWER),
    percent(WHOLE, false, UPPER),
    percent(FORM, true, UPPER),               // browsers, Java
    percent(FORM | set(b"!()"), true, LOWER), // .NET
    percent(NONE, false, UPPER),
    percent(NONE, false, LOWER),
    html(set(b"&<>"), NONE, NONE, LOWER),
    html(set(b"&<>\""), NONE, NONE, LOWER),
    html(set(b"&<>\"'"), NONE, NONE, LOWER),       // XML
    html(set(b"&<>\""), set(b"'"), NONE, LOWER),   // PHP, Jinja
    html(set(b"&<>\""), NONE, set(b"'"), LOWER),   // Python, Django
    html(set(b"&<>"), set(b"\"'+"), NONE, LOWER),  // Go
    html(set(b"&<>\""), NONE, set(b"'+"), UPPER),  // .NET
    html(set(b"&<>\""), NONE, set(b"'`="), LOWER), // Handlebars, in lower case
    html(set(b"&<>\""), NONE, set(b"'`="), UPPER),
    html(set(b"&<>\""), set(b"'"), set(b"/`="), UPPER), // Mustache
    html(set(b"&<>\""), NONE, set(b"'/"), LOWER),       // OWASP
    html(NONE, ALL, NONE, LOWER),
    html(NONE, NONE, ALL, LOWER),
    html(NONE, NONE, ALL, UPPER),
];

/// Number of a value's characters that a head is made from. Enough for eight bytes in every
/// spelling: eight bytes of base64 need up to seven bytes.
const HEAD_CHARS: usize = 12;
/// The longest spelling of so many characters, in bytes: a character has up to four bytes, each as `%F4`.
const BEGINNING_BYTES_MAX: usize = 12 * HEAD_CHARS;

const fn json(unicode: u128, is_beyond: bool, has_slash: bool, digits: &'static [u8; 16]) -> Escape {
    Escape::Json { unicode, is_beyond, has_slash, digits }
}

const fn percent(kept: u128, has_plus: bool, digits: &'static [u8; 16]) -> Escape {
    Escape::Percent { kept, has_plus, digits }
}

const fn html(named: u128, decimal: u128, hex: u128, digits: &'static [u8; 16]) -> Escape {
    Escape::Html { named, decimal, hex, digits }
}

const fn set(characters: &[u8]) -> u128 {
    let mut bits = 0;
    let mut rest = characters;
    while let [first, tail @ ..] = rest {
        bits |= 1 << *first;
        rest = tail;
    }
    bits
}

fn is_in(set: u128, character: char) -> bool {
    character.is_ascii() && set >> u32::from(character) & 1 == 1
}

impl Spelling {
    /// Largest number of spellings of one value.
    pub(super) const ALL_MAX: usize = ESCAPES.len() + 11;

    /// All spellings that encode the bytes instead of escaping characters.
    const ENCODED: [Self; 10] = [
        Self::Base64 { skip: 0, alphabet: STANDARD },
        Self::Base64 { skip: 4, alphabet: STANDARD },
        Self::Base64 { skip: 2, alphabet: STANDARD },
        Self::Base64 { skip: 0, alphabet: URL_SAFE },
        Self::Base64 { skip: 4, alphabet: URL_SAFE },
        Self::Base64 { skip: 2, alphabet: URL_SAFE },
        Self::Hex { digits: LOWER },
        Self::Hex { digits: UPPER },
        Self::Utf16 { is_big_endian: false },
        Self::Utf16 { is_big_endian: true },
    ];
}

/// Calls `found` with the first eight bytes of each spelling of a value of at least eight bytes.
pub(super) fn each_head(value: &[u8], mut found: impl FnMut(Spelling, u64)) {
    let text = str::from_utf8(value).unwrap_or_default();
    let beginning = match text.char_indices().nth(HEAD_CHARS) {
        Some((end, _)) => value.get(..end).unwrap_or(value),
        None => value,
    };
    let used = text.bytes().filter(u8::is_ascii).fold(NONE, |used, byte| used | 1 << byte);
    let has_beyond = !text.is_ascii();
    // The buffer never grows, because growing would leave an unwiped copy behind.
    let mut buffer = Zeroizing::new(Vec::with_capacity(BEGINNING_BYTES_MAX));
    let mut add = |spelling| {
        buffer.clear();
        append(spelling, beginning, &mut buffer);
        if let Some(head) = buffer.first_chunk() {
            found(spelling, u64::from_be_bytes(*head));
        }
    };
    add(Spelling::Text(Escape::Plain));
    for escape in ESCAPES {
        if escape.changes(used, has_beyond) {
            add(Spelling::Text(*escape));
        }
    }
    Spelling::ENCODED.into_iter().for_each(add);
}

/// Returns the complete spelling of a value.
pub(super) fn write(spelling: Spelling, value: &[u8]) -> Zeroizing<Vec<u8>> {
    // The longest spelling has ten bytes per byte: `&#1114111;`. The buffer never grows, because
    // growing would leave an unwiped copy behind.
    let mut text = Zeroizing::new(Vec::with_capacity(10 * value.len()));
    append(spelling, value, &mut text);
    text
}

fn append(spelling: Spelling, value: &[u8], out: &mut Vec<u8>) {
    match spelling {
        Spelling::Text(Escape::Plain) => out.extend_from_slice(value),
        Spelling::Text(escape) => {
            for character in str::from_utf8(value).unwrap_or_default().chars() {
                escape.append(character, out);
            }
        }
        Spelling::Base64 { skip, alphabet } => base64(value, skip, alphabet, out),
        Spelling::Hex { digits } => value.iter().for_each(|byte| append_hex(*byte, digits, out)),
        Spelling::Utf16 { is_big_endian } => {
            for unit in str::from_utf8(value).unwrap_or_default().encode_utf16() {
                out.extend(if is_big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() });
            }
        }
    }
}

/// Appends the base64 characters that depend on this value's bits only.
fn base64(value: &[u8], skip: usize, alphabet: &[u8; 64], out: &mut Vec<u8>) {
    for bit in (skip..).step_by(6).take_while(|bit| bit + 6 <= 8 * value.len()) {
        let byte = |at: usize| u16::from(value.get(at).copied().unwrap_or_default());
        let pair = byte(bit / 8) << 8 | byte(bit / 8 + 1);
        let sextet = pair >> (10 - bit % 8) & 63;
        out.extend(alphabet.get(usize::from(sextet)));
    }
}

fn append_hex(byte: u8, digits: &[u8; 16], out: &mut Vec<u8>) {
    out.extend(digits.get(usize::from(byte >> 4)));
    out.extend(digits.get(usize::from(byte & 15)));
}

impl Escape {
    /// Returns whether this escaping changes a text with these characters.
    fn changes(&self, used: u128, has_beyond: bool) -> bool {
        match *self {
            Self::Plain => false,
            Self::Json { unicode, is_beyond, has_slash, .. } => {
                let slash = if has_slash { set(b"/") } else { NONE };
                used & (unicode | slash | CONTROLS | set(b"\"\\")) != 0 || (is_beyond && has_beyond)
            }
            Self::Percent { kept, .. } => used & !kept != 0 || has_beyond,
            Self::Html { named, decimal, hex, .. } => used & (named | decimal | hex) != 0,
        }
    }

    fn append(&self, character: char, out: &mut Vec<u8>) {
        match *self {
            Self::Plain => plain(character, out),
            Self::Json { unicode, is_beyond, has_slash, digits } => {
                if is_in(unicode, character) || (is_beyond && !character.is_ascii()) {
                    append_units(character, digits, out);
                } else {
                    json_character(character, has_slash, digits, out);
                }
            }
            Self::Percent { has_plus: true, .. } if character == ' ' => out.push(b'+'),
            Self::Percent { kept, .. } if is_in(kept, character) => plain(character, out),
            Self::Percent { digits, .. } => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    out.push(b'%');
                    append_hex(byte, digits, out);
                }
            }
            Self::Html { named, decimal, hex, digits } => {
                if is_in(named, character) {
                    out.extend_from_slice(name(character));
                } else if is_in(decimal, character) {
                    out.extend_from_slice(format!("&#{};", u32::from(character)).as_bytes());
                } else if is_in(hex, character) {
                    out.extend_from_slice(b"&#x");
                    append_number(u32::from(character), digits, out);
                    out.push(b';');
                } else {
                    plain(character, out);
                }
            }
        }
    }
}

fn plain(character: char, out: &mut Vec<u8>) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Appends a hexadecimal number without leading zeros.
fn append_number(number: u32, digits: &[u8; 16], out: &mut Vec<u8>) {
    if number >= 16 {
        append_number(number >> 4, digits, out);
    }
    out.extend(digits.get(number as usize & 15));
}

/// Appends `\u` and four digits for each UTF-16 unit.
fn append_units(character: char, digits: &[u8; 16], out: &mut Vec<u8>) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        out.extend_from_slice(b"\\u");
        unit.to_be_bytes().into_iter().for_each(|byte| append_hex(byte, digits, out));
    }
}

/// Appends a character as every JSON writer does, with the slash escaped if `has_slash`.
fn json_character(character: char, has_slash: bool, digits: &[u8; 16], out: &mut Vec<u8>) {
    let short = match character {
        '"' | '\\' => character,
        '/' if has_slash => '/',
        '\u{8}' => 'b',
        '\u{c}' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\0'..='\u{1f}' => return append_units(character, digits, out),
        _ => return plain(character, out),
    };
    out.push(b'\\');
    plain(short, out);
}

fn name(character: char) -> &'static [u8] {
    match character {
        '&' => b"&amp;",
        '<' => b"&lt;",
        '>' => b"&gt;",
        '"' => b"&quot;",
        _ => b"&apos;",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_room_for_the_longest_spelling() {
        for character in ["a", "\"", "\u{1}", "\u{7f}", "\u{e9}", "\u{ffff}", "\u{10000}", "\u{10ffff}"] {
            let value = character.repeat(HEAD_CHARS).into_bytes();
            let escaped = ESCAPES.iter().map(|escape| Spelling::Text(*escape));
            for spelling in escaped.chain(Spelling::ENCODED) {
                let mut text = Vec::new();
                append(spelling, &value, &mut text);
                assert!(text.len() <= BEGINNING_BYTES_MAX, "{spelling:?} of {character:?}");
                assert!(text.len() <= 10 * value.len(), "{spelling:?} of {character:?}");
            }
        }
    }
}
