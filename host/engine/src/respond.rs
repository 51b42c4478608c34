//! `POST /v1/responses`: from a body to an answer. The modules are listed in the order of a
//! request's steps.

mod plan;

mod attempt;
mod held;

mod reading;
mod turns;

mod end;
mod outcome;

use crate::Answer;
use crate::AnswerBody;
use crate::Engine;
use crate::RespondOptions;
use crate::assembler::{Assembler, Outcome};
use crate::caller::Caller;
use crate::cost::Cost;
use crate::lifecycle::deadline::Deadline;
use crate::lifecycle::departure::{AttendedWork, ClientDeparture};
use crate::lifecycle::stream::EventStream;
use crate::offload::aside;
use crate::plugins::hooks::{self, Hook};
use crate::plugins::questions::QuestionScope;
use crate::plugins::tools::{PluginScope, ServerTools, SharedPluginState};
use crate::random::random_hex;
use crate::refusal::Refusal;
use crate::request::{RequestBounds, ResponsesRequest};
use crate::routing::model_choice::ChosenModels;
use crate::run::Run;
use crate::scope::RequestScope;
use crate::timeline::{RequestGuard, StepType, Timeline};
use crate::upstream::echo::Echo;
use bytes::Bytes;
use cofferdam_store::UsageKind;
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

impl Engine {
    /// Answers a request for a response. `body` is the client's JSON.
    ///
    /// # Errors
    /// A [`Refusal`], as long as nothing was sent to the client.
    pub async fn respond(
        self: &Arc<Self>,
        caller: Caller,
        body: Bytes,
        mut options: RespondOptions,
    ) -> Result<Answer, Refusal> {
        let hex = random_hex();
        let id = format!("resp_{hex}");
        let guard = self.record(&id, &caller, UsageKind::Responses, body.len(), &mut options);
        let departure =
            ClientDeparture::new(&self.parts.memory.detached_reads, caller.key, &caller.allowance);
        let deadline = Deadline::new(self.parts.timeouts.total).ending(&self.parts.ending);
        let deadline = deadline.attended(departure.presence()).counting(guard.timeline());
        let body_share = options.body_share.take();
        let opened = self.open(caller, body, options, &hex, deadline, &guard).await;
        let mut response = opened.inspect_err(|refusal| guard.refused(refusal))?;
        response.guard = Some(guard);
        response.body_share = body_share;
        if response.job.request.stream {
            let stream = EventStream::start(departure, |client| response.answer_stream(client)).await?;
            return Ok(Answer { id, body: AnswerBody::Stream(stream) });
        }
        let body = AttendedWork::new(departure, || response.answer()).await?;
        Ok(Answer { id, body: AnswerBody::Whole(Bytes::from(body)) })
    }

    /// Opens a client's request: parses it and opens its ledger entry.
    async fn open(
        self: &Arc<Self>,
        caller: Caller,
        body: Bytes,
        options: RespondOptions,
        hex: &str,
        deadline: Deadline,
        guard: &RequestGuard,
    ) -> Result<Box<ResponseRun>, Refusal> {
        let timeline = guard.timeline();
        timeline.open(StepType::Parse, &["parse"], &[]);
        let engine = Arc::clone(self);
        // Boxed because it is large and passed on from step to step.
        let mut request = Box::new(aside(body.len(), move || engine.read(&body)).await??);
        timeline.close("ok", &[]);
        let requested = request.models.first().map_or("", String::as_str);
        guard.asks(requested, request.stream);
        self.parts.defaults.apply(&caller.workspace, &mut request.plugins)?;
        options.check_session(request.session_id.as_deref())?;
        let id = format!("resp_{hex}");
        let questions = QuestionScope::of_client(&request, &id);
        let scope = RequestScope::new(Arc::clone(self), caller, options, &id, timeline);
        let mut response = ResponseRun::open(scope, request, hex.to_owned(), questions, deadline).await?;
        let ResponsesRequest { session_id, user, trace, .. } = &*response.job.request;
        response.run.export(session_id.as_ref(), user.as_ref(), trace.as_ref());
        Ok(response)
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
        questions: QuestionScope,
        time: Duration,
        timeline: Timeline,
    ) -> Result<Vec<u8>, Refusal> {
        // Default hooks look at everything that models get, and so at questions. Default tools are
        // meant for the client's models only, so a question does not get them.
        let plugins = &mut request.plugins;
        let own: Vec<String> = plugins.iter().map(|entry| entry.id.clone()).collect();
        self.parts.defaults.apply(&caller.workspace, plugins)?;
        plugins.retain(|entry| !entry.is_tool() || own.contains(&entry.id));
        let scope =
            RequestScope::new(self, caller, RespondOptions::default(), questions.response_id(), timeline);
        let (request, deadline) = (Box::new(request), Deadline::new(time));
        let response = ResponseRun::open(scope, request, random_hex(), questions, deadline).await?;
        Box::pin(response.answer()).await
    }
}

/// A request for a response: what the client asked for, and the plugins that serve it.
struct Job {
    scope: Arc<RequestScope>,
    /// Hooks, tools and model routers change it while it is planned. Afterwards it stays the same.
    request: Box<ResponsesRequest>,
    hooks: Vec<Hook>,
    hex: String,
    /// What the calls of its plugins share.
    shared: Option<SharedPluginState>,
    /// The scope of the questions that its plugins ask.
    questions: QuestionScope,
    /// What was sent upstream, if the client asked to see it.
    echo: Option<Echo>,
    /// See [`ResponseAttempt::foreign_seals`](attempt::ResponseAttempt).
    foreign_seals: AtomicUsize,
    /// The loop of server tools, for a request that has any.
    tools: Option<Box<ServerTools>>,
    /// The choice of a model router, if the request named one.
    chosen_models: Option<ChosenModels>,
    /// Providers for which the caller has a credential of its own. Filled only where the request
    /// depends on it.
    own_keys: BTreeSet<String>,
    /// The cost of the turns that are over.
    cost: Cost,
}

impl Job {
    fn plugin_scope(&self) -> PluginScope<'_> {
        let Self { scope, shared, questions, .. } = self;
        let RequestScope { engine, caller, context, timeline, .. } = &**scope;
        PluginScope { engine, caller, context, shared, questions, timeline }
    }
}

/// A request for a response while it runs.
struct ResponseRun {
    /// Dropped first: what was spent until then is charged before the tools are closed.
    run: Run,
    job: Job,
    /// See [`RespondOptions::body_share`]. `None` for a question.
    body_share: Option<Box<dyn Any + Send + Sync>>,
    /// Dropped last: the record of a client's request ends with it. `None` for a question.
    guard: Option<RequestGuard>,
}

impl ResponseRun {
    async fn open(
        scope: Arc<RequestScope>,
        request: Box<ResponsesRequest>,
        hex: String,
        questions: QuestionScope,
        deadline: Deadline,
    ) -> Result<Box<Self>, Refusal> {
        let engine = &scope.engine;
        let mut hooks = engine.hooks(&request)?;
        hooks.retain(|hook| !questions.is_asked_by(hook.name()));
        let requested = request.models.first().map_or("", String::as_str);
        let trace = scope.trace(requested, &request.provider, || engine.router_entry(&request));
        let (kind, account) = (UsageKind::Responses, questions.account());
        let run = Run::open(&scope, kind, request.stream, account, trace, deadline).await?;
        let job = Job {
            shared: (!hooks.is_empty()).then(SharedPluginState::default),
            echo: request.echo_upstream_body.then(|| Echo::new(scope.context.now_ms)),
            scope,
            request,
            hooks,
            hex,
            questions,
            foreign_seals: AtomicUsize::new(0),
            tools: None,
            chosen_models: None,
            own_keys: BTreeSet::new(),
            cost: Cost::default(),
        };
        // Boxed because it is large and passed on from step to step.
        Ok(Box::new(Self { run, job, body_share: None, guard: None }))
    }

    /// Frees the document, once no guest will be given it any more, and what the body counts for.
    fn drop_document(&mut self) {
        self.job.request.drop_document();
        self.body_share = None;
    }

    /// Answers the request with a stream to `client`.
    async fn answer_stream(mut self: Box<Self>, client: Sender<Bytes>) -> Result<(), Refusal> {
        let is_held = hooks::hold_streams(&self.job.hooks);
        self.run.deadline.stream_to(client, is_held);
        self.answer().await.map(drop)
    }

    /// Answers the request. For a stream everything is sent to the client and the result is empty;
    /// otherwise the result is the body.
    async fn answer(mut self: Box<Self>) -> Result<Vec<u8>, Refusal> {
        let result = self.make().await;
        if let Some(guard) = &self.guard {
            guard.answered(&result);
            self.job.scope.timeline.responded(result.as_ref().map_or(0, Vec::len));
        }
        result
    }

    /// The work of [`Self::answer`].
    async fn make(&mut self) -> Result<Vec<u8>, Refusal> {
        let plan = match self.prepare().await {
            Ok(plan) => plan,
            // Nothing was routed, so there is no routing metadata.
            Err(refusal) => return self.refuse(refusal).await,
        };
        let answered = match self.choose(plan).await {
            Ok(answering) => self.carry_on(answering).await,
            // Dropping the entry records that the client has left.
            Err(_) if self.run.deadline.has_left() => return Ok(Vec::new()),
            Err(refusal) => Err(refusal),
        };
        let Err(refusal) = answered else { return answered };
        let refusal = self.run.fail(refusal);
        self.refuse(refusal).await
    }

    /// Reports a refusal to the client: as an event, once a stream has begun.
    async fn refuse(&mut self, refusal: Refusal) -> Result<Vec<u8>, Refusal> {
        if !self.run.deadline.has_spoken() {
            return Err(refusal);
        }
        self.job.scope.timeline.failed(refusal.kind);
        self.end_with(refusal).await;
        Ok(Vec::new())
    }

    /// Ends a stream with a refusal, without any part of the answer.
    async fn end_with(&mut self, refusal: Refusal) {
        let identity = self.job.identity(&self.run.trace.requested, "default");
        let mut assembler = Assembler::new(identity, true);
        self.job.echo(&mut assembler);
        assembler.assume(self.run.entry.usage());
        let receipt = self.receipt(self.job.cost.plus(&self.run.entry.lost()));
        let last = assembler.complete(&Outcome::Failed(refusal), &receipt);
        // If the client is gone, the last event is not needed.
        self.run.deadline.send(last).await.unwrap_or_default();
    }
}
