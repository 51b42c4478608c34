//! What the rules ask of a request and of a price.

use cofferdam_guest_kit::bindings::routing::{Price, RequestSummary};

/// Tokens of the input and of the largest output together, which must fit into the context.
pub(crate) fn tokens(request: &RequestSummary) -> u32 {
    request.input_tokens.saturating_add(request.max_output_tokens.unwrap_or(0))
}

/// Whether the suffix `:free` applies to the model with this rank. Fallbacks that the client named
/// have names and suffixes of their own. When the client named a router that chose the models, the
/// suffix applies to all of them.
pub(crate) fn must_be_free(request: &RequestSummary, model_rank: u32) -> bool {
    let is_named = |model: &String| request.requested.starts_with(model.as_str());
    request.suffix.as_deref() == Some("free")
        && (model_rank == 0 || !request.models.first().is_some_and(is_named))
}

/// Whether neither input nor output costs anything.
pub(crate) fn is_free(price: &Price) -> bool {
    price.input <= 0.0 && price.output <= 0.0
}
