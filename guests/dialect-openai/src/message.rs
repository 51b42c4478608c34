//! Makes a provider's error message safe for a client: one short line without control
//! characters and without anything that looks like a credential. Providers do quote keys
//! ("Incorrect API key provided: sk-...").

const CHARS_MAX: usize = 500;
/// Text beyond this many characters is ignored.
const CHARS_READ: usize = 4096;
const MASK: &str = "[redacted]";
const PREFIXES: &[&str] =
    &["sk-", "sk_", "pk-", "rk-", "gsk_", "xai-", "hf_", "nvapi-", "AIza", "ghp_", "key-", "pplx-", "fw_"];

/// Cleans `text` as described above; empty when nothing is left.
pub(crate) fn clean(text: &str) -> String {
    let line: String = text.chars().take(CHARS_READ).map(|c| if is_invisible(c) { ' ' } else { c }).collect();
    let masked = mask(&line);
    let words = masked.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut chars = words.char_indices();
    match chars.nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", words.get(..end).unwrap_or_default()),
        None => words,
    }
}

/// Control characters, and marks that reorder or hide text.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

fn mask(line: &str) -> String {
    let mut masked = String::with_capacity(line.len());
    let mut after_bearer = false;
    for piece in line.split_inclusive(ends_word) {
        let word = piece.strip_suffix(ends_word).unwrap_or(piece);
        let end = piece.get(word.len()..).unwrap_or_default();
        if word.is_empty() {
            masked.push_str(end);
            continue;
        }
        if after_bearer && (word.len() >= 16 || word.bytes().any(|b| b.is_ascii_digit())) {
            masked.push_str(MASK);
        } else {
            mask_parts(word, &mut masked);
        }
        masked.push_str(end);
        after_bearer = word.eq_ignore_ascii_case("bearer");
    }
    masked
}

fn ends_word(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '"' | '\'' | '`' | ',' | ';' | ':' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '?' | '&'
        )
}

/// Masks the parts of a word: it may be `key=VALUE` or a path with a key in it.
fn mask_parts(word: &str, masked: &mut String) {
    for part in word.split_inclusive(['=', '/']) {
        let value = part.trim_end_matches(['=', '/']);
        if looks_secret(value) {
            masked.push_str(MASK);
            masked.push_str(part.get(value.len()..).unwrap_or_default());
        } else {
            masked.push_str(part);
        }
    }
}

fn looks_secret(value: &str) -> bool {
    let prefixed = PREFIXES.iter().any(|prefix| value.len() >= prefix.len() + 4 && value.starts_with(prefix));
    let token = value.len() >= 20 && value.starts_with("eyJ");
    let long = value.len() >= 32
        && value.bytes().any(|b| b.is_ascii_digit())
        && value.bytes().any(|b| b.is_ascii_alphabetic())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'+' | b'*'));
    prefixed || token || long
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::clean;

    #[test]
    fn credentials_are_masked_and_other_words_kept() {
        let cases = [
            (
                "Incorrect API key provided: sk-proj-abcd1234. See https://example.com/account/api-keys.",
                "Incorrect API key provided: [redacted] See https://example.com/account/api-keys.",
            ),
            ("sent 'Authorization: Bearer ab/c+d1=='", "sent 'Authorization: Bearer [redacted]'"),
            ("Bearer token is missing", "Bearer token is missing"),
            ("url ?key=AIzaSyA12345 x", "url ?key=[redacted] x"),
            ("a\u{0}b\r\n\tc\u{202E}d", "a b c d"),
            ("id 0123456789abcdef0123456789abcde", "id 0123456789abcdef0123456789abcde"),
            ("key 0123456789abcdef0123456789abcdef", "key [redacted]"),
            ("Invalid value for input[0].content: got 'x'", "Invalid value for input[0].content: got 'x'"),
        ];
        for (text, expected) in cases {
            assert_eq!(clean(text), expected);
        }
    }

    #[test]
    fn long_messages_are_cut() {
        let cleaned = clean(&"ä ".repeat(9000));
        assert_eq!(cleaned.chars().count(), 501);
        assert!(cleaned.ends_with('…'));
    }

    proptest! {
        #[test]
        fn any_text_gives_one_short_line(text in any::<String>()) {
            let cleaned = clean(&text);
            assert!(cleaned.chars().count() <= 501);
            assert!(!cleaned.chars().any(char::is_control));
        }
    }
}
