//! Provider slugs: `openai` means every endpoint of it, `openai/priority` one
//! tier, `vertex/us-east5` one region that the operator configured as such, and
//! `vertex/priority` one tier in every region.

use crate::endpoint::Candidate;

/// Whether `slug` means this endpoint.
pub(crate) fn matches(slug: &str, candidate: &Candidate) -> bool {
    if covers(slug, &candidate.provider) {
        return true;
    }
    let Some((base, tier)) = slug.rsplit_once('/') else { return false };
    tier.eq_ignore_ascii_case(&candidate.tier) && covers(base, &candidate.provider)
}

/// Whether `base` is the configured name or what it begins with up to a slash.
fn covers(base: &str, provider: &str) -> bool {
    let Some(head) = provider.get(..base.len()) else { return false };
    let ends = provider.get(base.len()..).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    ends && head.eq_ignore_ascii_case(base)
}

/// Whether one of `slugs` means this endpoint.
pub(crate) fn any_matches(slugs: &[String], candidate: &Candidate) -> bool {
    slugs.iter().any(|slug| matches(slug, candidate))
}

#[cfg(test)]
mod tests {
    use super::matches;
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
            assert_eq!(matches(slug, &endpoint), expected, "{slug} on {provider} {tier}");
        }
    }
}
