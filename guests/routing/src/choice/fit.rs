//! Whether a model can carry the request, and how surely.

use super::Model;
use crate::endpoint::Request;
use crate::preferences::Preferences;

/// The request's needs against the models.
pub(super) struct Fitting<'a> {
    request: &'a Request,
    preferences: &'a Preferences,
    models: &'a [Model],
}

/// Doubts about a model, fewer first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Doubt {
    /// Even its cheapest endpoint is dearer than `provider.max_price`.
    too_dear: bool,
    /// It does not state whether it can do what the request needs.
    silent: bool,
}

impl<'a> Fitting<'a> {
    pub(super) fn new(request: &'a Request, preferences: &'a Preferences, models: &'a [Model]) -> Self {
        Self { request, preferences, models }
    }

    /// Unknown lengths and unstated abilities are given the benefit of the doubt.
    pub(super) fn fits(&self, index: usize) -> bool {
        let Some(model) = self.models.get(index) else { return false };
        let long_enough = |limit: u32, wanted: u32| limit == 0 || wanted <= limit;
        let able = |need: &String| model.supports.is_empty() || model.supports.contains(need);
        let paid = self.request.must_be_free(0) && !model.price.is_free();
        !paid
            && long_enough(model.context_length, self.request.tokens())
            && long_enough(model.max_output, self.request.max_output_tokens.unwrap_or(0))
            && self.request.needs.iter().all(able)
    }

    /// What stands against a model that fits.
    pub(super) fn doubt(&self, model: &Model) -> Doubt {
        let price = &model.price;
        Doubt {
            too_dear: !self.preferences.max_price.allows(price.input, price.output, price.image),
            silent: !self.request.needs.is_empty() && model.supports.is_empty(),
        }
    }
}
