//! Determines what could answer a request: the models that it names or a model router chooses,
//! their endpoints, and the summary for the router.

use super::Job;
use crate::Engine;
use crate::catalog::{Endpoint, Lack, Miss, Model, ModelKind};
use crate::credential::Credentials;
use crate::random::random_seed;
use crate::refusal::{Refusal, printable};
use crate::request::ResponsesRequest;
use crate::routing;
use cofferdam_runtime::wire::{Purpose, RequestSummary};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The candidates, each with the index of its model, and the summary that the router gets.
pub(super) struct RoutingPlan {
    pub(super) candidates: Vec<(u32, Arc<Endpoint>)>,
    pub(super) summary: RequestSummary,
}

impl Job {
    /// Lets a model router choose the models, if the request names one.
    pub(super) async fn choose_models(&mut self) -> Result<(), Refusal> {
        if !self.engine.names_model_router(&self.request) {
            return Ok(());
        }
        self.find_session();
        let remembered = self.remembered();
        let catalog = &self.engine.parts.catalog;
        let is_answering = |model: &&Arc<Model>| model.kind == ModelKind::Responses;
        let named = self.request.models.iter().filter_map(|slug| catalog.find(slug).filter(is_answering));
        let beside: Vec<Arc<Model>> = named.map(Arc::clone).collect();
        let summary = |slug: &str, request: &ResponsesRequest| summary(slug, request, &beside);
        let Self { engine, request, context, own_keys, .. } = self;
        let serves = |endpoint: &Endpoint, request: &ResponsesRequest| {
            endpoint.misses(request, own_keys.contains(&endpoint.provider.name)).is_none()
        };
        self.chosen_models =
            engine.choose_models(request, context, summary, serves, remembered, random_seed()).await?;
        Ok(())
    }

    /// Finds the providers for which the caller has a credential of its own. Done only for requests
    /// with hosted tools or items, because whether an endpoint takes those may depend on it.
    pub(super) async fn look_for_own_keys(&mut self) {
        let Self { engine, caller, context, request, .. } = self;
        if request.hosted().next().is_none() {
            return;
        }
        let credentials = Credentials { store: &engine.parts.store, caller, request_id: &context.request_id };
        let mut seen = BTreeSet::new();
        for endpoint in engine.parts.catalog.endpoints() {
            let provider = &endpoint.provider;
            if seen.insert(&provider.name) && credentials.has_byok(provider).await {
                self.own_keys.insert(provider.name.clone());
            }
        }
    }

    /// The endpoint that answered this conversation last, by the id of its health.
    pub(super) fn remembered(&self) -> Option<u64> {
        let memory = &self.engine.parts.memory;
        memory.sessions.endpoint(self.session?, memory.clock.monotonic_ms())
    }

    fn find_session(&mut self) {
        let sessions = &self.engine.parts.memory.sessions;
        let header = self.options.session_header.as_deref();
        self.session = sessions.find(&self.caller, &self.trace.requested, header, &self.request);
    }

    pub(super) fn plan(&mut self) -> Result<RoutingPlan, Refusal> {
        let plan = self.candidates()?;
        // With a single candidate there is no choice, so the conversation is not remembered.
        if self.session.is_none() && plan.candidates.len() > 1 {
            self.find_session();
        }
        Ok(plan)
    }

    /// Checks that the models exist that the request names, unless a model router is to choose.
    ///
    /// # Errors
    /// 404 and 400, as [`routing::find_models`].
    pub(super) fn check_models(&self) -> Result<(), Refusal> {
        let Self { engine, request, .. } = self;
        if engine.names_model_router(request) {
            return Ok(());
        }
        routing::find_models(&engine.parts.catalog, &request.models, ModelKind::Responses).map(drop)
    }

    fn candidates(&self) -> Result<RoutingPlan, Refusal> {
        let request = &self.request;
        let models = routing::find_models(&self.engine.parts.catalog, &request.models, ModelKind::Responses)?;
        let misses =
            |endpoint: &Endpoint| endpoint.misses(request, self.own_keys.contains(&endpoint.provider.name));
        let candidates = routing::candidates(&models, |endpoint| misses(endpoint).is_none());
        if candidates.is_empty() {
            let all = routing::candidates(&models, |_| true);
            return Err(match all.first().and_then(|(_, endpoint)| misses(endpoint)) {
                Some(miss) => untaken(&self.engine, &miss),
                None => Refusal::not_found("No endpoints found for this model"),
            });
        }
        let summary = summary(&self.trace.requested, request, &models);
        Ok(RoutingPlan { candidates, summary })
    }
}

/// The summary of the request for routers. `requested` is its first model as the client wrote it.
fn summary(requested: &str, request: &ResponsesRequest, models: &[Arc<Model>]) -> RequestSummary {
    RequestSummary {
        preferences: request.provider.json.to_vec(),
        route: request.route.map(|route| route.as_str().to_owned()),
        service_tier: request.service_tier.as_str().to_owned(),
        parameters: request.parameters.iter().map(|&name| name.to_owned()).collect(),
        needs: request.needs.iter().map(|need| need.as_str().to_owned()).collect(),
        input_tokens: request.input_tokens,
        max_output_tokens: request.max_output_tokens,
        streamed: request.stream,
        ..routing::summary(Purpose::Responses, requested, models)
    }
}

/// The refusal for a tool or an item that none of the endpoints takes.
fn untaken(engine: &Engine, miss: &Miss<'_>) -> Refusal {
    let (path, type_name, lack) = match miss {
        Miss::Tool(tool, lack) => (tool.source.place.to_string(), tool.type_name.as_str(), lack),
        Miss::Item(hosted, lack) => {
            (hosted.path.clone(), hosted.type_name.as_deref().unwrap_or_default(), lack)
        }
    };
    let at = |name: &str| match name {
        "" => path.clone(),
        name => format!("{path}.{}", printable(name)),
    };
    // If this host has a tool of its own for the type, the member that prevents its use is the more
    // helpful reason.
    let odd = match miss {
        Miss::Tool(tool, Lack::Tool) if engine.hosted_substitute_for(type_name).is_some() => {
            tool.unknown_member()
        }
        _ => None,
    };
    match odd.map(Lack::Member).as_ref().unwrap_or(lack) {
        Lack::Tool => {
            let mut endpoints = engine.parts.catalog.endpoints();
            let why = match endpoints.any(|endpoint| endpoint.has_tool(type_name)) {
                true => "offered by any endpoint of this model",
                false => "available on this host",
            };
            Refusal::invalid(format!("{path}.type \"{}\" is not {why}", printable(type_name)))
        }
        Lack::Member(name) => {
            Refusal::invalid(format!("{} is not taken by any endpoint of this model", at(name)))
        }
        Lack::Stored(name) => Refusal::invalid(format!(
            "{} names something stored at a provider, and no endpoint of this model lists it",
            at(name)
        )),
    }
}

/// The stage of the routing metadata that lists what was left out of the request at the endpoint
/// that answered; `None` if nothing was. `is_byok`: the caller's own credential was used.
pub(super) fn left_out(endpoint: &Endpoint, is_byok: bool, request: &ResponsesRequest) -> Option<Value> {
    let left = request.all_tools().filter(|tool| endpoint.leaves_out(tool, is_byok));
    let left: Vec<Value> =
        left.map(|tool| json!({ "path": tool.source.place.to_string(), "type": tool.type_name })).collect();
    (!left.is_empty()).then(|| {
        json!({
            "type": "tools",
            "name": "left-out",
            "summary": format!("left_out={}", left.len()),
            "data": { "left_out": left },
        })
    })
}
