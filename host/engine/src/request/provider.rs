//! The `provider` object: the client's constraints and preferences for endpoints.

use super::json::{JsonKind, JsonValue};
use bytes::Bytes;

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
    /// `options`: pairs of a provider slug and the fields that are sent to this provider's guest
    /// only.
    pub options: Vec<(String, GivenOptions)>,
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
            options: options.map(|(slug, options)| (slug.text().into_owned(), given(options))).collect(),
        }
    }
}

/// A member that is null counts as absent here too.
fn given(options: JsonValue<'_>) -> GivenOptions {
    let fields = options.members().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.text().into_owned(), Bytes::from(value.compact()))).collect()
}
