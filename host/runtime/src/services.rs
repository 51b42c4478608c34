//! The capabilities that the host gives to the guests of one request, as small traits with plain
//! types. The code that serves the request implements them. A capability that is absent answers as
//! if it were not granted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::grant::Grant;
use crate::manifest::{Import, Manifest, ToolTable};
use crate::wire::{Answer, Failure, HttpError, HttpRequest, HttpResponse, ScratchError, ToolCallError};

pub use crate::bindings::exchange::{HttpBody, HttpExchange, Opening};

/// Finds the values of secrets that were sent with requests.
pub trait SentSearch: Send + Sync {
    /// Whether one of the values occurs in a text, in a spelling that answers are searched for.
    fn finds(&self, text: &str) -> bool;
}

/// The HTTP capability, implemented with the egress crate.
pub trait HttpAccess: Send + Sync {
    /// Sends one request of `plugin` under its grant. The implementation checks host, addresses,
    /// method, headers and secrets.
    fn send<'a>(
        &'a self,
        plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpResponse, HttpError>>;

    /// Same as [`Self::send`], but returns when the head of the answer has arrived. The body is
    /// then read in chunks.
    fn open<'a>(
        self: Arc<Self>,
        plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpExchange, HttpError>>;

    /// A search for the secrets that were sent for `plugin` so far; `None` if none was.
    fn sent_for(&self, _plugin: &str) -> Option<Box<dyn SentSearch>> {
        None
    }
}

/// A question of a guest to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The name of the plugin that asks.
    pub plugin: String,
    /// The Responses request as the guest wrote it: untrusted bytes.
    pub request: Vec<u8>,
    /// Nesting depth of the question: 1 for a question put while a client's request is served, 2 for
    /// one put while that is answered. Calls into plugins that are made while answering it have
    /// this depth in [`Services`].
    pub depth: u8,
    /// Whether the question is one of several that were asked together through `model-panel`.
    pub in_panel: bool,
}

/// Largest nesting depth of questions: a guest may ask a model, and a guest that serves that
/// question may ask once more.
pub const QUESTION_DEPTH_MAX: u8 = 2;

/// The capability to ask a model. The one callback from this crate into the engine that serves a
/// whole request.
pub trait Ask: Send + Sync {
    /// Answers a question. The cost is charged to the request being served.
    fn ask(&self, question: Question) -> Opening<'_, Result<Answer, Failure>>;
}

/// The capability to run a server tool, for hooks.
pub trait ToolAccess: Send + Sync {
    /// Runs a function of a server tool and returns the output that a model would get.
    fn call<'a>(&'a self, call: ToolCall<'a>) -> Opening<'a, Result<Vec<u8>, ToolCallError>>;
}

/// One call through [`ToolAccess`].
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    /// The name of the plugin that calls.
    pub plugin: &'a str,
    /// The tool type without a prefix.
    pub tool: &'a str,
    /// The tool's settings as JSON.
    pub settings: &'a [u8],
    /// The name of the tool's function.
    pub function: &'a str,
    /// The function's arguments as JSON.
    pub arguments: &'a [u8],
    /// Nesting depth, counted as in [`Question::depth`].
    pub depth: u8,
}

/// The capability to list models.
pub trait ModelListing: Send + Sync {
    /// A JSON array of model objects, as `GET /v1/models` shows them.
    fn models(&self) -> Vec<u8>;
}

/// The capability to find and load function tools whose loading the client deferred.
pub trait DeferredTools: Send + Sync {
    /// All deferred functions, as a JSON array.
    fn all(&self) -> Vec<u8>;
    /// Offers these functions to the model from the next turn on. Unknown names are ignored.
    fn load(&self, names: Vec<String>);
}

/// The capability to read the request being served.
pub trait RequestView: DeferredTools {
    /// The input items and the output items so far, as a JSON array.
    fn transcript(&self) -> Vec<u8>;
}

/// The processor time of calls, readable when they have ended. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Spent(Arc<AtomicU64>);

impl Spent {
    /// The processor time so far.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn add(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }
}

/// The capabilities of one call. The default has none.
#[derive(Clone, Default)]
pub struct Services {
    /// For `http`.
    pub http: Option<Arc<dyn HttpAccess>>,
    /// For `model`.
    pub ask: Option<Arc<dyn Ask>>,
    /// For `tool-call`.
    pub tools: Option<Arc<dyn ToolAccess>>,
    /// For `catalog`.
    pub catalog: Option<Arc<dyn ModelListing>>,
    /// For `request`.
    pub request: Option<Arc<dyn RequestView>>,
    /// For `deferred-tools`. Only the tool of the type [`ToolTable::FINDS_DEFERRED`] gets it.
    pub deferred: Option<Arc<dyn DeferredTools>>,
    /// For `scratch`: one storage per plugin and request, shared by its calls.
    pub scratch: Scratch,
    /// Gets the processor time of the call.
    pub spent: Option<Spent>,
    /// Nesting depth: 0 for a client's own request, [`Question::depth`] while answering a question.
    pub depth: u8,
}

impl Services {
    /// Removes the capabilities of imports that a plugin is not granted, and deferred functions for all but
    /// the tool that finds them.
    pub(crate) fn within(mut self, grant: &Grant, manifest: &Manifest) -> Self {
        let open = |import| grant.imports.contains(&import);
        let finds = |tool: &ToolTable| tool.tool_type == ToolTable::FINDS_DEFERRED;
        let finds_deferred = manifest.tool.as_ref().is_some_and(finds);
        self.http = self.http.filter(|_| open(Import::Http));
        self.ask = self.ask.filter(|_| open(Import::Model));
        self.tools = self.tools.filter(|_| open(Import::ToolCall));
        self.catalog = self.catalog.filter(|_| open(Import::Catalog));
        self.request = self.request.filter(|_| open(Import::Request));
        self.deferred = self.deferred.filter(|_| finds_deferred && open(Import::DeferredTools));
        self
    }
}

/// Length limit of all values of one plugin in one request together, in bytes.
pub const SCRATCH_BYTES_MAX: usize = 1024 * 1024;
/// Length limit of a key, in bytes.
pub const SCRATCH_KEY_BYTES_MAX: usize = 128;
/// Number of keys. Bounded because keys with empty values take memory too.
pub const SCRATCH_KEYS_MAX: usize = 1024;

/// The values that a plugin keeps between its calls of one request. Clones share them.
#[derive(Clone, Default)]
pub struct Scratch(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Scratch {
    pub(crate) fn read(&self, key: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(crate) fn keep(&self, key: String, value: Vec<u8>) -> Result<(), ScratchError> {
        if key.is_empty() || key.len() > SCRATCH_KEY_BYTES_MAX {
            return Err(ScratchError::InvalidKey);
        }
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = values.iter().filter(|(other, _)| **other != key);
        let (count, bytes) = others.fold((0, 0), |(count, sum), (_, value)| (count + 1, sum + value.len()));
        if bytes + value.len() > SCRATCH_BYTES_MAX || count >= SCRATCH_KEYS_MAX {
            return Err(ScratchError::Full);
        }
        values.insert(key, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_replaces_and_counts_all_values_together() {
        let scratch = Scratch::default();
        assert_eq!(scratch.read("a"), None);
        scratch.keep("a".into(), vec![1; SCRATCH_BYTES_MAX]).unwrap();
        assert!(matches!(scratch.keep("b".into(), vec![1]), Err(ScratchError::Full)));
        let shared = scratch.clone();
        shared.keep("a".into(), vec![2]).unwrap();
        shared.keep("b".into(), vec![1]).unwrap();
        assert_eq!(scratch.read("a"), Some(vec![2]));
    }

    #[test]
    fn scratch_refuses_bad_keys_and_too_many() {
        let scratch = Scratch::default();
        assert!(matches!(scratch.keep(String::new(), vec![]), Err(ScratchError::InvalidKey)));
        let long = "k".repeat(SCRATCH_KEY_BYTES_MAX + 1);
        assert!(matches!(scratch.keep(long, vec![]), Err(ScratchError::InvalidKey)));
        for index in 0..SCRATCH_KEYS_MAX {
            scratch.keep(format!("k{index}"), vec![]).unwrap();
        }
        assert!(matches!(scratch.keep("one more".into(), vec![]), Err(ScratchError::Full)));
    }
}
