//! What the host offers to the guests of one request: the doors that lead out
//! of the sandbox, as small traits with plain types. Who serves the request
//! implements them; a door that is absent answers as if it were not granted.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use crate::grant::Grant;
use crate::manifest::Import;
use crate::wire::{Answer, Failure, HttpError, HttpRequest, HttpResponse, ScratchError, ToolCallError};

/// What a door returns: traits stay object safe, implementations stay `async`.
pub type Opening<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The way to other hosts, implemented over the egress crate.
pub trait HttpDoor: Send + Sync {
    /// Sends one request of `plugin` under its grant. The implementation checks
    /// the host against the grant, addresses, methods, headers and secrets.
    fn send<'a>(
        &'a self,
        plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpResponse, HttpError>>;

    /// The same up to the head of the answer, whose body is then read piece by piece.
    fn open<'a>(
        self: Arc<Self>,
        plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpExchange, HttpError>>;
}

/// An answer of which no more than the head has come.
pub struct HttpExchange {
    /// The status.
    pub status: u16,
    /// The headers that a guest may read.
    pub headers: Vec<(String, String)>,
    /// The rest.
    pub body: Box<dyn HttpBody>,
}

impl From<HttpResponse> for HttpExchange {
    /// An answer that has come whole.
    fn from(response: HttpResponse) -> Self {
        let HttpResponse { status, headers, body, .. } = response;
        Self { status, headers, body: Box::new(Whole(body)) }
    }
}

/// A body in one piece.
struct Whole(Vec<u8>);

impl HttpBody for Whole {
    fn read(&mut self) -> Opening<'_, Result<Vec<u8>, HttpError>> {
        let piece = std::mem::take(&mut self.0);
        Box::pin(std::future::ready(Ok(piece)))
    }
}

/// A body that is read piece by piece. Dropping it closes its connection.
pub trait HttpBody: Send {
    /// The next piece, empty at the end.
    fn read(&mut self) -> Opening<'_, Result<Vec<u8>, HttpError>>;
}

/// A question of a guest to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Which plugin asks.
    pub plugin: String,
    /// The Responses request as the guest wrote it: foreign bytes.
    pub request: Vec<u8>,
    /// How deep this question is: 1 when asked for a client's own request. Calls
    /// into plugins made while answering it carry this depth in [`Services`].
    pub depth: u8,
    /// Whether it is one of several that were asked together, through `model-panel`.
    pub in_panel: bool,
}

/// How deep questions nest: a guest may ask, and a guest that serves that question may ask once more.
pub const QUESTION_DEPTH_MAX: u8 = 2;

/// Asking a model: the one callback that points up.
pub trait Ask: Send + Sync {
    /// Answers, at the cost of the request being served.
    fn ask(&self, question: Question) -> Opening<'_, Result<Answer, Failure>>;
}

/// Running a server tool for a hook.
pub trait ToolDoor: Send + Sync {
    /// Runs `function` of the tool with this type; returns what a model would be
    /// told. `depth` is as in [`Question`].
    fn call<'a>(&'a self, call: ToolCall<'a>) -> Opening<'a, Result<Vec<u8>, ToolCallError>>;
}

/// One call of [`ToolDoor`].
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    /// Which plugin calls.
    pub plugin: &'a str,
    /// The tool type without prefix.
    pub tool: &'a str,
    /// The tool's settings, JSON.
    pub settings: &'a [u8],
    /// The function.
    pub function: &'a str,
    /// Its arguments, JSON.
    pub arguments: &'a [u8],
    /// How deep the call is, from 1.
    pub depth: u8,
}

/// The list of models.
pub trait Catalog: Send + Sync {
    /// A JSON array of model objects, as `GET /v1/models` shows them.
    fn models(&self) -> Vec<u8>;
}

/// Function tools of the request whose loading was deferred.
pub trait DeferredTools: Send + Sync {
    /// All of them, a JSON array.
    fn all(&self) -> Vec<u8>;
    /// Offers these from the next turn on; unknown names are ignored.
    fn load(&self, names: Vec<String>);
}

/// The request being served.
pub trait RequestView: DeferredTools {
    /// Input items and the output items so far, a JSON array.
    fn transcript(&self) -> Vec<u8>;
}

/// The doors of one call. The default has none.
#[derive(Clone, Default)]
pub struct Services {
    /// For `http`.
    pub http: Option<Arc<dyn HttpDoor>>,
    /// For `model`.
    pub ask: Option<Arc<dyn Ask>>,
    /// For `tool-call`.
    pub tools: Option<Arc<dyn ToolDoor>>,
    /// For `catalog`.
    pub catalog: Option<Arc<dyn Catalog>>,
    /// For `request`.
    pub request: Option<Arc<dyn RequestView>>,
    /// For `deferred-tools`; only for the tool that finds them.
    pub deferred: Option<Arc<dyn DeferredTools>>,
    /// For `scratch`: one per plugin and request, shared by its calls.
    pub scratch: Scratch,
    /// 0 for a client's own request, [`Question::depth`] while answering one.
    pub depth: u8,
}

impl Services {
    /// Without the doors of imports that are not granted.
    pub(crate) fn within(mut self, grant: &Grant) -> Self {
        let open = |import| grant.imports.contains(&import);
        self.http = self.http.filter(|_| open(Import::Http));
        self.ask = self.ask.filter(|_| open(Import::Model));
        self.tools = self.tools.filter(|_| open(Import::ToolCall));
        self.catalog = self.catalog.filter(|_| open(Import::Catalog));
        self.request = self.request.filter(|_| open(Import::Request));
        self.deferred = self.deferred.filter(|_| open(Import::DeferredTools));
        self
    }
}

/// All values of one plugin in one request together.
pub const SCRATCH_BYTES_MAX: usize = 1024 * 1024;
/// Length of a key.
pub const SCRATCH_KEY_BYTES_MAX: usize = 128;
/// Number of keys: empty values are not free either.
pub const SCRATCH_KEYS_MAX: usize = 1024;

/// Bytes a plugin keeps between its calls of one request. Clones share them.
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
