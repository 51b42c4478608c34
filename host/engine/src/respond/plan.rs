//! What could answer a request: the models it names or a model router chooses, their endpoints, and what the
//! router is told.

use super::Job;
use crate::catalog::{Catalog, Endpoint, Model, ModelKind};
use crate::refusal::Refusal;
use crate::request::{RequestTool, ResponsesRequest, ToolClass, ToolKind};
use crate::{random_seed, routing};
use cofferdam_runtime::wire::{Purpose, RequestSummary};
use serde_json::{Value, json};
use std::sync::Arc;

/// What could be tried, and what the router is told.
pub(super) struct Plan {
    pub(super) candidates: Vec<(u32, Arc<Endpoint>)>,
    pub(super) summary: RequestSummary,
}

impl Job {
    /// Has models chosen where the request names a model router.
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
        let serves = |endpoint: &Endpoint, request: &ResponsesRequest| missing(endpoint, request).is_none();
        let Self { engine, request, context, .. } = self;
        self.chosen_models =
            engine.choose_models(request, context, summary, serves, remembered, random_seed()).await?;
        Ok(())
    }

    /// The endpoint that answered this conversation last, by the id of its health.
    pub(super) fn remembered(&self) -> Option<u64> {
        let memory = &self.engine.parts.memory;
        memory.sessions.endpoint(self.session?, memory.clock.monotonic_ms())
    }

    fn find_session(&mut self) {
        let sessions = &self.engine.parts.memory.sessions;
        let header = self.options.session_header.as_deref();
        self.session = sessions.find(&self.caller, &self.trail.requested, header, &self.request);
    }

    pub(super) fn plan(&mut self) -> Result<Plan, Refusal> {
        let plan = self.candidates()?;
        // Where there is nothing to choose, nothing is remembered.
        if self.session.is_none() && plan.candidates.len() > 1 {
            self.find_session();
        }
        Ok(plan)
    }

    /// Looks whether the models are there that the request names, unless a model router is to choose.
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

    fn candidates(&self) -> Result<Plan, Refusal> {
        let request = &self.request;
        let models = routing::find_models(&self.engine.parts.catalog, &request.models, ModelKind::Responses)?;
        let candidates = routing::candidates(&models, |endpoint| missing(endpoint, request).is_none());
        if candidates.is_empty() {
            let all = routing::candidates(&models, |_| true);
            let tool = all.first().and_then(|(_, endpoint)| missing(endpoint, request));
            return Err(match tool {
                Some(tool) => unoffered(&self.engine.parts.catalog, tool),
                None => Refusal::not_found("No endpoints found for this model"),
            });
        }
        let summary = summary(&self.trail.requested, request, &models);
        Ok(Plan { candidates, summary })
    }
}

/// What routers are told of the request, whose first model the client wrote like this.
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

/// Why a tool stays without an endpoint.
fn unoffered(catalog: &Catalog, tool: &RequestTool) -> Refusal {
    let mut endpoints = catalog.models().iter().flat_map(|model| &model.endpoints);
    let why = if endpoints.any(|endpoint| endpoint.offers(&tool.type_name)) {
        "offered by any endpoint of this model"
    } else {
        "available on this host"
    };
    let type_name = routing::printable(&tool.type_name);
    Refusal::invalid(format!("{}.type \"{type_name}\" is not {why}", tool.source.place))
}

/// The first tool of a request that an endpoint cannot serve.
fn missing<'r>(endpoint: &Endpoint, request: &'r ResponsesRequest) -> Option<&'r RequestTool> {
    let tools = request.tools.iter().chain(&request.brought);
    let mut lacked = tools.filter(|tool| !offers(endpoint, tool));
    lacked.find(|tool| !is_left_out(tool) || request.tool_choice.needs_search(&request.tools))
}

/// Whether a model at the endpoint can be told of this tool: its dialect has the kind, or it is told as functions.
fn offers(endpoint: &Endpoint, tool: &RequestTool) -> bool {
    match tool.kind.class() {
        ToolClass::Server => endpoint.offers("function"),
        ToolClass::Client | ToolClass::Hosted => {
            endpoint.offers(&tool.type_name) || (tool.is_told_as_functions() && endpoint.offers("function"))
        }
    }
}

/// Whether a tool that an endpoint lacks is left out there: clients offer a search of the web without asking for
/// one. A client that names the endpoint's own search asks for it.
fn is_left_out(tool: &RequestTool) -> bool {
    tool.kind == ToolKind::WebSearch && tool.engine().as_deref() != Some("native")
}

/// What was left out of the request at the endpoint that answered, as a stage of the routing metadata; none where
/// nothing was.
pub(super) fn left_out(endpoint: &Endpoint, request: &ResponsesRequest) -> Option<Value> {
    let tools = request.tools.iter().chain(&request.brought);
    let left = tools.filter(|tool| is_left_out(tool) && !offers(endpoint, tool));
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
