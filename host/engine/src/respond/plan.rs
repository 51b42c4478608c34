//! Determines what could answer a request: the models that it names or a model router chooses,
//! their endpoints, and the summary for the router.

use super::turns::timed_out;
use super::{Job, ResponseRun};
use crate::Engine;
use crate::catalog::{Endpoint, Lack, Miss, Model, ModelKind};
use crate::memory::session::Session;
use crate::plugins::hooks;
use crate::plugins::tools::{self, PluginScope, ServerTools};
use crate::random::random_seed;
use crate::refusal::{Refusal, printable};
use crate::request::{ProviderPreferences, ResponsesRequest};
use crate::routing::{self, NamedModel, RoutingPlan};
use crate::run::Run;
use crate::scope::RequestScope;
use crate::timeline::{StepType, outcome_of};
use cofferdam_runtime::wire::{Purpose, RequestSummary};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

impl ResponseRun {
    /// Everything up to the choice of an endpoint: hooks, the functions of tools, models. A stream
    /// is kept alive meanwhile.
    pub(super) async fn prepare(&mut self) -> Result<RoutingPlan, Refusal> {
        let Run { entry, deadline, trace, session, .. } = &mut self.run;
        let left = deadline.left();
        let plan = deadline.during(pin!(self.job.plan(session, &trace.requested)), left).await;
        match plan.unwrap_or_else(|_late| Err(timed_out())) {
            Ok(plan) => {
                entry.routed();
                let hosted = self.job.request.hosted().filter_map(|hosted| hosted.type_name.clone());
                entry.offers(hosted.collect());
                Ok(plan)
            }
            Err(refusal) => {
                entry.refuse();
                Err(deadline.final_refusal(refusal))
            }
        }
    }
}

impl Job {
    /// Plans the request. Sets the conversation that it belongs to, if there is a choice of
    /// endpoints. `requested` is the model as the client wrote it.
    async fn plan(&mut self, session: &mut Option<Session>, requested: &str) -> Result<RoutingPlan, Refusal> {
        if !self.hooks.is_empty() || !self.request.tools.is_empty() {
            // Checked before hooks and tools run, because they take time and may cost money.
            self.check_models()?;
        }
        if !self.hooks.is_empty() {
            Box::pin(self.show_request()).await?;
        }
        tools::add_plugin_tools(&self.scope.engine, &mut self.request)?;
        // Which endpoints have a tool themselves depends on the caller's own credentials.
        self.look_for_own_keys().await;
        tools::substitute_hosted_tools(&self.scope.engine, &mut self.request, &self.own_keys);
        if ServerTools::are_asked_for(&self.request)? {
            self.tools = Some(Box::pin(ServerTools::open(self.plugin_scope(), &self.request)).await?);
        } else if self.request.has_server_calls {
            Box::pin(tools::render_calls_as_text(&mut self.request)).await?;
        }
        if self.scope.engine.names_model_router(&self.request) {
            *session = self.find_session(requested);
            Box::pin(self.choose_models(*session)).await?;
        }
        let plan = self.candidates(requested)?;
        // With a single candidate there is no choice, so the conversation is not remembered.
        if session.is_none() && plan.candidates.len() > 1 {
            *session = self.find_session(requested);
        }
        Ok(plan)
    }

    /// Calls the hooks with the request.
    async fn show_request(&mut self) -> Result<(), Refusal> {
        let Self { scope, shared, hooks, request, questions, .. } = self;
        let RequestScope { engine, caller, context, timeline, .. } = &**scope;
        let plugin_scope = PluginScope { engine, caller, context, shared, questions, timeline };
        hooks::on_request(hooks, plugin_scope, request).await
    }

    /// Lets a model router choose the models.
    async fn choose_models(&mut self, session: Option<Session>) -> Result<(), Refusal> {
        let parts = self.scope.parts();
        let remembered = parts.memory.remembered(session);
        let catalog = &parts.catalog;
        let is_answering = |model: &&Arc<Model>| model.kind == ModelKind::Responses;
        let named = self.request.models.iter().filter_map(|slug| catalog.find(slug).filter(is_answering));
        let mut known = BTreeSet::new();
        // A model may be named twice, with different suffixes.
        let beside = named.filter(|model| known.insert(&model.id));
        let beside: Vec<String> = beside.map(|model| model.id.clone()).collect();
        let summary = |slug: &str, request: &ResponsesRequest| summary(slug, request, beside.clone());
        let Self { scope, request, own_keys, .. } = self;
        let serves = |endpoint: &Endpoint, request: &ResponsesRequest| {
            request.provider.allowed.have(&endpoint.candidate)
                && endpoint.misses(request, own_keys.contains(&endpoint.provider.name)).is_none()
        };
        let RequestScope { engine, context, timeline, .. } = &**scope;
        let step = timeline.begin(StepType::ModelChoice, &["model choice"], &[]);
        let seed = session.and_then(|session| session.seed).unwrap_or_else(random_seed);
        let chosen = engine.choose_models(request, context, summary, serves, remembered, seed).await;
        timeline.end(step, outcome_of(&chosen), &[]);
        self.chosen_models = chosen?;
        Ok(())
    }

    /// Finds the providers for which the caller has a credential of its own. Done only for requests
    /// with hosted tools or items, because whether an endpoint takes those may depend on it.
    async fn look_for_own_keys(&mut self) {
        if self.request.hosted().next().is_none() {
            return;
        }
        let credentials = self.scope.credentials();
        let mut seen = BTreeSet::new();
        for endpoint in self.scope.parts().catalog.endpoints() {
            let provider = &endpoint.provider;
            if seen.insert(&provider.name) && credentials.has_byok(provider).await {
                self.own_keys.insert(provider.name.clone());
            }
        }
    }

    /// The conversation that the request belongs to. `requested` is the model as the client wrote it.
    fn find_session(&self, requested: &str) -> Option<Session> {
        let RequestScope { engine, caller, options, .. } = &*self.scope;
        let sessions = &engine.parts.memory.sessions;
        let seed = |parts: &[&[u8]]| engine.parts.store.session_seed(parts);
        sessions.find(caller, requested, options.session_header.as_deref(), &self.request, seed)
    }

    /// Checks that the models exist that the request names, unless a model router is to choose.
    ///
    /// # Errors
    /// 404 and 400, as [`routing::find_models`].
    fn check_models(&self) -> Result<(), Refusal> {
        if self.scope.engine.names_model_router(&self.request) {
            return Ok(());
        }
        self.models().map(drop)
    }

    fn models(&self) -> Result<Vec<NamedModel>, Refusal> {
        routing::find_models(&self.scope.parts().catalog, &self.request.models, ModelKind::Responses)
    }

    fn candidates(&self, requested: &str) -> Result<RoutingPlan, Refusal> {
        let request = &self.request;
        let models = self.models()?;
        let misses =
            |endpoint: &Endpoint| endpoint.misses(request, self.own_keys.contains(&endpoint.provider.name));
        let candidates = routing::candidates(&models, |endpoint| misses(endpoint).is_none());
        if candidates.is_empty() {
            let all = routing::candidates(&models, |_| true);
            return Err(match all.first().and_then(|(_, endpoint)| misses(endpoint)) {
                Some(miss) => untaken(&self.scope.engine, &miss),
                None => Refusal::no_endpoints(),
            });
        }
        let summary = summary(requested, request, NamedModel::ids(&models));
        let ProviderPreferences { allow_fallbacks, allowed, .. } = &request.provider;
        let (allow_fallbacks, allowed) = (*allow_fallbacks, allowed.clone());
        Ok(RoutingPlan { candidates, summary, allow_fallbacks, allowed })
    }
}

/// The summary of the request for routers. `requested` is its first model as the client wrote it.
fn summary(requested: &str, request: &ResponsesRequest, models: Vec<String>) -> RequestSummary {
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
        Miss::Tool(tool, lack) => (tool.source.path.to_string(), tool.type_name.as_str(), lack),
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
        left.map(|tool| json!({ "path": tool.source.path.to_string(), "type": tool.type_name })).collect();
    (!left.is_empty()).then(|| {
        json!({
            "type": "tools",
            "name": "left-out",
            "summary": format!("left_out={}", left.len()),
            "data": { "left_out": left },
        })
    })
}
