//! Provider slugs: `openai` means every endpoint of it, `openai/priority` one
//! tier, `vertex/us-east5` one region that the operator configured as such.

use crate::bindings::exports::cofferdam::plugin::routing::Candidate;

/// Whether `slug` means this endpoint.
pub(crate) fn matches(slug: &str, candidate: &Candidate) -> bool {
    let provider = candidate.provider.as_str();
    let Some(rest) = strip_prefix(slug, provider) else {
        // A base slug also covers configured names below it.
        return strip_prefix(provider, slug).is_some_and(|rest| rest.starts_with('/'));
    };
    rest.is_empty() || rest.strip_prefix('/').is_some_and(|tier| tier.eq_ignore_ascii_case(&candidate.tier))
}

/// Whether one of `slugs` means this endpoint.
pub(crate) fn any_matches(slugs: &[String], candidate: &Candidate) -> bool {
    slugs.iter().any(|slug| matches(slug, candidate))
}

fn strip_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.get(..prefix.len()).filter(|head| head.eq_ignore_ascii_case(prefix))?;
    text.get(prefix.len()..)
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
