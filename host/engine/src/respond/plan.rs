//! What could answer a request: the models it names or a model router chooses, their endpoints, and what the
//! router is told.

use super::Job;
use crate::catalog::{Endpoint, Model, ModelKind};
use crate::refusal::Refusal;
use crate::request::{RequestTool, ResponsesRequest, ToolClass};
use crate::tools::{ServerTools, dialect_has};
use crate::{random_seed, routing};
use cofferdam_runtime::wire::{Purpose, RequestSummary};
use std::sync::Arc;

/// What could be tried, and what the router is told.
pub(super) struct Plan {
    pub(super) candidates: Vec<(u32, Arc<Endpoint>)>,
    pub(super) summary: RequestSummary,
}

impl Job {
    /// Has models chosen where the request names a model router.
    pub(super) async fn choose_models(&mut self) -> Result<(), Refusal> {
        let summary = |slug: &str, request: &ResponsesRequest| summary(slug, request, &[]);
        let Self { engine, request, context, tools, .. } = self;
        let serves = |endpoint: &Endpoint, request: &ResponsesRequest| {
            request.tools.iter().enumerate().all(|tool| offers(endpoint, tool, tools.as_deref()))
        };
        self.chosen_models = engine.choose_models(request, context, summary, serves, random_seed()).await?;
        Ok(())
    }

    pub(super) fn plan(&self) -> Result<Plan, Refusal> {
        let request = &self.request;
        let models = routing::find_models(&self.engine.parts.catalog, &request.models, ModelKind::Responses)?;
        let tools = self.tools.as_deref();
        let missing = |endpoint: &Endpoint| {
            request.tools.iter().enumerate().find(|tool| !offers(endpoint, *tool, tools))
        };
        let candidates = routing::candidates(&models, |endpoint| missing(endpoint).is_none());
        if candidates.is_empty() {
            let all = routing::candidates(&models, |_| true);
            let tool = all.first().and_then(|(_, endpoint)| missing(endpoint));
            return Err(match tool {
                Some((place, tool)) => tools
                    .and_then(|tools| tools.why_left(place))
                    .map_or_else(|| unoffered(tool), Refusal::clone),
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

fn unoffered(tool: &RequestTool) -> Refusal {
    Refusal::invalid(format!(
        "{}.type \"{}\" is not offered by any endpoint of this model",
        tool.source.place,
        routing::printable(&tool.type_name)
    ))
}

/// Whether the endpoint's dialect has this kind of tool; what the host serves is offered as functions.
fn offers(endpoint: &Endpoint, (place, tool): (usize, &RequestTool), tools: Option<&ServerTools>) -> bool {
    let is_own = tool.kind.class() != ToolClass::Server && dialect_has(endpoint, &tool.type_name);
    is_own || tools.is_some_and(|tools| tools.serves(place)) && dialect_has(endpoint, "function")
}
