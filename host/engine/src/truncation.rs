//! `truncation: auto`: a conversation that is too long is cut to fit. Where an endpoint's dialect has a
//! truncation of its own, the provider cuts; elsewhere the installed hook for context compression does, as if
//! the request had asked for it.

use crate::Engine;
use crate::request::ResponsesRequest;

impl Engine {
    /// Whether `truncation: auto` is ours to carry out: where the request has it and not every endpoint of its
    /// models cuts by itself.
    pub(crate) fn must_truncate(&self, request: &ResponsesRequest) -> bool {
        if !request.truncates {
            return false;
        }
        let models = request.models.iter().filter_map(|slug| self.catalog().find(slug));
        let mut endpoints = models.flat_map(|model| &model.endpoints).peekable();
        let cut_there = endpoints.peek().is_some()
            && endpoints.all(|endpoint| {
                let dialect = endpoint.provider.adapter.manifest().provider.as_ref();
                dialect.is_some_and(|dialect| dialect.truncates)
            });
        !cut_there
    }
}
