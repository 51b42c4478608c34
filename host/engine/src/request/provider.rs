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
    pub privacy: Privacy,
    /// `options`: pairs of a provider slug and the fields that are sent to this provider's guest
    /// only.
    pub options: Vec<(String, GivenOptions)>,
}

/// What a client asks of every endpoint that gets its content. The host holds to it under every router, because a router
/// that forgets it would send content where it must not go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privacy {
    /// `zdr`: only endpoints that keep no data.
    pub zdr: bool,
    /// `data_collection` is `deny`: no endpoint that may use data for training.
    pub denies_collection: bool,
}

impl Privacy {
    /// Whether this endpoint may get the content.
    #[must_use]
    pub fn allows(self, candidate: &Candidate) -> bool {
        (candidate.zdr || !self.zdr) && !(self.denies_collection && candidate.data_collection)
    }
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
            privacy: Privacy::default(),
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
            privacy: Privacy {
                zdr: provider.get("zdr").is_some_and(JsonValue::is_true),
                denies_collection: provider.get("data_collection").is_some_and(|text| text.is("deny")),
            },
            options: options.map(|(slug, options)| (slug.text().into_owned(), given(options))).collect(),
        }
    }
}

/// A member that is null counts as absent here too.
fn given(options: JsonValue<'_>) -> GivenOptions {
    let fields = options.members().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.text().into_owned(), Bytes::from(value.compact()))).collect()
}
