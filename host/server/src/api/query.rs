//! Query parameters of lists. `limit` and `offset` are decimal digits, flags are `true` or `false`;
//! each may be given once.

use crate::fault::FieldError;
use crate::route::decode;

/// The maximum number of entries on a page; also the default.
const LIMIT_MAX: usize = 100;
/// The maximum offset of a page.
const OFFSET_MAX: usize = 10_000;

/// The part of a list that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageWindow {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

impl PageWindow {
    /// Reads a query. Unknown parameters are ignored.
    ///
    /// # Errors
    ///
    /// A parameter is given twice, is not a number, or is out of range.
    pub(crate) fn parse(query: &str) -> Result<Self, FieldError> {
        let (limit, offset) = (parameter(query, "limit")?, parameter(query, "offset")?);
        let limit = limit.map_or(Some(LIMIT_MAX), number).filter(|limit| (1..=LIMIT_MAX).contains(limit));
        let offset = offset.map_or(Some(0), number).filter(|offset| *offset <= OFFSET_MAX);
        Ok(Self {
            limit: limit.ok_or_else(|| FieldError::at("limit", "must be a whole number from 1 to 100"))?,
            offset: offset
                .ok_or_else(|| FieldError::at("offset", "must be a whole number from 0 to 10000"))?,
        })
    }
}

fn number(written: &str) -> Option<usize> {
    let text = decode(written)?;
    // `str::parse` would accept a `+` sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A boolean parameter; false when absent.
///
/// # Errors
///
/// It is given twice, or is neither `true` nor `false`.
pub(crate) fn flag(query: &str, name: &'static str) -> Result<bool, FieldError> {
    match parameter(query, name)? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(FieldError::at(name, "must be true or false")),
    }
}

/// The value of a parameter as written, still percent-encoded.
fn parameter<'q>(query: &'q str, name: &'static str) -> Result<Option<&'q str>, FieldError> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut values = pairs.filter(|(written, _)| decode(written).as_deref() == Some(name));
    let value = values.next().map(|(_, value)| value);
    if values.next().is_some() { Err(FieldError::at(name, "must be given once")) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::{PageWindow, flag};

    fn window(query: &str) -> Option<(usize, usize)> {
        PageWindow::parse(query).ok().map(|window| (window.offset, window.limit))
    }

    #[test]
    fn windows_are_read_or_refused() {
        for (query, expected) in [
            ("", (0, 100)),
            ("limit=1", (0, 1)),
            ("limit=100&offset=10000", (10_000, 100)),
            ("offset=0", (0, 100)),
            ("limit=%31", (0, 1)),
            ("%6cimit=7", (0, 7)),
            ("x=1&limit=2&y&=&&%zz=%zz", (0, 2)),
            ("LIMIT=0", (0, 100)),
        ] {
            assert_eq!(window(query), Some(expected), "{query}");
        }
        for query in [
            "limit=0",
            "limit=101",
            "limit=-1",
            "limit=1.5",
            "limit=abc",
            "limit=",
            "limit",
            "limit=+1",
            "limit=1e1",
            "limit=18446744073709551616",
            "limit=%zz",
            "limit= 1",
            "limit=1%00",
            "limit=%00",
            "limit=1%20",
            "offset=10001",
            "offset=-1",
            "offset=",
            "offset=x",
            "offset=0&offset=0",
            "limit=1&limit=2",
            "limit=1&limit=1",
            "offset=1&%6fffset=1",
        ] {
            assert_eq!(window(query), None, "{query}");
        }
    }

    #[test]
    fn flag_is_true_false_or_absent() {
        for (query, expected) in [
            ("", Some(false)),
            ("on=true", Some(true)),
            ("x&on=false&y=1", Some(false)),
            ("on", None),
            ("on=1", None),
            ("on=TRUE", None),
            ("on=true&on=true", None),
        ] {
            assert_eq!(flag(query, "on").ok(), expected, "{query}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_accepted_query_is_within_the_limits(query in ".{0,40}|(limit|offset)=[0-9]{0,6}") {
            if let Some((offset, limit)) = window(&query) {
                proptest::prop_assert!(offset <= 10_000 && (1..=100).contains(&limit));
            }
        }
    }
}
