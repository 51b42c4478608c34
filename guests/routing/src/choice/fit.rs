//! Whether a model can carry the request, and how certain that is.

use cofferdam_guest_kit::bindings::routing::RequestSummary;

use super::Model;
use crate::endpoint::{is_free, must_be_free, tokens};
use crate::preferences::Preferences;

/// Compares the request's needs with the models.
pub(super) struct Fitting<'a> {
    request: &'a RequestSummary,
    preferences: &'a Preferences,
    models: &'a [Model],
}

/// Doubts about a model. Fewer doubts sort first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Doubt {
    /// Even the cheapest endpoint costs more than `provider.max_price`.
    too_dear: bool,
    /// The model does not state whether it can do what the request needs.
    silent: bool,
}

impl<'a> Fitting<'a> {
    pub(super) fn new(
        request: &'a RequestSummary,
        preferences: &'a Preferences,
        models: &'a [Model],
    ) -> Self {
        Self { request, preferences, models }
    }

    /// Whether a model can carry the request. Unknown lengths and unstated abilities count as
    /// sufficient.
    pub(super) fn fits(&self, index: usize) -> bool {
        let Some(model) = self.models.get(index) else { return false };
        let long_enough = |limit: u32, wanted: u32| limit == 0 || wanted <= limit;
        let able = |need: &String| model.supports.is_empty() || model.supports.contains(need);
        let paid = must_be_free(self.request, 0) && !is_free(&model.price);
        !paid
            && long_enough(model.context_length, tokens(self.request))
            && long_enough(model.max_output, self.request.max_output_tokens.unwrap_or(0))
            && self.request.needs.iter().all(able)
    }

    /// The doubts about a model that fits.
    pub(super) fn doubt(&self, model: &Model) -> Doubt {
        let price = &model.price;
        Doubt {
            too_dear: !self.preferences.max_price.allows(price.input, price.output, price.image),
            silent: !self.request.needs.is_empty() && model.supports.is_empty(),
        }
    }
}
