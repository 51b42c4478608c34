//! The capabilities of a request's plugins: other hosts, the list of models, models to ask, the
//! request itself, and bytes that a plugin keeps for the request.

use super::PluginScope;
use super::deferred::{self, Deferred};
use crate::Engine;
use crate::assembler::approvals::Approvals;
use crate::assembler::question_progress::Reporter;
use crate::plugins::http_capability::HttpCapability;
use crate::plugins::questions::{ModelCapability, QuestionScope};
use crate::request::ResponsesRequest;
use crate::timeline::Timeline;
use bytes::Bytes;
use cofferdam_runtime::services::{DeferredTools, ModelListing, RequestView, Scratch};
use cofferdam_runtime::{Plugin, Services};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// The capabilities of one request, for each of its tools.
pub(crate) struct RequestCapabilities {
    http: Arc<HttpCapability>,
    catalog: Arc<dyn ModelListing>,
    view: Arc<RequestSnapshot>,
    shared: SharedPluginState,
    ask: ModelCapability,
    approvals: Approvals,
    /// Where the calls of these plugins are noted.
    timeline: Timeline,
}

/// What all calls of one request's plugins share: their scratch stores, by plugin. Clones share the same.
#[derive(Clone, Default)]
pub(crate) struct SharedPluginState {
    scratches: Arc<Mutex<BTreeMap<String, Scratch>>>,
}

impl SharedPluginState {
    fn scratch_of(&self, plugin: &str) -> Scratch {
        let mut scratches = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
        scratches.entry(plugin.to_owned()).or_default().clone()
    }
}

impl RequestCapabilities {
    pub(crate) fn new(scope: PluginScope<'_>, request: &ResponsesRequest) -> Self {
        let PluginScope { engine, caller, context, shared, questions, timeline } = scope;
        let deferred = deferred::deferred(&request.tools);
        let state = ViewState { input: request.input_items(), ..ViewState::default() };
        let view = RequestSnapshot { deferred, state: Mutex::new(state) };
        let http = HttpCapability::new(engine, caller, &context.request_id, questions.http());
        Self {
            ask: ModelCapability::new(engine, caller, questions, &http),
            http,
            catalog: Arc::new(Models(Arc::clone(engine))),
            view: Arc::new(view),
            shared: shared.clone().unwrap_or_default(),
            approvals: Approvals::new(&engine.parts.store, caller),
            timeline: timeline.here(),
        }
    }

    /// The host services for one call into `plugin`. What they do is noted in `timeline`.
    pub(crate) fn services(&self, plugin: &Plugin, timeline: &Timeline) -> Services {
        Services {
            http: Some(self.http.noted_in(timeline)),
            ask: Some(Arc::new(self.ask.noted_in(timeline))),
            depth: self.ask.questions().depth(),
            catalog: Some(Arc::clone(&self.catalog)),
            request: Some(Arc::clone(&self.view) as Arc<dyn RequestView>),
            deferred: Some(Arc::clone(&self.view) as Arc<dyn DeferredTools>),
            scratch: self.shared.scratch_of(plugin.name()),
            ..Services::default()
        }
    }

    /// Like [`Self::services`], but for a call that reports the progress of its questions.
    pub(crate) fn reporting_services(
        &self,
        plugin: &Plugin,
        reporter: Reporter,
        timeline: &Timeline,
    ) -> Services {
        let ask = self.ask.noted_in(timeline).reporting(reporter);
        Services { ask: Some(Arc::new(ask)), ..self.services(plugin, timeline) }
    }

    /// Where the calls of these plugins are noted.
    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The plugins' requests to other hosts.
    pub(crate) fn http(&self) -> &Arc<HttpCapability> {
        &self.http
    }

    /// The ids of approval requests.
    pub(crate) fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    /// The scope of the questions that the request's plugins ask.
    pub(crate) fn questions(&self) -> &QuestionScope {
        self.ask.questions()
    }

    /// The request as tools see it.
    pub(crate) fn view(&self) -> &RequestSnapshot {
        &self.view
    }
}

/// The models of the configuration that the request began with.
struct Models(Arc<Engine>);

impl ModelListing for Models {
    fn models(&self) -> Vec<u8> {
        self.0.catalog().models_json().to_string().into_bytes()
    }
}

/// The request being served, which grows with each turn.
pub(crate) struct RequestSnapshot {
    deferred: Vec<Deferred>,
    state: Mutex<ViewState>,
}

#[derive(Default)]
struct ViewState {
    /// The items of the input, comma-separated; rendered for models as soon as the functions of the
    /// tools are known.
    input: Bytes,
    /// What was added to the input since.
    items: Vec<Bytes>,
    /// Names of deferred functions that a tool search has found.
    loaded: BTreeSet<String>,
}

impl RequestSnapshot {
    /// Sets the beginning of the transcript to the input as rendered for models.
    pub(crate) fn replace_input(&self, input: &Bytes) {
        self.lock().input = input.clone();
    }

    /// Adds items to the transcript.
    pub(crate) fn add(&self, items: &[Bytes]) {
        self.lock().items.extend_from_slice(items);
    }

    /// The items added so far.
    pub(crate) fn added(&self) -> Vec<Bytes> {
        self.lock().items.clone()
    }

    /// Whether a tool search has found this deferred function.
    pub(crate) fn is_loaded(&self, name: &str) -> bool {
        self.lock().loaded.contains(name)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ViewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestView for RequestSnapshot {
    fn transcript(&self) -> Vec<u8> {
        let state = self.lock();
        array(std::iter::once(&state.input).chain(&state.items).filter(|part| !part.is_empty()))
    }
}

impl DeferredTools for RequestSnapshot {
    fn all(&self) -> Vec<u8> {
        array(self.deferred.iter().map(|tool| &tool.json))
    }

    fn load(&self, names: Vec<String>) {
        let known: HashSet<&str> = self.deferred.iter().map(|tool| tool.name.as_str()).collect();
        self.lock().loaded.extend(names.into_iter().filter(|name| known.contains(name.as_str())));
    }
}

fn array<'a>(parts: impl Iterator<Item = &'a Bytes>) -> Vec<u8> {
    let mut out = vec![b'['];
    for (index, part) in parts.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(part);
    }
    out.push(b']');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_transcript_has_the_input_and_the_items_added_since() {
        let body = br#"{"model":"a/b","input":"Hi"}"#;
        let input = ResponsesRequest::parse(body, &[]).unwrap().input_items();
        let tool = |name: &str| Deferred {
            name: name.to_owned(),
            json: Bytes::from(json!({"type": "function", "name": name}).to_string()),
        };
        let deferred = vec![tool("f"), tool("g")];
        let state = ViewState { input, ..ViewState::default() };
        let view = RequestSnapshot { deferred, state: Mutex::new(state) };
        view.add(&[Bytes::from_static(b"{\"n\":1}"), Bytes::from_static(b"{\"n\":2}")]);
        let transcript: Value = serde_json::from_slice(&view.transcript()).unwrap();
        assert_eq!(transcript[0]["content"][0]["text"], "Hi");
        assert_eq!(transcript[2], json!({"n": 2}));
        let deferred: Value = serde_json::from_slice(&view.all()).unwrap();
        assert_eq!(deferred[1]["name"], "g");
        view.load(vec!["g".to_owned(), "unknown".to_owned()]);
        assert!(view.is_loaded("g") && !view.is_loaded("f") && !view.is_loaded("unknown"));
    }
}
