//! Provider slugs: `openai` means every endpoint of a provider, `openai/priority` one tier,
//! `vertex/us-east5` one region that the operator configured under this name, and `vertex/priority` one
//! tier in every region.

use std::collections::BTreeMap;

use cofferdam_guest_kit::bindings::routing::Candidate;

/// A list of slugs, compared without regard to the case of letters. An endpoint is looked up by the few
/// slugs that match it, so that long lists cost little.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Slugs {
    /// Each slug with its first position in the list.
    positions: BTreeMap<String, usize>,
    count: usize,
}

impl Slugs {
    pub(crate) fn new(slugs: &[&str]) -> Self {
        let mut positions = BTreeMap::new();
        for (position, slug) in slugs.iter().enumerate() {
            positions.entry(slug.to_ascii_lowercase()).or_insert(position);
        }
        Self { positions, count: slugs.len() }
    }

    /// The number of slugs in the list.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The position of the first slug that matches this endpoint.
    pub(crate) fn position(&self, candidate: &Candidate) -> Option<usize> {
        if self.positions.is_empty() {
            return None;
        }
        let mut name = candidate.provider.to_ascii_lowercase();
        let bases = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        let bases: Vec<usize> = bases.filter(|end| *end > 0).collect();
        // The configured name and its prefixes that end before a slash, longest first; each by itself and
        // followed by the tier.
        let mut best: Option<usize> = None;
        for end in bases.into_iter().rev() {
            name.truncate(end);
            let base = self.positions.get(&name);
            name.push('/');
            name.extend(candidate.tier.chars().map(|letter| letter.to_ascii_lowercase()));
            let position = base.into_iter().chain(self.positions.get(&name)).min();
            best = best.into_iter().chain(position.copied()).min();
        }
        best
    }

    /// Whether one of the slugs matches this endpoint.
    pub(crate) fn contain(&self, candidate: &Candidate) -> bool {
        self.position(candidate).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::Slugs;
    use crate::tests::candidate;

    #[test]
    fn base_slugs_cover_and_longer_ones_narrow() {
        let cases = [
            ("openai", "openai", "default", true),
            ("openai", "openai", "priority", true),
            ("OpenAI", "openai", "default", true),
            ("openai/priority", "openai", "priority", true),
            ("openai/default", "openai", "default", true),
            ("openai/priority", "openai", "default", false),
            ("openai/priority/x", "openai", "priority", false),
            ("openai/", "openai", "default", false),
            ("open", "openai", "default", false),
            ("openai-eu", "openai", "default", false),
            ("openai", "openai-eu", "default", false),
            ("vertex", "vertex/us-east5", "default", true),
            ("vertex/us-east5", "vertex/us-east5", "default", true),
            ("vertex/us-east5/flex", "vertex/us-east5", "flex", true),
            ("vertex/eu", "vertex/us-east5", "default", false),
            ("vertex/priority", "vertex/us-east5", "priority", true),
            ("vertex/priority", "vertex/us-east5", "default", false),
            ("", "openai", "default", false),
            ("ö", "openai", "default", false),
        ];
        for (slug, provider, tier, expected) in cases {
            let mut endpoint = candidate(provider, 1.0);
            tier.clone_into(&mut endpoint.tier);
            assert_eq!(Slugs::new(&[slug]).contain(&endpoint), expected, "{slug} on {provider} {tier}");
        }
    }

    #[test]
    fn the_first_slug_that_means_an_endpoint_counts() {
        let slugs = Slugs::new(&["a", "vertex/eu/flex", "vertex/flex", "vertex", "Vertex/EU", "a"]);
        let position = |provider, tier: &str| {
            let mut endpoint = candidate(provider, 1.0);
            tier.clone_into(&mut endpoint.tier);
            slugs.position(&endpoint)
        };
        assert_eq!(position("a", "default"), Some(0));
        assert_eq!(position("vertex/eu", "flex"), Some(1));
        assert_eq!(position("vertex/us", "flex"), Some(2));
        assert_eq!(position("vertex/eu", "default"), Some(3));
        assert_eq!(position("b", "default"), None);
        assert_eq!(Slugs::new(&["vertex/eu", "vertex"]).position(&candidate("vertex/eu", 1.0)), Some(0));
    }
}
