//! Routing metadata: what was asked, what was tried and what answered. The routing trace records
//! what happened, never what was planned.

mod params;

pub(crate) use params::params;

use crate::authentication::UsedCredential;
use crate::catalog::Endpoint;
use crate::money::ledger::Charged;
use crate::refusal::{Refusal, status_of};
use crate::request::ProviderPreferences;
use cofferdam_runtime::wire::ErrorKind;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// One attempt at one endpoint.
pub(crate) struct Attempt {
    endpoint: Arc<Endpoint>,
    /// The provider's status; `None` when it sent none.
    pub(crate) status: Option<u16>,
    /// Why it failed; `None` for the attempt that answered.
    pub(crate) error: Option<ErrorKind>,
    /// Whether the provider was reached, or the guest answered without one.
    pub(crate) has_reached: bool,
    /// The client's options for this provider that were not sent.
    dropped_options: Vec<String>,
    /// What was charged although it is not the answer.
    pub(crate) charged: Option<Charged>,
}

impl Attempt {
    /// The provider's status. Where there is none, 200 or the status of its error: clients require
    /// a number, and local models and refused connections have none.
    fn effective_status(&self) -> u16 {
        self.status.unwrap_or_else(|| self.error.map_or(200, status_of))
    }
}

/// The trace of a request's routing.
pub(crate) struct RoutingTrace {
    /// The model as the client wrote it.
    pub(crate) requested: String,
    pub(crate) strategy: String,
    pub(crate) region: Option<String>,
    /// The result of [`params()`], where the client asked for metadata.
    pub(crate) params: Option<Value>,
    /// The `provider` object of the request, where the client asked for metadata. It shows which
    /// options were not used.
    pub(crate) preferences: ProviderPreferences,
    /// The number of endpoints of the requested models, before the router chose.
    pub(crate) total: usize,
    /// The candidates in the router's order.
    pub(crate) available: Vec<Arc<Endpoint>>,
    /// The index in `available` of the candidate that answered.
    pub(crate) selected: Option<usize>,
    pub(crate) attempts: Vec<Attempt>,
    /// Milliseconds from the first dispatch to the end of the upstream body.
    pub(crate) generation_ms: Option<u64>,
    /// The caller's own credential was used: for the answer, or without one for the last attempt.
    pub(crate) is_byok: bool,
    /// What was done besides asking the model, one value for each stage.
    pub(crate) pipeline: Vec<Value>,
}

impl RoutingTrace {
    /// An empty trace of a request whose first model is `requested`.
    pub(crate) fn new(requested: &str, region: Option<&str>) -> Self {
        Self {
            requested: requested.to_owned(),
            // Until the endpoints are ordered.
            strategy: "direct".to_owned(),
            region: region.map(str::to_owned),
            params: None,
            preferences: ProviderPreferences::default(),
            total: 0,
            available: Vec::new(),
            selected: None,
            attempts: Vec::new(),
            generation_ms: None,
            is_byok: false,
            pipeline: Vec::new(),
        }
    }

    /// Adds this object to a refusal, if the client asked for it. Internal errors of this host
    /// (500) have none.
    pub(crate) fn beside(&self, mut refusal: Refusal, field: Option<&'static str>) -> Refusal {
        if field.is_some() && refusal.status != 500 {
            refusal.service_metadata = Some(Box::new(self.json()));
        }
        refusal
    }

    /// Records which candidate answered, with which status and credential.
    pub(crate) fn answered(
        &mut self,
        place: usize,
        endpoint: &Arc<Endpoint>,
        status: Option<u16>,
        used: Option<&UsedCredential>,
    ) {
        self.is_byok = used.is_some_and(|used| used.is_byok);
        self.selected = Some(place);
        self.tried(endpoint, status, None, true);
    }

    /// Records an attempt and how it ended.
    pub(crate) fn tried(
        &mut self,
        endpoint: &Arc<Endpoint>,
        status: Option<u16>,
        error: Option<ErrorKind>,
        has_reached: bool,
    ) {
        let provider = &endpoint.provider;
        let given = self.preferences.options_for(&provider.name);
        self.attempts.push(Attempt {
            endpoint: Arc::clone(endpoint),
            status,
            error,
            has_reached,
            dropped_options: given.map(|given| provider.options.sift(given).dropped).unwrap_or_default(),
            charged: None,
        });
    }

    /// Records that an earlier attempt without content is the answer after all.
    pub(crate) fn answered_after_all(&mut self, attempt: usize, place: usize, used: Option<&UsedCredential>) {
        self.is_byok = used.is_some_and(|used| used.is_byok);
        self.selected = Some(place);
        if let Some(attempt) = self.attempts.get_mut(attempt) {
            attempt.error = None;
        }
    }

    /// Records what was charged for the last attempt although it is not the answer.
    pub(crate) fn charged(&mut self, charged: Option<Charged>) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.charged = charged;
        }
    }

    /// Like [`Self::charged`], but for an earlier attempt.
    pub(crate) fn charged_at(&mut self, attempt: usize, charged: Option<Charged>) {
        if let Some(attempt) = self.attempts.get_mut(attempt) {
            attempt.charged = charged;
        }
    }

    /// Whether any provider was reached.
    pub(crate) fn has_reached(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.has_reached)
    }

    /// Records the time since the first endpoint was asked. Called when the answer or the last
    /// error has ended.
    pub(crate) fn ended(&mut self, since_dispatch: Option<Duration>) {
        let reached = since_dispatch.filter(|_| self.has_reached());
        self.generation_ms = reached.map(|since| since.as_millis() as u64);
    }

    /// The object that clients get as `service_metadata` or `openrouter_metadata`.
    pub(crate) fn json(&self) -> Value {
        let available: Vec<Value> = self
            .available
            .iter()
            .enumerate()
            .map(|(place, endpoint)| {
                let (model, provider) = (&endpoint.candidate.model, &endpoint.provider.name);
                json!({ "model": model, "provider": provider, "selected": self.selected == Some(place) })
            })
            .collect();
        let attempts: Vec<Value> = self
            .attempts
            .iter()
            .map(|attempt| {
                let mut entry = json!({
                    "provider": attempt.endpoint.provider.name,
                    "model": attempt.endpoint.candidate.model,
                    "status": attempt.effective_status(),
                });
                let charged = attempt.charged;
                let more = [
                    attempt.error.map(|error| ("error_type", json!(error.as_str()))),
                    charged.map(|charged| ("cost", json!(charged.cost))),
                    charged.filter(|charged| charged.is_estimated).map(|_| ("estimated", json!(true))),
                ];
                if let Some(members) = entry.as_object_mut() {
                    let more = more.into_iter().flatten();
                    members.extend(more.map(|(name, value)| (name.to_owned(), value)));
                }
                if let (false, Some(members)) = (attempt.dropped_options.is_empty(), entry.as_object_mut()) {
                    members.insert("dropped_options".to_owned(), json!(attempt.dropped_options));
                }
                entry
            })
            .collect();
        let mut metadata = json!({
            "requested": self.requested,
            "strategy": self.strategy,
            "region": self.region,
            "summary": self.summary(),
            // 0 means that no provider was reached.
            "attempt": if self.has_reached() { self.attempts.len() } else { 0 },
            "is_byok": self.is_byok,
            "endpoints": { "total": self.total, "available": available },
            "attempts": attempts,
        });
        if let (Some(generation_ms), Some(members)) = (self.generation_ms, metadata.as_object_mut()) {
            members.insert("generation_time".to_owned(), json!(generation_ms));
        }
        if let (Some(params), Some(members)) = (&self.params, metadata.as_object_mut()) {
            members.insert("params".to_owned(), params.clone());
        }
        if let (false, Some(members)) = (self.pipeline.is_empty(), metadata.as_object_mut()) {
            members.insert("pipeline".to_owned(), json!(self.pipeline));
        }
        metadata
    }

    /// Records that the answer failed after it had begun.
    pub(crate) fn broke(&mut self, kind: ErrorKind) {
        self.selected = None;
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.error = Some(kind);
        }
    }

    fn summary(&self) -> String {
        let mut summary = format!("available={}", self.available.len());
        if let Some(endpoint) = self.selected.and_then(|place| self.available.get(place)) {
            summary.push_str(", selected=");
            summary.push_str(&endpoint.provider.name);
        }
        let failed = self.attempts.iter().filter(|attempt| attempt.error.is_some()).count();
        if failed > 0 {
            summary.push_str(&format!(", failed={failed}"));
        }
        summary
    }

    /// The failed attempts except the one at `told`, for `error.metadata.previous_errors`.
    pub(crate) fn previous_errors(&self, told: usize) -> Vec<Value> {
        let others = self.attempts.iter().enumerate().filter(|(place, _)| *place != told);
        others
            .filter(|(_, attempt)| attempt.error.is_some())
            .map(|(_, attempt)| {
                json!({
                    "provider_name": attempt.endpoint.provider.name,
                    "model": attempt.endpoint.candidate.model,
                    "status": attempt.status,
                    "error_type": attempt.error.map(|kind| kind.as_str()),
                })
            })
            .collect()
    }
}
