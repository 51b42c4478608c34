//! Patterns of model ids: `*` stands for any characters, at any position. Matching ignores the case of
//! ASCII letters, so that an exclusion also applies to ids with capital letters.

use std::collections::BTreeSet;

/// A list of patterns.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    exact: BTreeSet<String>,
    globs: Vec<Glob>,
}

/// A pattern with stars: the parts between the stars, in order.
#[derive(Debug)]
struct Glob {
    /// The part before the first star.
    head: String,
    /// The parts between stars that are not empty.
    middle: Vec<String>,
    /// The part after the last star.
    tail: String,
    /// The length of all parts in bytes, which is the shortest id that can match.
    least: usize,
    /// The byte pairs that every matching id must contain.
    pairs: Pairs,
}

impl Patterns {
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a str>) -> Self {
        let mut list = Self::default();
        for pattern in patterns {
            let pattern = pattern.to_ascii_lowercase();
            match Glob::of(&pattern) {
                Some(glob) => list.globs.push(glob),
                None => {
                    list.exact.insert(pattern);
                }
            }
        }
        list
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.globs.is_empty()
    }

    /// For each id, whether one of the patterns matches. The loop goes pattern by pattern, because a
    /// thousand ids fit into the processor's cache and a thousand patterns do not.
    pub(super) fn matches(&self, ids: &LowerIds) -> Vec<bool> {
        let mut matched: Vec<bool> = ids.iter().map(|id| self.exact.contains(id)).collect();
        for glob in &self.globs {
            for ((matched, id), pairs) in matched.iter_mut().zip(ids.iter()).zip(&ids.pairs) {
                *matched = *matched || glob.matches(id, *pairs);
            }
        }
        matched
    }
}

/// Model ids in lower case, stored next to each other.
pub(super) struct LowerIds {
    text: String,
    ends: Vec<usize>,
    pairs: Vec<Pairs>,
}

/// The pairs of neighbouring bytes in a text, hashed into 128 bits. With them most texts that are not
/// contained in another one are excluded without a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pairs(u128);

impl Pairs {
    fn of(text: &str) -> Self {
        let neighbours = text.as_bytes().windows(2);
        Self(neighbours.fold(0, |bits, pair| {
            let hash = pair.iter().fold(0_u8, |hash, byte| hash.wrapping_mul(31).wrapping_add(*byte));
            bits | 1_u128 << (hash & 127)
        }))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// False when `self` certainly lacks a pair of `other`.
    fn may_hold(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

impl LowerIds {
    pub(super) fn new<'a>(ids: impl Iterator<Item = &'a str>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for id in ids {
            text.push_str(id);
            ends.push(text.len());
        }
        text.make_ascii_lowercase();
        let mut lower = Self { text, ends, pairs: Vec::new() };
        lower.pairs = lower.iter().map(Pairs::of).collect();
        lower
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.text.get(start..*end).unwrap_or_default())
    }
}

impl Glob {
    /// `None` for a pattern without a star.
    fn of(pattern: &str) -> Option<Self> {
        let (head, rest) = pattern.split_once('*')?;
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let parts = pattern.split('*').map(Pairs::of);
        Some(Self {
            head: head.to_owned(),
            middle: middle.split('*').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            tail: tail.to_owned(),
            least: pattern.len() - pattern.matches('*').count(),
            pairs: parts.fold(Pairs::default(), Pairs::and),
        })
    }

    /// Linear in the id for each part: the leftmost match of a part is always the best one, so no
    /// backtracking is needed.
    fn matches(&self, id: &str, pairs: Pairs) -> bool {
        if id.len() < self.least || !pairs.may_hold(self.pairs) {
            return false;
        }
        // Patterns and ids are valid UTF-8, so matching bytes gives the same result as matching
        // characters.
        let Some(rest) = id.as_bytes().strip_prefix(self.head.as_bytes()) else { return false };
        let Some(mut rest) = rest.strip_suffix(self.tail.as_bytes()) else { return false };
        self.middle.iter().all(|part| {
            let after = after_first(rest, part.as_bytes());
            rest = after.unwrap_or_default();
            after.is_some()
        })
    }
}

/// The text after the first occurrence of `part`. Ids are so short that the setup of `str::find` costs
/// more than a simple search.
fn after_first<'a>(text: &'a [u8], part: &[u8]) -> Option<&'a [u8]> {
    let (first, others) = part.split_first()?;
    let mut rest = text;
    loop {
        let at = rest.iter().position(|byte| byte == first)?;
        rest = rest.get(at + 1..)?;
        if let Some(after) = rest.strip_prefix(others) {
            return Some(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LowerIds, Patterns};

    #[test]
    fn a_star_stands_for_anything_anywhere() {
        let cases = [
            ("vendor/name", "vendor/name", true),
            ("Vendor/NAME", "vendor/name", true),
            ("vendor/nam", "vendor/name", false),
            ("vendor/*", "vendor/name", true),
            ("vendor/*", "vendor/", true),
            ("vendor/*", "vendors/name", false),
            ("*", "vendor/name", true),
            ("**", "vendor/name", true),
            ("*/name", "vendor/name", true),
            ("*/name-*", "vendor/name-5", true),
            ("*/name-*", "vendor/name", false),
            ("vendor/name-5*", "vendor/name-5.1", true),
            ("v*r/n*e", "vendor/name", true),
            ("v*or*me", "vendor/name", true),
            ("v*me*or", "vendor/name", false),
            // The ends must not overlap, nor the parts between them.
            ("ab*ba", "aba", false),
            ("ab*ba", "abba", true),
            ("a*b*b*c", "abc", false),
            ("*aab*", "aaaab", true),
            ("*ö*", "vendor/größe", true),
            ("", "vendor/name", false),
            ("v?ndor/*", "vendor/name", false),
        ];
        for (pattern, id, expected) in cases {
            // Next to another id, which only patterns of nothing but stars match.
            let ids = LowerIds::new(["#", id, "#"].into_iter());
            let other = pattern.bytes().all(|byte| byte == b'*') && !pattern.is_empty();
            let matched = Patterns::new([pattern].into_iter()).matches(&ids);
            assert_eq!(matched, [other, expected, other], "{pattern} on {id}");
        }
    }
}
