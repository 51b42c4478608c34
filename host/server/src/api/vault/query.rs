//! The query of a listing: `limit` and `offset`, each at most once, plain digits.

use crate::reply::{Fault, Flaw, VaultFault};
use crate::route::decode;

/// Entries of a page at most, and when nothing is said.
const LIMIT_MAX: usize = 100;
/// Where a page may begin at most.
const OFFSET_MAX: usize = 10_000;

/// Which part of a listing is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// Entries to skip.
    pub(super) offset: usize,
    /// Entries at most.
    pub(super) limit: usize,
}

impl Window {
    /// Reads a query. Parameters of other names mean nothing.
    ///
    /// # Errors
    ///
    /// A parameter is given twice, is no number or too great or small.
    pub(super) fn parse(query: &str) -> Result<Self, Fault> {
        let (mut limit, mut offset) = (None, None);
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (slot, path) = match decode(name).as_deref() {
                Ok("limit") => (&mut limit, "limit"),
                Ok("offset") => (&mut offset, "offset"),
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return Err(flaw(path, "must be given once"));
            }
        }
        let limit = limit.map_or(Some(LIMIT_MAX), number).filter(|limit| (1..=LIMIT_MAX).contains(limit));
        let offset = offset.map_or(Some(0), number).filter(|offset| *offset <= OFFSET_MAX);
        Ok(Self {
            limit: limit.ok_or_else(|| flaw("limit", "must be a whole number from 1 to 100"))?,
            offset: offset.ok_or_else(|| flaw("offset", "must be a whole number from 0 to 10000"))?,
        })
    }
}

fn number(written: &str) -> Option<usize> {
    let text = decode(written).ok()?;
    // The parser of numbers would take a sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn flaw(path: &'static str, reason: &'static str) -> Fault {
    Fault::Vault(VaultFault::Invalid(Flaw::at(path, reason)))
}

#[cfg(test)]
mod tests {
    use super::Window;

    fn window(query: &str) -> Option<(usize, usize)> {
        Window::parse(query).ok().map(|window| (window.offset, window.limit))
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

    proptest::proptest! {
        #[test]
        fn any_query_is_a_window_inside_the_limits_or_refused(query in ".{0,40}|(limit|offset)=[0-9]{0,6}") {
            if let Some((offset, limit)) = window(&query) {
                proptest::prop_assert!(offset <= 10_000 && (1..=100).contains(&limit));
            }
        }
    }
}
