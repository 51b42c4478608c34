//! Placeholders: `{{secret:NAME}}` in the value of a header (egress rule R2).
//!
//! Placeholders are found in one pass from left to right over the guest's text; the text that
//! replaces them is never scanned. A malformed placeholder, or one outside of a header value,
//! refuses the request. Text that was meant to become a secret must not be sent unreplaced: it
//! would reveal the names of secrets to the server.

use std::ops::Range;

use cofferdam_store::SecretName;
use memchr::memmem;

use crate::Reason;

/// Start of a placeholder.
pub(crate) const OPENING: &str = "{{secret:";
/// End of a placeholder.
const CLOSING: &str = "}}";
/// Number of placeholders in one request.
pub(crate) const PLACEHOLDERS_MAX: usize = 4;

/// The placeholders of one header value, with their byte ranges.
pub(crate) fn in_value(value: &str) -> Result<Vec<(Range<usize>, SecretName)>, Reason> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = value.get(from..).and_then(|rest| rest.find(OPENING)) {
        let start = from + at;
        let name_start = start + OPENING.len();
        let rest = value.get(name_start..).unwrap_or_default();
        let name = rest.find(CLOSING).and_then(|length| rest.get(..length)).ok_or(Reason::Placeholder)?;
        let secret = name.parse().map_err(|_| Reason::Placeholder)?;
        from = name_start + name.len() + CLOSING.len();
        found.push((start..from, secret));
        if found.len() > PLACEHOLDERS_MAX {
            return Err(Reason::Placeholder);
        }
    }
    Ok(found)
}

/// Parses a text that is exactly one placeholder.
pub(crate) fn parse(text: &str) -> Option<SecretName> {
    text.strip_prefix(OPENING)?.strip_suffix(CLOSING)?.parse().ok()
}

/// Returns whether a URL contains the start of a placeholder, plain or percent-encoded.
pub(crate) fn is_in_url(url: &str) -> bool {
    if !url.contains("secret") && !url.contains('%') {
        return false;
    }
    let mut decoded = Vec::with_capacity(url.len());
    let mut rest = url.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let encoded = if *first == b'%' { tail.split_first_chunk::<2>().and_then(decode) } else { None };
        let (byte, tail) = encoded.unwrap_or((*first, tail));
        decoded.push(byte);
        rest = tail;
    }
    memmem::find(&decoded, OPENING.as_bytes()).is_some()
}

fn decode<'a>((digits, tail): (&[u8; 2], &'a [u8])) -> Option<(u8, &'a [u8])> {
    let digits = std::str::from_utf8(digits).ok()?;
    Some((u8::from_str_radix(digits, 16).ok()?, tail))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(value: &str) -> Result<Vec<String>, Reason> {
        let found = in_value(value)?;
        for (range, secret) in &found {
            assert_eq!(value.get(range.clone()), Some(format!("{{{{secret:{secret}}}}}").as_str()));
        }
        Ok(found.into_iter().map(|(_, secret)| secret.to_string()).collect())
    }

    #[test]
    fn placeholders_are_found_from_left_to_right() {
        assert_eq!(names("Bearer {{secret:a}}"), Ok(vec!["a".to_owned()]));
        assert_eq!(
            names("{{secret:a}}{{secret:b_1}} {{other}} }}"),
            Ok(vec!["a".to_owned(), "b_1".to_owned()])
        );
        assert_eq!(names("secret:a {secret:a} {{ secret:a}}"), Ok(Vec::new()));
    }

    #[test]
    fn malformed_placeholders_are_refused() {
        for value in [
            "{{secret:",
            "{{secret:a",
            "{{secret:a}",
            "{{secret:}}",
            "{{secret:A}}",
            "{{secret: a}}",
            "{{secret:{{secret:a}}}}",
            "{{secret:a}} {{secret:b",
        ] {
            assert_eq!(names(value), Err(Reason::Placeholder), "{value}");
        }
        assert_eq!(names(&"{{secret:a}}".repeat(5)), Err(Reason::Placeholder));
    }

    #[test]
    fn encoded_placeholder_in_a_url_is_found() {
        for url in ["https://a.test/{{secret:a}}", "https://a.test/?q=%7b%7Bsecret%3Aa}}", "%7B%7B%73ecret:a"]
        {
            assert!(is_in_url(url), "{url}");
        }
        for url in ["https://a.test/secret", "https://a.test/%7b%7b", "https://a.test/%zz%", "%é{{secre"] {
            assert!(!is_in_url(url), "{url}");
        }
    }

    proptest! {
        #[test]
        fn scanning_never_panics(value in "[{}secrt:a%7Bé]{0,40}") {
            let _found = names(&value);
            let _seen = is_in_url(&value);
        }
    }
}
