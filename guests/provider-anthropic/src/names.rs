//! Ids of calls. Anthropic requires that each id is unique in the conversation and consists of
//! letters, digits, `_` and `-`. Histories made by other providers may break both rules.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The ids used so far in one conversation.
#[derive(Debug, Default)]
pub struct Ids {
    used: BTreeSet<String>,
    /// The last number tried for each id, so that the search for a free one starts there.
    counts: BTreeMap<String, u32>,
}

impl Ids {
    /// An id for the next call: `wanted` itself if it is valid and unused. The same history always
    /// gives the same ids, so that prompt caches stay valid.
    pub fn assign(&mut self, wanted: &str) -> String {
        let base = if wanted.is_empty() { Cow::Borrowed("call") } else { plain(wanted) };
        let base = base.into_owned();
        let mut id = base.clone();
        let count = self.counts.entry(base.clone()).or_insert(1);
        while !self.used.insert(id.clone()) {
            *count = count.saturating_add(1);
            id = format!("{base}_{count}");
        }
        id
    }
}

/// `name` with `_` in place of every character other than letters, digits, `_` and `-`.
pub fn plain(name: &str) -> Cow<'_, str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.chars().all(allowed) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().map(|c| if allowed(c) { c } else { '_' }).collect())
}

#[cfg(test)]
mod tests {
    use super::Ids;

    #[test]
    fn ids_are_plain_and_unique() {
        let mut ids = Ids::default();
        assert_eq!(ids.assign("toolu_01"), "toolu_01");
        assert_eq!(ids.assign("functions.f:0"), "functions_f_0");
        assert_eq!(ids.assign("functions.f:0"), "functions_f_0_2");
        assert_eq!(ids.assign("functions_f_0"), "functions_f_0_3");
        assert_eq!(ids.assign(""), "call");
        assert_eq!(ids.assign("é"), "_");
    }
}
