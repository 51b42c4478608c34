//! Decides whether this host shortens a conversation that is too long. `truncation: auto` asks for
//! it: if an endpoint's dialect has a truncation of its own the provider shortens, otherwise the
//! installed hook for context compression does, as if the request had named it. `disabled` also
//! forbids the default of small models.

use crate::Engine;
use crate::plugins::hooks::are_small;
use crate::request::{ResponsesRequest, Truncation};

impl Engine {
    /// Whether the hook for context compression is needed although the request does not name it.
    pub(crate) fn must_fit(&self, request: &ResponsesRequest) -> bool {
        match request.truncation {
            None => are_small(self.catalog(), &request.models),
            Some(Truncation::Auto) => !self.is_cut_there(request),
            Some(Truncation::Disabled) => false,
        }
    }

    /// Whether every endpoint of the models named truncates by itself.
    fn is_cut_there(&self, request: &ResponsesRequest) -> bool {
        let models = request.models.iter().filter_map(|slug| self.catalog().find(slug));
        let mut endpoints = models.flat_map(|model| &model.endpoints).peekable();
        endpoints.peek().is_some()
            && endpoints.all(|endpoint| {
                let dialect = endpoint.provider.adapter.manifest().provider.as_ref();
                dialect.is_some_and(|dialect| dialect.truncates)
            })
    }
}
