//! `truncation: auto`: a conversation that is too long is cut to fit. Where an endpoint's dialect has a
//! truncation of its own, the provider cuts; elsewhere the installed hook for context compression does, as if
//! the request had asked for it.

use crate::Engine;
use crate::request::{RequestPlugin, ResponsesRequest};
use bytes::Bytes;

/// The id of the hook that cuts conversations.
const COMPRESSION: &str = "context-compression";

impl Engine {
    /// The hook entry that `truncation: auto` stands for, if the request needs one: not where it has an entry
    /// of its own, switched off or not, where no such hook is installed, or where every endpoint of its
    /// models cuts by itself.
    pub(crate) fn truncation(&self, request: &ResponsesRequest) -> Option<RequestPlugin> {
        let has_entry = || request.plugins.iter().any(|entry| entry.id == COMPRESSION);
        let is_installed = || self.hook_ids.iter().any(|id| id == COMPRESSION);
        if !request.truncates || has_entry() || !is_installed() {
            return None;
        }
        let models = request.models.iter().filter_map(|slug| self.catalog().find(slug));
        let mut endpoints = models.flat_map(|model| &model.endpoints).peekable();
        let cut_there = endpoints.peek().is_some()
            && endpoints.all(|endpoint| {
                let dialect = endpoint.provider.adapter.manifest().provider.as_ref();
                dialect.is_some_and(|dialect| dialect.truncates)
            });
        (!cut_there).then(|| RequestPlugin {
            index: request.plugins.len(),
            id: COMPRESSION.to_owned(),
            enabled: true,
            json: Bytes::from_static(br#"{"id":"context-compression"}"#),
        })
    }
}
