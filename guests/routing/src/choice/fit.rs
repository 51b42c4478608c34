//! Whether a model can carry the request, and how certain that is.

use cofferdam_guest_kit::bindings::routing::RequestSummary;

use super::Model;
use crate::constraint::states_required;
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
    /// The preferences seem to exclude it: its cheapest endpoint costs more than `provider.max_price`, or
    /// it does not state its abilities under `provider.require_parameters`. Another of its endpoints may
    /// pass, but nothing is known of them here.
    pub(super) excluded: bool,
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

    /// The doubts about a model; `None` if it cannot carry the request. Unknown lengths and unstated
    /// abilities count as sufficient.
    pub(super) fn doubt(&self, index: usize) -> Option<Doubt> {
        let model = self.models.get(index)?;
        let silent = model.supports.is_empty();
        let long_enough = |limit: u32, wanted: u32| limit == 0 || wanted <= limit;
        let able = |need: &String| silent || model.supports.contains(need);
        let states_required = states_required(self.request, self.preferences, &model.supports);
        let paid = must_be_free(self.request, 0) && !is_free(&model.price);
        let fits = !paid
            && long_enough(model.context_length, tokens(self.request))
            && long_enough(model.max_output, self.request.max_output_tokens.unwrap_or(0))
            && self.request.needs.iter().all(able)
            && (silent || states_required);
        let price = &model.price;
        let too_dear = !self.preferences.max_price.allows(price.input, price.output, price.image);
        fits.then_some(Doubt {
            excluded: too_dear || !states_required,
            silent: silent && !self.request.needs.is_empty(),
        })
    }
}
