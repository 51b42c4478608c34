//! `POST /v1/embeddings`: the same path as a response, without a stream.

use crate::attempt::{AttemptFailure, map_error, response_head, send};
use crate::broadcast::About;
use crate::catalog::{Endpoint, ModelKind};
use crate::cost::{Amount, Cost, no_usage};
use crate::credential::{Credentials, Used};
use crate::credit;
use crate::fallback::Failures;
use crate::ledger::{Caller, Entry};
use crate::metadata::Trail;
use crate::pace::{Late, Pace};
use crate::reading::ANSWER_BYTES_MAX;
use crate::refusal::Refusal;
use crate::request::{EmbeddingsRequest, EncodingFormat};
use crate::routing::{self, Route};
use crate::{Answer, AnswerBody, Engine, RespondOptions, random_hex, random_seed};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cofferdam_egress::Error as EgressError;
use cofferdam_runtime::wire::{
    EmbeddingFailure, Embeddings, ErrorKind, Failure, PreparedEmbeddings, Purpose, UpstreamRequest, Usage,
};
use cofferdam_runtime::{CallContext, ProviderInstance};
use cofferdam_store::{UsageKind, UsageOutcome};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;

/// Vectors, the status of the provider that made them, and the credential that it took.
type Vectors = (Embeddings, Option<u16>, Option<Used>);

impl Engine {
    /// Answers a request for embeddings. `body` is the client's JSON.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub async fn embed(
        self: &Arc<Self>,
        caller: Caller,
        body: &[u8],
        options: RespondOptions,
    ) -> Result<Answer, Refusal> {
        let request = EmbeddingsRequest::parse(body).map_err(|error| Refusal::invalid(error.to_string()))?;
        options.check_session(request.session_id.as_deref())?;
        let id = format!("embd_{}", random_hex());
        let context = self.context(&id, &caller);
        let slugs = [request.model.clone()];
        let models = routing::find_models(&self.parts.catalog, &slugs, ModelKind::Embeddings)?;
        let mut trail =
            Trail { requested: request.model.clone(), region: self.parts.region.clone(), ..Trail::default() };
        let mut summary = routing::summary(Purpose::Embeddings, &request.model, &models);
        summary.preferences = request.provider.json.to_vec();
        summary.needs = request.needs.iter().map(|need| need.as_str().to_owned()).collect();
        summary.parameters = request.parameters.iter().map(|&name| name.to_owned()).collect();
        summary.input_tokens = request.input_tokens;
        let credentials =
            Credentials { store: &self.parts.store, caller: &caller, request_id: &context.request_id };
        let route = Route {
            router: &self.router,
            credentials,
            context: &context,
            summary,
            allow_fallbacks: request.provider.allow_fallbacks,
            seed: random_seed(),
        };
        let bill = Arc::default();
        let mut entry = Entry::open(&self.parts.store, &caller, UsageKind::Embeddings, &id, false, &bill)?;
        let order = route.order(routing::candidates(&models, |_| true), &mut trail).await?;
        entry.routed();
        let about = || About {
            started_ms: context.now_ms,
            requested: request.model.clone(),
            intern: caller.intern,
            session_id: request.session_id.clone().or_else(|| options.session_header.clone()),
            user: request.user.clone(),
            trace: request.trace.clone(),
        };
        entry.broadcast(self.parts.broadcast.begin(&self.parts.clock, about));
        let mut pace = Pace::new(None, self.parts.timeouts.total);
        let estimate = || credit::input_estimate(&order, request.input_tokens);
        if let Err(refusal) = entry.reserve(estimate, &mut pace).await {
            entry.refuse();
            return Err(refusal);
        }
        let mut attempts =
            Attempts { engine: self, request: &request, context: &context, credentials, entry: &mut entry };
        match Box::pin(attempts.run(order, &mut trail, options.metadata_field.is_some(), &mut pace)).await {
            Ok((endpoint, vectors)) => {
                let cost = settle(&mut entry, &endpoint, &vectors, trail.is_byok);
                let format = request.encoding_format;
                let body = body_of(&id, &endpoint, format, &vectors, &cost, trail.is_byok);
                let body = body.map_err(|_| Refusal::internal())?;
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

struct Attempts<'a> {
    engine: &'a Engine,
    request: &'a EmbeddingsRequest,
    context: &'a CallContext,
    credentials: Credentials<'a>,
    entry: &'a mut Entry,
}

impl Attempts<'_> {
    async fn run(
        &mut self,
        order: Vec<Arc<Endpoint>>,
        trail: &mut Trail,
        metadata_wanted: bool,
        pace: &mut Pace,
    ) -> Result<(Arc<Endpoint>, Embeddings), Refusal> {
        let mut failures = Failures::default();
        for (place, endpoint) in order.into_iter().enumerate() {
            if !failures.allow(&endpoint) {
                continue;
            }
            self.entry.asked(&endpoint, self.request.input_tokens);
            let failed = match self.attempt(&endpoint, pace).await {
                Ok((vectors, status, used)) => {
                    trail.answered(place, &endpoint, status, used.as_ref());
                    return Ok((endpoint, vectors));
                }
                Err(failed) => failed,
            };
            self.entry.unanswered();
            if failures.add(&endpoint, failed, trail).is_break() {
                break;
            }
        }
        Err(failures.refusal(trail, metadata_wanted))
    }

    async fn attempt(&self, endpoint: &Endpoint, pace: &mut Pace) -> Result<Vectors, AttemptFailure> {
        let call = |error| AttemptFailure::call(&error);
        let adapter = &endpoint.provider.adapter;
        let mut instance = adapter.open_provider(self.context).await.map_err(call)?;
        let mut target = endpoint.target.clone();
        let options = self.request.provider.options_for(&endpoint.provider.name);
        options.clone_into(&mut target.options);
        let prepared = instance.prepare_embeddings(&self.request.guest_json, &target).await.map_err(call)?;
        let upstream = match prepared {
            Ok(PreparedEmbeddings::Answer(vectors)) => {
                let vectors = self.checked(vectors)?;
                instance.close().await;
                return Ok((vectors, None, None));
            }
            Ok(PreparedEmbeddings::Upstream(upstream)) => upstream,
            Err(EmbeddingFailure::Failed(failure)) => return Err(AttemptFailure::dialect(failure)),
            Err(EmbeddingFailure::UnsupportedInput(index)) => return Err(unsupported(index)),
        };
        let used = self.credentials.release(&endpoint.provider).await?;
        match self.exchange(instance, endpoint, upstream, used.as_ref(), pace).await {
            Ok((vectors, status)) => Ok((vectors, Some(status), used)),
            Err(failed) => Err(failed.after(used.as_ref())),
        }
    }

    async fn exchange(
        &self,
        mut instance: ProviderInstance,
        endpoint: &Endpoint,
        upstream: UpstreamRequest,
        used: Option<&Used>,
        pace: &mut Pace,
    ) -> Result<(Embeddings, u16), AttemptFailure> {
        let timeouts = &self.engine.parts.timeouts;
        instance.pause();
        let reply = send(&self.engine.parts.egress, timeouts, endpoint, upstream, used, pace).await?;
        instance.resume(self.context).await.map_err(|error| AttemptFailure::call(&error))?;
        let status = reply.status;
        let head = response_head(endpoint.provider.adapter.manifest(), &reply, false);
        if !status.is_success() {
            return Err(map_error(&mut instance, &head, reply, used, pace).await);
        }
        let body = pace.during(reply.body.collect(ANSWER_BYTES_MAX), timeouts.idle).await;
        let body = body.map_err(|late: Late| AttemptFailure::late(late, true))?;
        let body = body.map_err(|error: EgressError| AttemptFailure::egress(&error))?;
        let vectors = instance.decode_embeddings(&head, &body).await;
        let vectors = vectors.map_err(|error| AttemptFailure::call(&error))?;
        let vectors = vectors.map_err(|failure| AttemptFailure::in_band(failure, status.as_u16()))?;
        let vectors = self.checked(vectors)?;
        instance.close().await;
        Ok((vectors, status.as_u16()))
    }

    /// One vector for each input, all of the same length, of numbers only.
    fn checked(&self, embeddings: Embeddings) -> Result<Embeddings, AttemptFailure> {
        let width = embeddings.vectors.first().map_or(0, Vec::len);
        let even = embeddings.vectors.iter().all(|vector| vector.len() == width);
        let asked = self.request.dimensions.is_none_or(|dimensions| width == dimensions as usize * 4);
        let fits =
            embeddings.vectors.len() == self.request.input_count && width > 0 && width.is_multiple_of(4);
        let finite = embeddings.vectors.iter().all(|vector| floats(vector).all(f32::is_finite));
        if fits && even && asked && finite { Ok(embeddings) } else { Err(AttemptFailure::malformed()) }
    }
}

fn unsupported(index: u32) -> AttemptFailure {
    AttemptFailure::dialect(Failure {
        kind: ErrorKind::InvalidRequest,
        message: format!("input[{index}] is of a kind that no endpoint of this model takes"),
        code: None,
        retry_after_ms: None,
    })
}

fn settle(entry: &mut Entry, endpoint: &Endpoint, embeddings: &Embeddings, is_byok: bool) -> Cost {
    let usage =
        Usage { input_tokens: embeddings.prompt_tokens, cost_dollars: embeddings.cost_dollars, ..no_usage() };
    let cost = Cost::of(&usage, &endpoint.prices, is_byok);
    entry.consumed(&usage, &usage, &cost);
    entry.settle(UsageOutcome::Completed);
    cost
}

#[derive(Serialize)]
struct Body<'a> {
    object: &'static str,
    id: &'a str,
    model: &'a str,
    data: Vec<Entity>,
    usage: BodyUsage,
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

#[derive(Serialize)]
struct CostDetails {
    upstream_inference_cost: Option<Amount>,
}

fn body_of(
    id: &str,
    endpoint: &Endpoint,
    format: EncodingFormat,
    embeddings: &Embeddings,
    cost: &Cost,
    is_byok: bool,
) -> Result<Bytes, serde_json::Error> {
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
        cost: cost.total(),
        cost_details: CostDetails { upstream_inference_cost: cost.upstream },
        is_byok,
    };
    let body = Body { object: "list", id, model: &endpoint.candidate.model, data, usage };
    serde_json::to_vec(&body).map(Bytes::from)
}

/// The numbers of a vector as guests give it.
fn floats(vector: &[u8]) -> impl Iterator<Item = f32> {
    let (numbers, _) = vector.as_chunks::<4>();
    numbers.iter().map(|bytes| f32::from_le_bytes(*bytes))
}
