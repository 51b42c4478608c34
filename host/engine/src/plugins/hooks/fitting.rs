//! The hook that shortens a conversation until it fits (`context-compression`): when it is on by
//! default, and when it need not be called.

use crate::catalog::router_slug;
use crate::catalog::{Catalog, ModelKind};
use crate::request::ResponsesRequest;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

pub(super) const ID: &str = "context-compression";

/// It is on by default where the context of all models named has at most this many tokens.
const SMALL_TOKENS: u32 = 8192;

/// The context of what a slug names, in tokens of input and output, if it is known. For a model
/// router it is that of the largest model, because the router chooses a model that the request
/// fits.
fn context_length(catalog: &Catalog, slug: &str) -> Option<u32> {
    if let Some(model) = catalog.find(slug) {
        return model.context_length;
    }
    router_slug(slug)?;
    let mut models = catalog.models().iter().filter(|model| model.kind == ModelKind::Responses);
    let largest = models.try_fold(0, |largest, model| Some(model.context_length?.max(largest)));
    largest.filter(|tokens| *tokens > 0)
}

/// The smallest known context among the models named, in tokens of input and output.
pub(super) fn smallest(catalog: &Catalog, models: &[String]) -> Option<u32> {
    models.iter().filter_map(|slug| context_length(catalog, slug)).min()
}

/// Whether every model named is known to be small. Otherwise a larger one would get less than it
/// can take.
pub(crate) fn are_small(catalog: &Catalog, models: &[String]) -> bool {
    models.iter().all(|slug| context_length(catalog, slug).is_some_and(|tokens| tokens <= SMALL_TOKENS))
}

/// Whether the entry of a hook has a `context_length` of its own.
pub(super) fn is_set(entry: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(default, deserialize_with = "present")]
        context_length: bool,
    }
    serde_json::from_slice(entry).is_ok_and(|Entry { context_length }| context_length)
}

/// Reads any value of a member that is there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|IgnoredAny| true)
}

/// Whether a request may be longer than what its hook's settings allow. A token is assumed to have
/// four bytes, so that the guest is not called for nearly all requests.
pub(super) fn may_be_too_long(request: &ResponsesRequest, settings: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Settings {
        context_length: Option<u32>,
    }
    // If the settings are malformed or the context is unknown, the hook decides.
    let Ok(Settings { context_length: Some(tokens) }) = serde_json::from_slice(settings) else { return true };
    let room = tokens.saturating_sub(request.max_output_tokens.unwrap_or(0));
    request.guest_json.len().div_ceil(4) > room as usize
}

#[cfg(test)]
mod tests {
    use super::is_set;

    #[test]
    fn an_own_context_length_is_found_among_the_members_of_the_entry_only() {
        for (entry, expected) in [
            (r#"{"id":"h"}"#, false),
            (r#"{"id":"h","more":{"context_length":5}}"#, false),
            (r#"{"id":"h","context_length":5}"#, true),
            (r#"{"id":"h","context\u005flength":null}"#, true),
        ] {
            assert_eq!(is_set(entry.as_bytes()), expected, "{entry}");
        }
    }
}
