//! `POST /v1/responses`: from a body to an answer. The modules are listed in the order of a
//! request's steps.

mod plan;

mod candidates;

mod answer;
mod turns;

mod end;
mod outcome;

use crate::Answer;
use crate::AnswerBody;
use crate::Engine;
use crate::RespondOptions;
use crate::assembler::{Assembler, Outcome};
use crate::attempt::Begun;
use crate::caller::Caller;
use crate::catalog::Endpoint;
use crate::cost::Cost;
use crate::lifecycle::deadline::Deadline;
use crate::lifecycle::departure::{AttendedWork, ClientDeparture};
use crate::lifecycle::stream::EventStream;
use crate::memory::health::AttemptProbe;
use crate::memory::session::Session;
use crate::money::ledger::LedgerEntry;
use crate::offload::aside;
use crate::plugins::hooks::{self, Hook};
use crate::plugins::questions::QuestionScope;
use crate::plugins::tools::{self, PluginScope, Scratches, ServerTools};
use crate::random::random_hex;
use crate::refusal::Refusal;
use crate::request::{RequestBounds, ResponsesRequest};
use crate::routing::Order;
use crate::routing::model_choice;
use crate::trace::{RoutingTrace, params};
use crate::upstream::echo::Echo;
use bytes::Bytes;
use cofferdam_runtime::CallContext;
use cofferdam_store::{UsageKind, UsageOutcome};
use plan::RoutingPlan;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

impl Engine {
    /// Answers a request for a response. `body` is the client's JSON.
    ///
    /// # Errors
    /// A [`Refusal`], as long as nothing was sent to the client.
    pub async fn respond(
        self: &Arc<Self>,
        caller: Caller,
        body: Bytes,
        options: RespondOptions,
    ) -> Result<Answer, Refusal> {
        let engine = Arc::clone(self);
        let mut request = aside(body.len(), move || engine.read(&body)).await??;
        self.parts.defaults.apply(&self.parts.store, caller.workspace, &mut request.plugins)?;
        options.check_session(request.session_id.as_deref())?;
        let streamed = request.stream;
        let departure = ClientDeparture::new(&self.parts.memory.leavers, &caller.allowance);
        let attendance = departure.attendance();
        let total = self.parts.timeouts.total;
        let hex = random_hex();
        let id = format!("resp_{hex}");
        let asking = QuestionScope::of_client(&request, &id);
        let job = Job::new(Arc::clone(self), caller, request, options, hex, asking)?;
        let mut entry = job.entry()?;
        entry.broadcast(job.pending());
        let ending = self.parts.ending.clone();
        if streamed {
            let is_held = hooks::hold_streams(&job.hooks);
            let stream = EventStream::start(departure, |client| async move {
                let deadline = Deadline::new(Some(client), total).ending(&ending).attended(attendance);
                let mut deadline = deadline.held_back(is_held);
                let ended = job.run(entry, &mut deadline).await;
                ended.map(drop).map_err(|refusal| deadline.final_refusal(refusal))
            });
            return Ok(Answer { id, body: AnswerBody::Stream(stream.await?) });
        }
        let whole = async move {
            let mut deadline = Deadline::new(None, total).ending(&ending).attended(attendance);
            job.run(entry, &mut deadline).await.map_err(|refusal| deadline.final_refusal(refusal))
        };
        let body = AttendedWork::new(departure, whole).await?;
        Ok(Answer { id, body: AnswerBody::Whole(Bytes::from(body)) })
    }

    /// Parses the body of a request.
    fn read(&self, body: &[u8]) -> Result<ResponsesRequest, Refusal> {
        let bounds = RequestBounds::of_client(self.parts.items_max);
        Ok(ResponsesRequest::parse_with(body, &self.entry_ids, &self.parts.prompts, bounds)?)
    }

    /// Answers a plugin's question like a client's request. Returns the body of the response.
    ///
    /// # Errors
    /// The [`Refusal`] that a client would get.
    pub(crate) async fn answer_question(
        self: Arc<Self>,
        caller: Caller,
        mut request: ResponsesRequest,
        asking: QuestionScope,
        time: Duration,
    ) -> Result<Vec<u8>, Refusal> {
        // Default hooks look at everything that models get, and so at questions. Default tools are
        // meant for the client's models only, so a question does not get them.
        let plugins = &mut request.plugins;
        let own: Vec<String> = plugins.iter().map(|entry| entry.id.clone()).collect();
        self.parts.defaults.apply(&self.parts.store, caller.workspace, plugins)?;
        plugins.retain(|entry| !entry.is_tool() || own.contains(&entry.id));
        let job = Job::new(self, caller, request, RespondOptions::default(), random_hex(), asking)?;
        let entry = job.entry()?;
        Box::pin(job.run(entry, &mut Deadline::new(None, time))).await
    }
}

/// The endpoint that answers, with its first events.
struct ChosenEndpoint {
    endpoint: Arc<Endpoint>,
    begun: Begun,
    /// Gets the end of the answer, for the endpoint's health.
    watch: AttemptProbe,
}

/// One running request.
struct Job {
    engine: Arc<Engine>,
    caller: Caller,
    request: ResponsesRequest,
    options: RespondOptions,
    hooks: Vec<Hook>,
    context: CallContext,
    hex: String,
    trace: RoutingTrace,
    /// The conversation it belongs to, if there is a choice of endpoints.
    session: Option<Session>,
    /// The loop of server tools, for a request that has any.
    tools: Option<Box<ServerTools>>,
    /// The endpoints in the router's order.
    order: Order,
    /// Index of the endpoint that answered the turn before. It is tried first, because it has the
    /// conversation in its cache.
    preferred: Option<usize>,
    /// The cost of the turns that are over.
    cost: Cost,
    scratches: Option<Scratches>,
    /// What was sent upstream, if the client asked to see it.
    echo: Option<Echo>,
    /// The choice of a model router, if the request named one.
    chosen_models: Option<model_choice::ChosenModels>,
    /// The scope of the questions that its plugins ask.
    asking: QuestionScope,
    /// Providers for which the caller has a credential of its own. Filled only where the request
    /// depends on it.
    own_keys: BTreeSet<String>,
}

impl Job {
    fn new(
        engine: Arc<Engine>,
        caller: Caller,
        request: ResponsesRequest,
        options: RespondOptions,
        hex: String,
        asking: QuestionScope,
    ) -> Result<Box<Self>, Refusal> {
        let mut hooks = engine.hooks(&request)?;
        hooks.retain(|hook| !asking.is_asked_by(hook.name()));
        let scratches = (!hooks.is_empty()).then(Scratches::default);
        let context = engine.context(asking.response_id(), &caller);
        let echo = request.echo_upstream_body.then(|| Echo::new(context.now_ms));
        let requested = request.models.first().map_or("", String::as_str);
        let mut trace = RoutingTrace::new(requested, engine.parts.region.as_deref());
        if options.metadata_field.is_some() {
            trace.params = params(&request.provider.json, engine.router_entry(&request));
            trace.preferences = request.provider.clone();
        }
        // Boxed because it is large and passed on from step to step.
        Ok(Box::new(Self {
            engine,
            caller,
            request,
            options,
            hooks,
            context,
            hex,
            trace,
            session: None,
            tools: None,
            order: Order::default(),
            preferred: None,
            cost: Cost::default(),
            scratches,
            echo,
            chosen_models: None,
            asking,
            own_keys: BTreeSet::new(),
        }))
    }

    fn occasion(&self) -> PluginScope<'_> {
        let Self { engine, caller, context, scratches, asking, .. } = self;
        PluginScope { engine, caller, context, scratches, asking }
    }

    /// Opens the ledger for the request.
    fn entry(&self) -> Result<LedgerEntry, Refusal> {
        let (store, streamed) = (&self.engine.parts.store, self.request.stream);
        let (id, account) = (&self.context.request_id, self.asking.account());
        LedgerEntry::open(store, &self.caller, UsageKind::Responses, id, streamed, account)
    }

    /// Everything up to the choice of an endpoint: hooks, the functions of tools, models. A stream
    /// is kept alive meanwhile.
    async fn prepare(
        &mut self,
        entry: &mut LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<RoutingPlan, Refusal> {
        let left = deadline.left();
        let plan = deadline.during(self.plan_with(), left).await;
        let plan = plan.unwrap_or_else(|_late| Err(turns::timed_out()));
        match &plan {
            Ok(_) => {
                entry.routed();
                entry.offers(self.request.hosted().filter_map(|hosted| hosted.type_name.clone()).collect());
            }
            Err(_) => entry.refuse(),
        }
        plan
    }

    async fn plan_with(&mut self) -> Result<RoutingPlan, Refusal> {
        if !self.hooks.is_empty() || !self.request.tools.is_empty() {
            // Checked before hooks and tools run, because they take time and may cost money.
            self.check_models()?;
        }
        if !self.hooks.is_empty() {
            Box::pin(self.show_request()).await?;
        }
        tools::add_plugin_tools(&self.engine, &mut self.request)?;
        // Which endpoints have a tool themselves depends on the caller's own credentials.
        self.look_for_own_keys().await;
        tools::substitute_hosted_tools(&self.engine, &mut self.request, &self.own_keys);
        if ServerTools::are_asked_for(&self.request)? {
            self.tools = Some(Box::pin(ServerTools::open(self.occasion(), &self.request)).await?);
        } else if self.request.has_server_calls {
            Box::pin(tools::render_calls_as_text(&mut self.request)).await?;
        }
        Box::pin(self.choose_models()).await?;
        self.plan()
    }

    /// Calls the hooks with the request.
    async fn show_request(&mut self) -> Result<(), Refusal> {
        let Self { engine, caller, context, scratches, hooks, request, asking, .. } = self;
        let occasion = PluginScope { engine, caller, context, scratches, asking };
        hooks::on_request(hooks, occasion, request).await
    }

    /// Answers the request. For a stream everything is sent through `deadline` and the result is empty;
    /// otherwise the result is the body.
    async fn run(
        mut self: Box<Self>,
        mut entry: LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<Vec<u8>, Refusal> {
        let field = self.options.metadata_field;
        let plan = match self.prepare(&mut entry, deadline).await {
            Ok(plan) => plan,
            // Nothing was routed, so there is no routing metadata.
            Err(refusal) => return self.refuse(refusal, &entry, deadline).await,
        };
        match self.choose(plan, &mut entry, deadline).await {
            Ok(chosen) => {
                let carried = self.carry_on(chosen, &mut entry, deadline).await;
                let Err(refusal) = carried else { return carried };
                self.trace.ended(deadline.since_dispatch());
                let refusal = self.trace.beside(refusal, field);
                self.refuse(refusal, &entry, deadline).await
            }
            // Dropping the entry records that the client has left.
            Err(_) if deadline.has_left() => Ok(Vec::new()),
            Err(refusal) => {
                entry.failed(refusal.kind);
                entry.settle(UsageOutcome::Failed);
                self.trace.ended(deadline.since_dispatch());
                let refusal = self.trace.beside(refusal, field);
                self.refuse(refusal, &entry, deadline).await
            }
        }
    }

    /// Reports a refusal to the client: as an event, once a stream has begun.
    async fn refuse(
        &self,
        refusal: Refusal,
        entry: &LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<Vec<u8>, Refusal> {
        let refusal = deadline.final_refusal(refusal);
        if !deadline.has_spoken() {
            return Err(refusal);
        }
        self.fail(refusal, entry, deadline).await;
        Ok(Vec::new())
    }

    /// Ends a stream with a refusal, without any part of the answer.
    async fn fail(&self, refusal: Refusal, entry: &LedgerEntry, deadline: &mut Deadline) {
        let mut assembler = Assembler::new(self.identity(&self.trace.requested, "default"), true);
        self.echo(&mut assembler);
        assembler.assume(Some(entry.usage()));
        let outcome = Outcome::Failed(refusal);
        let receipt = self.receipt(self.cost);
        // If the client is gone, the last event is not needed.
        deadline.send(assembler.complete(&outcome, &receipt)).await.unwrap_or_default();
    }
}
