//! `POST /v1/responses`: from a body to an answer.

mod outcome;
mod turns;

use crate::assembler::{Assembler, Identity, Outcome, Receipt};
use crate::attempt::{Attempting, Begun};
use crate::catalog::{Endpoint, Model, ModelKind};
use crate::cost::{Cost, no_usage};
use crate::credential::Credentials;
use crate::fallback::Failures;
use crate::hooks::{self, Hook};
use crate::ledger::{Caller, Entry};
use crate::metadata::Trail;
use crate::model_choice;
use crate::pace::{ClientGone, Pace};
use crate::reading::Reading;
use crate::refusal::Refusal;
use crate::request::{RequestTool, ResponsesRequest, ToolClass};
use crate::routing::{self, Route};
use crate::stream::EventStream;
use crate::tools::{Occasion, Scratches, ServerTools};
use crate::{Answer, AnswerBody, Engine, RespondOptions, random_hex, random_seed};
use bytes::Bytes;
use cofferdam_runtime::CallContext;
use cofferdam_runtime::wire::{ErrorKind, Event, Purpose, RequestSummary};
use cofferdam_store::{UsageKind, UsageOutcome};
use outcome::{broken, covered, failed, finished, refused, settled, whole};
use std::sync::Arc;
use tokio::time::Instant;
use turns::Step;

impl Engine {
    /// Answers a request for a response. `body` is the client's JSON.
    ///
    /// # Errors
    /// A [`Refusal`] as long as nothing was promised to the client.
    pub async fn respond(
        self: &Arc<Self>,
        caller: Caller,
        body: &[u8],
        options: RespondOptions,
    ) -> Result<Answer, Refusal> {
        let request = ResponsesRequest::parse(body, &self.hook_ids);
        let request = request.map_err(|error| Refusal::invalid(error.to_string()))?;
        options.check_session(request.session_id.as_deref())?;
        let streamed = request.stream;
        let total = self.parts.timeouts.total;
        let mut job = Job::new(Arc::clone(self), caller, request, options)?;
        if !job.hooks.is_empty() {
            Box::pin(job.show_request()).await?;
        }
        if ServerTools::are_asked_for(&job.request)? {
            job.tools = Some(Box::pin(ServerTools::open(job.occasion(), &job.request)).await?);
        }
        Box::pin(job.choose_models()).await?;
        let plan = job.plan()?;
        let id = format!("resp_{}", job.hex);
        if streamed {
            let stream = EventStream::start(|client| async move {
                let mut pace = Pace::new(Some(client), total);
                job.run(plan, &mut pace).await.map(drop)
            });
            return Ok(Answer { id, body: AnswerBody::Stream(stream.await?) });
        }
        let mut pace = Pace::new(None, total);
        let body = Box::pin(job.run(plan, &mut pace)).await?;
        Ok(Answer { id, body: AnswerBody::Whole(Bytes::from(body)) })
    }
}

/// What could be tried, and what the router is told.
struct Plan {
    candidates: Vec<(u32, Arc<Endpoint>)>,
    summary: RequestSummary,
}

/// The endpoint that answers, with its first events.
struct Chosen {
    endpoint: Arc<Endpoint>,
    begun: Begun,
}

/// One request under way.
struct Job {
    engine: Arc<Engine>,
    caller: Caller,
    request: ResponsesRequest,
    options: RespondOptions,
    hooks: Vec<Hook>,
    context: CallContext,
    hex: String,
    trail: Trail,
    dispatched: Option<Instant>,
    /// The loop of server tools, for a request that has any.
    tools: Option<Box<ServerTools>>,
    /// The endpoints in the router's order.
    order: Vec<Arc<Endpoint>>,
    /// The one that answered the turn before: it has the conversation in its cache, so it is tried first.
    preferred: Option<usize>,
    /// What the turns that are over cost.
    cost: Cost,
    scratches: Option<Scratches>,
    /// What a model router chose, for a request that named one.
    chosen_models: Option<model_choice::Chosen>,
}

impl Job {
    fn new(
        engine: Arc<Engine>,
        caller: Caller,
        request: ResponsesRequest,
        options: RespondOptions,
    ) -> Result<Self, Refusal> {
        let hooks = engine.hooks(&request)?;
        let scratches = (!hooks.is_empty()).then(Scratches::default);
        let hex = random_hex();
        let context = engine.context(&format!("resp_{hex}"), &caller);
        let trail = Trail {
            requested: request.models.first().cloned().unwrap_or_default(),
            region: engine.parts.region.clone(),
            ..Trail::default()
        };
        Ok(Self {
            engine,
            caller,
            request,
            options,
            hooks,
            context,
            hex,
            trail,
            dispatched: None,
            tools: None,
            order: Vec::new(),
            preferred: None,
            cost: Cost::default(),
            scratches,
            chosen_models: None,
        })
    }

    fn occasion(&self) -> Occasion<'_> {
        let Self { engine, caller, context, scratches, .. } = self;
        Occasion { engine, caller, context, scratches }
    }

    /// Lets hooks look at the request, and notes what they spent on tools.
    async fn show_request(&mut self) -> Result<(), Refusal> {
        let Self { engine, caller, context, scratches, hooks, request, cost, .. } = self;
        let occasion = Occasion { engine, caller, context, scratches };
        cost.tools = hooks::on_request(hooks, occasion, request).await?;
        Ok(())
    }

    /// Has models chosen where the request names a model router.
    async fn choose_models(&mut self) -> Result<(), Refusal> {
        let summary = |slug: &str, request: &ResponsesRequest| summary(slug, request, &[]);
        let serves = |endpoint: &Endpoint, request: &ResponsesRequest| {
            request.tools.iter().all(|tool| offers(endpoint, tool))
        };
        let Self { engine, request, context, .. } = self;
        self.chosen_models = engine.choose_models(request, context, summary, serves, random_seed()).await?;
        Ok(())
    }

    fn plan(&self) -> Result<Plan, Refusal> {
        let request = &self.request;
        let models = routing::find_models(&self.engine.parts.catalog, &request.models, ModelKind::Responses)?;
        let missing = |endpoint: &Endpoint| request.tools.iter().find(|tool| !offers(endpoint, tool));
        let candidates = routing::candidates(&models, |endpoint| missing(endpoint).is_none());
        if candidates.is_empty() {
            let all = routing::candidates(&models, |_| true);
            let tool = all.first().and_then(|(_, endpoint)| missing(endpoint));
            return Err(
                tool.map_or_else(|| Refusal::not_found("No endpoints found for this model"), unoffered)
            );
        }
        let summary = summary(&self.trail.requested, request, &models);
        Ok(Plan { candidates, summary })
    }

    /// Answers. For a stream everything goes through `pace` and the result is
    /// empty; otherwise it is the body.
    async fn run(mut self, plan: Plan, pace: &mut Pace) -> Result<Vec<u8>, Refusal> {
        let id = self.context.request_id.to_string();
        let store = &self.engine.parts.store;
        let streamed = self.request.stream;
        let mut entry =
            Entry::open(store, &self.caller, UsageKind::Responses, &id, self.context.now_ms, streamed);
        entry.spent(self.cost.tools);
        match self.choose(plan, &mut entry, pace).await {
            Ok(chosen) => self.carry_on(chosen, entry, pace).await,
            Err(refusal) => {
                entry.settle(UsageOutcome::Failed);
                if !pace.has_spoken() {
                    return Err(refusal);
                }
                let model = self.trail.requested.clone();
                let mut assembler = Assembler::new(self.identity(&model, "default"), true);
                let outcome = Outcome::Failed(refusal.kind, refusal.message);
                let receipt = self.receipt(self.cost);
                // A client that is gone needs no last word.
                pace.say(assembler.complete(&outcome, &receipt)).await.unwrap_or_default();
                Ok(Vec::new())
            }
        }
    }

    /// Tries endpoints in the router's order until one answers.
    async fn choose(&mut self, plan: Plan, entry: &mut Entry, pace: &mut Pace) -> Result<Chosen, Refusal> {
        let engine = Arc::clone(&self.engine);
        let credentials = Credentials {
            store: &engine.parts.store,
            caller: &self.caller,
            request_id: &self.context.request_id,
        };
        let route = Route {
            router: &engine.router,
            credentials,
            context: &self.context,
            summary: plan.summary,
            allow_fallbacks: self.request.provider.allow_fallbacks,
            seed: random_seed(),
        };
        self.order = route.order(plan.candidates, &mut self.trail).await?;
        self.trail.pipeline.extend(self.chosen_models.as_ref().map(model_choice::Chosen::stage));
        self.dispatched = Some(Instant::now());
        let answering = self.ask(entry, pace).await?;
        let model = &answering.endpoint.candidate.model;
        if let Some(chosen) = self.chosen_models.as_ref().filter(|chosen| chosen.has(model)) {
            chosen.strategy().clone_into(&mut self.trail.strategy);
        }
        Ok(answering)
    }

    /// Tries endpoints in their order until one answers this turn.
    async fn ask(&mut self, entry: &mut Entry, pace: &mut Pace) -> Result<Chosen, Refusal> {
        let engine = &self.engine;
        let credentials = Credentials {
            store: &engine.parts.store,
            caller: &self.caller,
            request_id: &self.context.request_id,
        };
        let mut failures = Failures::default();
        let others = (0..self.order.len()).filter(|place| Some(*place) != self.preferred);
        for place in self.preferred.into_iter().chain(others) {
            let Some(endpoint) = self.order.get(place) else { continue };
            if !failures.allow(endpoint) {
                continue;
            }
            entry.endpoint(&endpoint.candidate.model, &endpoint.provider.name);
            let attempting = Attempting {
                egress: &engine.parts.egress,
                credentials,
                timeouts: &engine.parts.timeouts,
                context: &self.context,
                request: self.tools.as_ref().map_or(&self.request.guest_json, |tools| tools.turn_json()),
                options: self.request.provider.options_for(&endpoint.provider.name),
            };
            let failed = match attempting.run(endpoint, pace).await {
                Ok(begun) => {
                    self.trail.answered(place, endpoint, begun.status, begun.used.as_ref());
                    self.preferred = Some(place);
                    return Ok(Chosen { endpoint: Arc::clone(endpoint), begun });
                }
                Err(failed) => failed,
            };
            if failures.add(endpoint, failed, &mut self.trail).is_break() {
                break;
            }
        }
        Err(failures.refusal(&self.trail, self.options.metadata_field.is_some()))
    }

    /// Takes an answer from its first event to its end, turn by turn.
    async fn carry_on(
        &mut self,
        mut chosen: Chosen,
        mut entry: Entry,
        pace: &mut Pace,
    ) -> Result<Vec<u8>, Refusal> {
        let candidate = &chosen.endpoint.candidate;
        let identity = self.identity(&candidate.model, &candidate.tier);
        let mut assembler = Assembler::new(identity, self.request.stream);
        if let Some(tools) = &self.tools {
            assembler.serve(tools.served());
        }
        assembler.begin();
        let (outcome, reading) = loop {
            let Chosen { endpoint, begun } = chosen;
            let Begun { events, mut reading, used, .. } = begun;
            let read = self.read(&endpoint, events, &mut reading, &mut assembler, &mut entry, pace).await;
            let Ok(outcome) = read else { return Ok(Vec::new()) };
            let outcome = covered(outcome, used.as_ref());
            if let Outcome::Failed(kind, _) = &outcome {
                self.trail.broke(*kind);
            }
            let usage = assembler.usage().copied().unwrap_or_else(no_usage);
            self.cost = self.cost.plus(&Cost::of(&usage, &endpoint.prices));
            if self.tools.is_none() {
                break (outcome, reading);
            }
            let next = self.after_turn(outcome, reading, &mut assembler, &mut entry, pace);
            match Box::pin(next).await? {
                Step::End(outcome, reading) => break (outcome, reading),
                Step::Turn(next) => chosen = next,
                Step::Gone => return Ok(Vec::new()),
            }
        };
        self.end(outcome, reading, assembler, entry, pace).await
    }

    /// Reads one turn to its end; says how it ended.
    async fn read(
        &self,
        endpoint: &Endpoint,
        mut events: Vec<Event>,
        reading: &mut Option<Reading>,
        assembler: &mut Assembler,
        entry: &mut Entry,
        pace: &mut Pace,
    ) -> Result<Outcome, ClientGone> {
        loop {
            let applied = apply(assembler, events);
            if let (Some(usage), Some(total)) = (assembler.usage(), assembler.total_usage()) {
                // Kept at once: a client that leaves has used it all the same.
                entry.consumed(&total, &self.cost.plus(&Cost::of(usage, &endpoint.prices)));
            }
            if let Some(outcome) = applied {
                return Ok(outcome);
            }
            pace.say(assembler.take_events()).await?;
            events = match reading {
                Some(reading) if !reading.is_over() => {
                    match reading.next(pace, self.engine.parts.timeouts.idle).await {
                        Ok(events) => events,
                        Err(error) => return Ok(broken(&error)),
                    }
                }
                // The provider's answer is over and there was no end to it.
                _ => {
                    let message = "Provider returned error".to_owned();
                    return Ok(Outcome::Failed(ErrorKind::ProviderUnavailable, message));
                }
            };
        }
    }

    /// Ends the response and says so.
    async fn end(
        &mut self,
        outcome: Outcome,
        reading: Option<Reading>,
        mut assembler: Assembler,
        mut entry: Entry,
        pace: &mut Pace,
    ) -> Result<Vec<u8>, Refusal> {
        let settled = settled(&outcome);
        if matches!(outcome, Outcome::Failed(..)) {
            self.trail.selected = None;
        }
        self.trail.generation_ms = self.dispatched.map(|start| start.elapsed().as_millis() as u64);
        self.trail.pipeline.extend(self.tools.as_ref().map(|tools| tools.stage()));
        let last = assembler.complete(&outcome, &self.receipt(self.cost));
        if !pace.is_streamed() {
            let body = match whole(last, outcome) {
                Ok(body) if !self.hooks.is_empty() => {
                    let shown =
                        hooks::on_response(&self.hooks, self.occasion(), &self.request, body, &mut entry);
                    Box::pin(shown).await
                }
                whole => whole,
            };
            entry.settle(settled);
            if let Some(reading) = reading.filter(|_| body.is_ok()) {
                reading.close().await;
            }
            return body;
        }
        entry.settle(settled);
        if pace.say(last).await.is_ok()
            && let Some(mut reading) = reading
        {
            reading.drain().await;
            if !matches!(outcome, Outcome::Failed(..)) {
                reading.close().await;
            }
        }
        Ok(Vec::new())
    }

    fn identity(&self, model: &str, tier: &str) -> Identity {
        Identity {
            hex: Arc::from(self.hex.as_str()),
            created_at: self.context.now_ms / 1000,
            model: model.to_owned(),
            service_tier: tier.to_owned(),
            echo: Arc::from(self.request.echo.as_str()),
        }
    }

    fn receipt(&self, cost: Cost) -> Receipt {
        Receipt {
            completed_at: self.engine.parts.clock.now_ms() / 1000,
            cost,
            is_byok: self.trail.is_byok,
            server_tools: self.tools.as_ref().map(|tools| tools.counts()),
            metadata: self.options.metadata_field.map(|field| (field, self.trail.json())),
        }
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
        "tools[{}].type \"{}\" is not offered by any endpoint of this model",
        tool.index,
        routing::printable(&tool.type_name)
    ))
}

/// Whether the endpoint's dialect has this kind of tool; a server tool is offered as functions.
fn offers(endpoint: &Endpoint, tool: &RequestTool) -> bool {
    let provider = endpoint.provider.adapter.manifest().provider.as_ref();
    let kind = match tool.kind.class() {
        ToolClass::Server => "function",
        ToolClass::Client | ToolClass::Hosted => &tool.type_name,
    };
    provider.is_some_and(|provider| provider.tools.iter().any(|known| known == kind))
}

/// Hands events to the assembler; says how the response ends, if it does.
fn apply(assembler: &mut Assembler, events: Vec<Event>) -> Option<Outcome> {
    for event in events {
        if let Event::Error(failure) = event {
            return Some(failed(&failure));
        }
        if let Err(malformed) = assembler.apply(event) {
            return Some(refused(malformed));
        }
        if let Some(ended) = assembler.ended() {
            return Some(finished(ended));
        }
    }
    None
}
