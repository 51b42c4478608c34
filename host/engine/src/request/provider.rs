//! The `provider` object: the client's constraints and preferences for endpoints.

use super::json::{JsonKind, JsonValue};
use bytes::Bytes;
use cofferdam_runtime::wire::Candidate;

/// Routing preferences. The host reads the few fields that it acts on; routers receive the JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderPreferences {
    /// The checked object as JSON, `{}` when absent.
    pub json: Bytes,
    /// Whether endpoints after the first may be tried. Default true.
    pub allow_fallbacks: bool,
    /// Whether endpoints must support every parameter that the request sets. Default false.
    pub require_parameters: bool,
    /// Whether `order` names at least one provider. Sticky sessions are then switched off.
    pub has_order: bool,
    /// Which endpoints may get the content.
    pub allowed: AllowedEndpoints,
    /// `options`: pairs of a provider slug and the fields that are sent to this provider's guest
    /// only.
    pub options: Vec<(String, GivenOptions)>,
}

/// Which endpoints may get the content of a request, as the client says. The host holds to it under every router, because a
/// router that forgets it would send content where it must not go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedEndpoints {
    /// `zdr`: only endpoints that keep no data.
    zdr: bool,
    /// `data_collection` is `deny`: no endpoint that may use data for training.
    denies_collection: bool,
    /// `only`: endpoints that one of these slugs matches; all where there is none.
    only: Vec<String>,
    /// `ignore`: no endpoint that one of these slugs matches.
    ignore: Vec<String>,
}

impl AllowedEndpoints {
    fn of(provider: JsonValue<'_>) -> Self {
        let slugs = |name: &str| {
            let list = provider.get(name).into_iter().flat_map(JsonValue::items);
            list.map(|slug| slug.text().to_ascii_lowercase()).collect()
        };
        Self {
            zdr: provider.get("zdr").is_some_and(JsonValue::is_true),
            denies_collection: provider.get("data_collection").is_some_and(|text| text.is("deny")),
            only: slugs("only"),
            ignore: slugs("ignore"),
        }
    }

    /// Whether this endpoint may get the content.
    #[must_use]
    pub fn have(&self, endpoint: &Candidate) -> bool {
        let is_meant = |slugs: &Vec<String>| {
            slugs.iter().any(|slug| is_slug_of(slug, &endpoint.provider, &endpoint.tier))
        };
        (endpoint.zdr || !self.zdr)
            && !(self.denies_collection && endpoint.data_collection)
            && (self.only.is_empty() || is_meant(&self.only))
            && !is_meant(&self.ignore)
    }
}

/// Whether a slug in lower case matches an endpoint: by the provider's name or a part of it that ends before a slash, alone
/// or followed by a slash and the tier.
fn is_slug_of(slug: &str, provider: &str, tier: &str) -> bool {
    let is_base = |base: &str| {
        let part = provider.get(..base.len());
        !base.is_empty()
            && part.is_some_and(|part| part.eq_ignore_ascii_case(base))
            && matches!(provider.as_bytes().get(base.len()), None | Some(b'/'))
    };
    let with_tier = slug.rsplit_once('/').filter(|(_, last)| last.eq_ignore_ascii_case(tier));
    is_base(slug) || with_tier.is_some_and(|(base, _)| is_base(base))
}

/// The fields of `provider.options` for one provider, each value as JSON. No two names differ by
/// case alone.
pub type GivenOptions = Vec<(String, Bytes)>;

impl ProviderPreferences {
    /// The options for one provider. Slugs are compared without case, as routers compare them.
    #[must_use]
    pub fn options_for(&self, provider: &str) -> Option<&GivenOptions> {
        let own = self.options.iter().find(|(name, _)| name.eq_ignore_ascii_case(provider));
        own.map(|(_, options)| options)
    }
}

impl Default for ProviderPreferences {
    fn default() -> Self {
        Self {
            json: Bytes::from_static(b"{}"),
            allow_fallbacks: true,
            require_parameters: false,
            has_order: false,
            allowed: AllowedEndpoints::default(),
            options: Vec::new(),
        }
    }
}

impl ProviderPreferences {
    /// Reads an object that the tables have checked.
    pub(super) fn of(provider: JsonValue<'_>) -> Self {
        let options = provider.get("options").into_iter().flat_map(JsonValue::members);
        Self {
            json: Bytes::from(provider.compact()),
            allow_fallbacks: provider
                .get("allow_fallbacks")
                .is_none_or(|allow| allow.kind() == JsonKind::True),
            require_parameters: provider.get("require_parameters").is_some_and(JsonValue::is_true),
            has_order: provider.get("order").is_some_and(|order| order.items().next().is_some()),
            allowed: AllowedEndpoints::of(provider),
            options: options.map(|(slug, options)| (slug.text().into_owned(), given(options))).collect(),
        }
    }
}

/// A member that is null counts as absent here too.
fn given(options: JsonValue<'_>) -> GivenOptions {
    let fields = options.members().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.text().into_owned(), Bytes::from(value.compact()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_match_as_in_routers() {
        for (slug, provider, tier, expected) in [
            ("openai", "OpenAI", "default", true),
            ("openai", "openai", "priority", true),
            ("openai/priority", "openai", "priority", true),
            ("openai/priority", "openai", "default", false),
            ("vertex", "vertex/us-east5", "default", true),
            ("vertex/us-east5", "vertex/us-east5", "default", true),
            ("vertex/us", "vertex/us-east5", "default", false),
            ("vertex/priority", "vertex/us-east5", "priority", true),
            ("vertex/us-east5/priority", "vertex/us-east5", "priority", true),
            ("vertex/us-east5/priority", "vertex/us-east5", "default", false),
            ("open", "openai", "default", false),
            ("", "openai", "default", false),
            ("/default", "openai", "default", false),
            ("\u{e4}", "a\u{e4}", "default", false),
        ] {
            assert_eq!(is_slug_of(slug, provider, tier), expected, "{slug} {provider} {tier}");
        }
    }
}
