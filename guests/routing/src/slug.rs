//! Provider slugs: `openai` means every endpoint of it, `openai/priority` one
//! tier, `vertex/us-east5` one region that the operator configured as such, and
//! `vertex/priority` one tier in every region.

use crate::endpoint::Candidate;

/// A slug as the client wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slug {
    text: String,
    /// Where its last slash is.
    slash: Option<usize>,
}

impl Slug {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), slash: text.rfind('/') }
    }

    /// Whether it means this endpoint.
    pub(crate) fn matches(&self, candidate: &Candidate) -> bool {
        if covers(&self.text, &candidate.provider) {
            return true;
        }
        let Some((base, tier)) = self.slash.and_then(|slash| self.text.split_at_checked(slash)) else {
            return false;
        };
        let tier = tier.trim_start_matches('/');
        tier.eq_ignore_ascii_case(&candidate.tier) && covers(base, &candidate.provider)
    }
}

/// Whether `base` is the configured name or what it begins with up to a slash.
fn covers(base: &str, provider: &str) -> bool {
    let Some(head) = provider.get(..base.len()) else { return false };
    let ends = provider.get(base.len()..).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    ends && head.eq_ignore_ascii_case(base)
}

/// Whether one of `slugs` means this endpoint.
pub(crate) fn any_matches(slugs: &[Slug], candidate: &Candidate) -> bool {
    slugs.iter().any(|slug| slug.matches(candidate))
}

#[cfg(test)]
mod tests {
    use super::Slug;
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
            assert_eq!(Slug::new(slug).matches(&endpoint), expected, "{slug} on {provider} {tier}");
        }
    }
}
