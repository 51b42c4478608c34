//! The hook that makes a conversation fit (`context-compression`): when it is on by default, and when it has
//! nothing to do.

use crate::catalog::router_slug;
use crate::catalog::{Catalog, ModelKind};
use crate::request::ResponsesRequest;
use serde::Deserialize;

/// Its id.
pub(super) const ID: &str = "context-compression";

/// On by default where the context of all models named has at most so many tokens (names.md 5).
const SMALL_TOKENS: u32 = 8192;

/// Tokens of input and output that fit what a slug names, as far as they are known. For a model router that is what
/// fits the largest model: it chooses one that the request fits.
fn context_length(catalog: &Catalog, slug: &str) -> Option<u32> {
    if let Some(model) = catalog.find(slug) {
        return model.context_length;
    }
    router_slug(slug)?;
    let mut models = catalog.models().iter().filter(|model| model.kind == ModelKind::Responses);
    let largest = models.try_fold(0, |largest, model| Some(model.context_length?.max(largest)));
    largest.filter(|tokens| *tokens > 0)
}

/// Tokens of input and output that fit the smallest of the models named, as far as any is known.
pub(super) fn smallest(catalog: &Catalog, models: &[String]) -> Option<u32> {
    models.iter().filter_map(|slug| context_length(catalog, slug)).min()
}

/// Whether every model named is known to be small. One with more room would be told less than it can take.
pub(crate) fn are_small(catalog: &Catalog, models: &[String]) -> bool {
    models.iter().all(|slug| context_length(catalog, slug).is_some_and(|tokens| tokens <= SMALL_TOKENS))
}

/// Whether a request may be longer than what its hook's settings allow. Four bytes are a token at least, so
/// that for nearly all requests no guest is asked.
pub(super) fn may_be_too_long(request: &ResponsesRequest, settings: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Settings {
        context_length: Option<u32>,
    }
    // What cannot be read here, or is not known here, is for the hook to judge.
    let Ok(Settings { context_length: Some(tokens) }) = serde_json::from_slice(settings) else { return true };
    let room = tokens.saturating_sub(request.max_output_tokens.unwrap_or(0));
    request.guest_json.len().div_ceil(4) > room as usize
}
