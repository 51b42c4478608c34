//! Whether a conversation that is too long is cut here. `truncation: auto` asks for it: where an endpoint's dialect
//! has a truncation of its own the provider cuts, elsewhere the installed hook for context compression does, as if
//! the request had asked for it. `disabled` forbids what small models have by default, too.

use crate::Engine;
use crate::plugins::hooks::are_small;
use crate::request::{ResponsesRequest, Truncation};

impl Engine {
    /// Whether the hook for context compression is due although the request does not name it.
    pub(crate) fn must_fit(&self, request: &ResponsesRequest) -> bool {
        match request.truncation {
            None => are_small(self.catalog(), &request.models),
            Some(Truncation::Auto) => !self.is_cut_there(request),
            Some(Truncation::Disabled) => false,
        }
    }

    /// Whether every endpoint of the models named cuts by itself.
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
