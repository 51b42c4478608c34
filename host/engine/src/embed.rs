//! `POST /v1/embeddings`. A request takes the same path as one for a response, without a stream.

use crate::Answer;
use crate::AnswerBody;
use crate::Engine;
use crate::RespondOptions;
use crate::attempt::candidates::{Answered, AttemptNotes, Candidates, Trial};
use crate::attempt::{map_error, response_head, send};
use crate::authentication::UsedCredential;
use crate::caller::Caller;
use crate::catalog::{Endpoint, Model, ModelKind};
use crate::cost::{Amount, Cost, no_usage};
use crate::credential::Credentials;
use crate::export::About;
use crate::failure::{AttemptFailure, Cause};
use crate::lifecycle::deadline::Deadline;
use crate::money::credit::{TurnEstimate, TurnTokens};
use crate::money::ledger::LedgerEntry;
use crate::offload::aside;
use crate::random::random_hex;
use crate::random::random_seed;
use crate::refusal::Refusal;
use crate::request::{EmbeddingsRequest, EncodingFormat};
use crate::routing::{self, Order, RouteInputs};
use crate::trace::{RoutingTrace, params};
use crate::upstream::reading::ANSWER_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cofferdam_runtime::wire::{
    EmbeddingFailure, Embeddings, ErrorKind, Event, Failure, PreparedEmbeddings, Purpose, RequestSummary,
    UpstreamRequest, Usage,
};
use cofferdam_runtime::{CallContext, ProviderInstance};
use cofferdam_store::{UsageKind, UsageOutcome};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Vectors, the status of the provider that made them, and the credential that was sent to it.
struct Vectors {
    vectors: Embeddings,
    status: Option<u16>,
    used: Option<UsedCredential>,
}

impl Answered for Vectors {
    fn status(&self) -> Option<u16> {
        self.status
    }

    fn used(&self) -> Option<&UsedCredential> {
        self.used.as_ref()
    }

    fn events(&self) -> &[Event] {
        &[]
    }

    fn is_empty(&self) -> bool {
        false
    }
}

impl Engine {
    /// Answers a request for embeddings. `body` is the client's JSON.
    ///
    /// # Errors
    /// The [`Refusal`] that the client gets.
    pub async fn embed(
        self: &Arc<Self>,
        caller: Caller,
        body: Bytes,
        options: RespondOptions,
    ) -> Result<Answer, Refusal> {
        let request = aside(body.len(), move || EmbeddingsRequest::parse(&body)).await??;
        options.check_session(request.session_id.as_deref())?;
        let id = format!("embd_{}", random_hex());
        let context = self.context(&id, &caller);
        let slugs = [request.model.clone()];
        let models = routing::find_models(&self.parts.catalog, &slugs, ModelKind::Embeddings)?;
        let field = options.metadata_field;
        let mut trace = self.trace(&request, field.is_some());
        let credentials =
            Credentials { store: &self.parts.store, caller: &caller, request_id: &context.request_id };
        let route = self.embedding_route(&request, &models, credentials, &context);
        let account = Arc::default();
        // Opened first: a caller that has nothing left to spend is refused before any guest runs.
        let mut entry =
            LedgerEntry::open(&self.parts.store, &caller, UsageKind::Embeddings, &id, false, &account)?;
        let order = route.order(routing::candidates(&models, |_| true), &mut trace).await;
        let order = order.map_err(|refusal| trace.beside(refusal, field))?;
        entry.routed();
        let about = || about(&request, &caller, &options, &context);
        entry.broadcast(self.parts.broadcast.begin(&self.parts.clock, about));
        let mut deadline = Deadline::new(None, self.parts.timeouts.total).ending(&self.parts.ending);
        let Order { endpoints, byok } = &order;
        // Embeddings have no output tokens.
        let tokens = TurnTokens { input: request.weight.most(), output: Some(0), reasoning: 0 };
        let turn = TurnEstimate { endpoints, byok, tokens };
        if let Err(refusal) = entry.reserve(turn, &mut deadline).await {
            entry.refuse();
            return Err(deadline.final_refusal(trace.beside(refusal, field)));
        }
        let attempting = EmbeddingAttempt {
            engine: self,
            request: &request,
            order: &order,
            context: &context,
            credentials,
        };
        // A session id groups the embeddings of a client in records, but does not influence which
        // endpoint is used.
        let candidates = Candidates {
            order: endpoints,
            preferred: None,
            may_retry: self.parts.retry && request.provider.allow_fallbacks,
            eject: self.parts.eject,
            session: None,
            input_tokens: request.weight.about().max(request.input_tokens.into()),
            tokens,
            may_be_empty: true,
            memory: &self.parts.memory,
        };
        let mut notes = AttemptNotes { entry: &mut entry, trace: &mut trace };
        let won = Box::pin(candidates.try_in_order(&attempting, &mut notes, &mut deadline)).await;
        trace.ended(deadline.since_dispatch());
        let won =
            won.map_err(|failures| deadline.final_refusal(trace.beside(failures.refusal(&trace), field)));
        match won.and_then(|won| Ok((endpoints.get(won.place).ok_or_else(Refusal::internal)?, won.answer))) {
            Ok((endpoint, Vectors { mut vectors, .. })) => {
                assume(&mut entry, &mut vectors, candidates.input_tokens);
                let cost = settle(&mut entry, endpoint, &vectors, trace.is_byok);
                let answer = Made { id: &id, endpoint, vectors: &vectors, cost, trace: &trace };
                let body = answer.body(request.encoding_format, field).map_err(|_| Refusal::internal())?;
                Ok(Answer { id, body: AnswerBody::Whole(body) })
            }
            Err(refusal) => {
                entry.failed(refusal.kind);
                entry.refuse();
                Err(refusal)
            }
        }
    }
}

impl Engine {
    /// What the router is asked about a request for embeddings.
    fn embedding_route<'a>(
        &'a self,
        request: &'a EmbeddingsRequest,
        models: &[Arc<Model>],
        credentials: Credentials<'a>,
        context: &'a CallContext,
    ) -> RouteInputs<'a> {
        RouteInputs {
            router: &self.router,
            credentials,
            context,
            summary: summary(request, models),
            allow_fallbacks: request.provider.allow_fallbacks,
            remembered: None,
            eject: self.parts.eject,
            now_ms: self.parts.memory.clock.monotonic_ms(),
            seed: random_seed(),
        }
    }

    /// The routing trace of a request that was not routed yet. `is_told`: the client gets it as
    /// routing metadata.
    fn trace(&self, request: &EmbeddingsRequest, is_told: bool) -> RoutingTrace {
        let mut trace = RoutingTrace::new(&request.model, self.parts.region.as_deref());
        if is_told {
            trace.params = params(&request.provider.json, None);
            trace.preferences = request.provider.clone();
        }
        trace
    }
}

/// The summary of the request that routers get.
fn summary(request: &EmbeddingsRequest, models: &[Arc<Model>]) -> RequestSummary {
    RequestSummary {
        preferences: request.provider.json.to_vec(),
        parameters: request.parameters.iter().map(|&name| name.to_owned()).collect(),
        needs: request.needs.iter().map(|need| need.as_str().to_owned()).collect(),
        input_tokens: request.input_tokens,
        ..routing::summary(Purpose::Embeddings, &request.model, models)
    }
}

/// What an attempt needs besides the endpoint.
struct EmbeddingAttempt<'a> {
    engine: &'a Engine,
    request: &'a EmbeddingsRequest,
    order: &'a Order,
    context: &'a CallContext,
    credentials: Credentials<'a>,
}

impl Trial for EmbeddingAttempt<'_> {
    type Answer = Vectors;

    async fn run(&self, endpoint: &Endpoint, deadline: &mut Deadline) -> Result<Vectors, AttemptFailure> {
        let adapter = &endpoint.provider.adapter;
        let mut instance = adapter.open_provider(self.context).await?;
        let mut target = endpoint.target.clone();
        if let Some(given) = self.request.provider.options_for(&endpoint.provider.name) {
            target.options = endpoint.provider.options.sift(given).json;
        }
        let request = &self.request.guest_json;
        let prepared = instance.prepare_embeddings(request, &target).await;
        let prepared = prepared.map_err(|error| AttemptFailure::prepare(error, request.len()))?;
        let upstream = match prepared {
            Ok(PreparedEmbeddings::Answer(vectors)) => {
                let vectors = self.checked(vectors)?;
                instance.close().await;
                return Ok(Vectors { vectors, status: None, used: None });
            }
            Ok(PreparedEmbeddings::Upstream(upstream)) => upstream,
            Err(EmbeddingFailure::Failed(failure)) => return Err(AttemptFailure::dialect(failure)),
            Err(EmbeddingFailure::UnsupportedInput(index)) => return Err(unsupported(index)),
        };
        let used = self.credentials.release(&endpoint.provider, self.order.is_byok(endpoint)).await?;
        match self.exchange(instance, endpoint, upstream, used.as_ref(), deadline).await {
            Ok((vectors, status)) => Ok(Vectors { vectors, status: Some(status), used }),
            Err(failed) => Err(failed.after(used.as_ref())),
        }
    }
}

impl EmbeddingAttempt<'_> {
    async fn exchange(
        &self,
        mut instance: ProviderInstance,
        endpoint: &Endpoint,
        upstream: UpstreamRequest,
        used: Option<&UsedCredential>,
        deadline: &mut Deadline,
    ) -> Result<(Embeddings, u16), AttemptFailure> {
        let timeouts = &self.engine.parts.timeouts;
        instance.pause();
        let reply = send(&self.engine.parts.egress, timeouts, endpoint, upstream, used, deadline).await?;
        instance.resume(self.context).await?;
        let status = reply.status;
        let head = response_head(endpoint.provider.adapter.manifest(), &reply, false);
        if !status.is_success() {
            return Err(map_error(&mut instance, &head, reply, used, deadline).await);
        }
        let body = deadline.during(reply.body.collect(ANSWER_BYTES_MAX), timeouts.idle).await;
        let body = body.map_err(|late| AttemptFailure::late(late, true))??;
        let vectors = instance.decode_embeddings(&head, &body).await?;
        let vectors = vectors.map_err(|failure| AttemptFailure::in_band(failure, Some(status.as_u16())))?;
        let vectors = self.checked(vectors)?;
        instance.close().await;
        Ok((vectors, status.as_u16()))
    }

    /// Checks that there is one vector for each input, all of the length asked for, with finite
    /// numbers only.
    fn checked(&self, embeddings: Embeddings) -> Result<Embeddings, AttemptFailure> {
        let width = embeddings.vectors.first().map_or(0, Vec::len);
        let even = embeddings.vectors.iter().all(|vector| vector.len() == width);
        let asked = self.request.dimensions.is_none_or(|dimensions| width == dimensions as usize * 4);
        let fits =
            embeddings.vectors.len() == self.request.input_count && width > 0 && width.is_multiple_of(4);
        let finite = embeddings.vectors.iter().all(|vector| floats(vector).all(f32::is_finite));
        match fits && even && finite {
            true if asked => Ok(embeddings),
            true => Err(undimensioned()),
            false => Err(AttemptFailure::of(Cause::Endpoint)),
        }
    }
}

/// The endpoint made vectors of another length than the client asked for.
fn undimensioned() -> AttemptFailure {
    let message = "dimensions is not supported by any endpoint of this model";
    AttemptFailure::dialect(Failure::new(ErrorKind::InvalidRequest, message))
}

fn unsupported(index: u32) -> AttemptFailure {
    let message = format!("input[{index}] is of a kind that no endpoint of this model takes");
    AttemptFailure::dialect(Failure::new(ErrorKind::InvalidRequest, message))
}

/// Fills in an estimate of the input where the provider did not report it.
fn assume(entry: &mut LedgerEntry, vectors: &mut Embeddings, input_tokens: u64) {
    if vectors.prompt_tokens == 0 {
        vectors.prompt_tokens = input_tokens;
        vectors.total_tokens = vectors.total_tokens.max(input_tokens);
        entry.estimated();
    }
}

fn settle(entry: &mut LedgerEntry, endpoint: &Endpoint, embeddings: &Embeddings, is_byok: bool) -> Cost {
    let usage =
        Usage { input_tokens: embeddings.prompt_tokens, cost_dollars: embeddings.cost_dollars, ..no_usage() };
    let cost = Cost::of(&usage, &endpoint.prices, is_byok);
    entry.consumed(&usage, &usage, &cost);
    entry.settle(UsageOutcome::Completed);
    cost.plus(&entry.lost())
}

/// What a request export says about the request.
fn about(
    request: &EmbeddingsRequest,
    caller: &Caller,
    options: &RespondOptions,
    context: &CallContext,
) -> About {
    About {
        started_ms: context.now_ms,
        requested: request.model.clone(),
        intern: caller.intern,
        session_id: request.session_id.clone().or_else(|| options.session_header.clone()),
        user: request.user.clone(),
        trace: request.trace.clone(),
    }
}

#[derive(Serialize)]
struct EmbeddingsDocument<'a> {
    object: &'static str,
    id: &'a str,
    model: &'a str,
    data: Vec<Entity>,
    usage: BodyUsage,
    /// Routing metadata under the name that the client asked for.
    #[serde(flatten)]
    metadata: BTreeMap<&'static str, Value>,
}

#[derive(Serialize)]
struct Entity {
    object: &'static str,
    index: usize,
    embedding: Embedding,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Embedding {
    Base64(String),
    Floats(Vec<f32>),
}

#[derive(Serialize)]
struct BodyUsage {
    prompt_tokens: u64,
    total_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<Box<RawValue>>,
    cost: Amount,
    cost_details: CostDetails,
    is_byok: bool,
}

/// The members have OpenRouter's names, and its SDKs require the last two.
#[derive(Serialize)]
struct CostDetails {
    upstream_inference_cost: Option<Amount>,
    upstream_inference_prompt_cost: Amount,
    /// Always 0: vectors are not charged by length.
    upstream_inference_completions_cost: Amount,
}

/// The parts of an answer.
struct Made<'a> {
    id: &'a str,
    endpoint: &'a Endpoint,
    vectors: &'a Embeddings,
    cost: Cost,
    trace: &'a RoutingTrace,
}

impl Made<'_> {
    /// The JSON body. `field` is the name under which the client asked for routing metadata.
    fn body(&self, format: EncodingFormat, field: Option<&'static str>) -> Result<Bytes, serde_json::Error> {
        let Self { id, endpoint, vectors: embeddings, cost, trace } = self;
        let embedding = |vector: &Vec<u8>| match format {
            EncodingFormat::Base64 => Embedding::Base64(STANDARD.encode(vector)),
            EncodingFormat::Float => Embedding::Floats(floats(vector).collect()),
        };
        let data = embeddings
            .vectors
            .iter()
            .enumerate()
            .map(|(index, vector)| Entity { object: "embedding", index, embedding: embedding(vector) })
            .collect();
        let details = String::from_utf8(embeddings.prompt_tokens_details.clone()).unwrap_or_default();
        let usage = BodyUsage {
            prompt_tokens: embeddings.prompt_tokens,
            total_tokens: embeddings.total_tokens,
            prompt_tokens_details: RawValue::from_string(details).ok(),
            cost: cost.paid.here,
            cost_details: CostDetails {
                upstream_inference_cost: cost.upstream,
                upstream_inference_prompt_cost: cost.input,
                upstream_inference_completions_cost: Amount(0),
            },
            is_byok: trace.is_byok,
        };
        let metadata = field.map(|field| (field, trace.json())).into_iter().collect();
        let body = EmbeddingsDocument {
            object: "list",
            id,
            model: &endpoint.candidate.model,
            data,
            usage,
            metadata,
        };
        serde_json::to_vec(&body).map(Bytes::from)
    }
}

/// Decodes a vector: guests return 32-bit floats in little-endian order.
fn floats(vector: &[u8]) -> impl Iterator<Item = f32> {
    let (numbers, _) = vector.as_chunks::<4>();
    numbers.iter().map(|bytes| f32::from_le_bytes(*bytes))
}
