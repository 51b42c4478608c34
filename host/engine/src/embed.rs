//! `POST /v1/embeddings`. A request takes the same path as one for a response, without a stream.

mod attempt;
mod document;

use crate::Answer;
use crate::AnswerBody;
use crate::Engine;
use crate::RespondOptions;
use crate::caller::Caller;
use crate::catalog::{Endpoint, ModelKind};
use crate::cost::Amount;
use crate::lifecycle::deadline::Deadline;
use crate::lifecycle::departure::{AttendedWork, ClientDeparture, ClientPresence};
use crate::money::credit::TurnTokens;
use crate::offload::aside;
use crate::random::random_hex;
use crate::refusal::Refusal;
use crate::request::{Ability, EmbeddingsRequest};
use crate::routing::{self, NamedModel, RoutingPlan};
use crate::run::{Run, Turn};
use crate::scope::RequestScope;
use crate::timeline::{FactName, RequestGuard, StepType};
use attempt::{EmbeddingAttempt, Received, unsupported, usage_of};
use bytes::Bytes;
use cofferdam_runtime::wire::{Purpose, RequestSummary};
use cofferdam_store::{UsageKind, UsageOutcome};
use document::EmbeddingsAnswer;
use std::sync::Arc;

impl Engine {
    /// Answers a request for embeddings. `body` is the client's JSON.
    ///
    /// # Errors
    /// The [`Refusal`] that the client gets.
    pub async fn embed(
        self: &Arc<Self>,
        caller: Caller,
        body: Bytes,
        mut options: RespondOptions,
    ) -> Result<Answer, Refusal> {
        let id = format!("embd_{}", random_hex());
        let guard = self.record(&id, &caller, UsageKind::Embeddings, body.len(), &mut options);
        let departure =
            ClientDeparture::new(&self.parts.memory.detached_reads, caller.key, &caller.allowance);
        let (engine, presence) = (Arc::clone(self), departure.presence());
        let work = move || async move {
            let result = engine.embed_recorded(caller, body, options, &id, &guard, &presence).await;
            // Otherwise the guard records that the client has left.
            if !presence.has_left() {
                guard.answered(&result);
                guard.timeline().responded(result.as_ref().map_or(0, Bytes::len));
            }
            let body = result?;
            Ok(Answer { id, body: AnswerBody::Whole(body) })
        };
        AttendedWork::new(departure, work).await
    }

    async fn embed_recorded(
        self: &Arc<Self>,
        caller: Caller,
        body: Bytes,
        options: RespondOptions,
        id: &str,
        guard: &RequestGuard,
        presence: &Arc<ClientPresence>,
    ) -> Result<Bytes, Refusal> {
        let timeline = guard.timeline();
        timeline.open(StepType::Parse, &["parse"], &[]);
        let request = aside(body.len(), move || EmbeddingsRequest::parse(&body)).await??;
        timeline.close("ok", &[]);
        guard.asks(&request.model, false);
        options.check_session(request.session_id.as_deref())?;
        let slugs = [request.model.clone()];
        let models = routing::find_models(&self.parts.catalog, &slugs, ModelKind::Embeddings)?;
        let candidates = candidates(&models, &request)?;
        let scope = RequestScope::new(Arc::clone(self), caller, options, id, timeline);
        let trace = scope.trace(&request.model, &request.provider, || None);
        let deadline = Deadline::new(self.parts.timeouts.total).ending(&self.parts.ending);
        let deadline = deadline.attended(Arc::clone(presence));
        // Opened first: a caller that has nothing left to spend is refused before any guest runs.
        let (kind, account) = (UsageKind::Embeddings, Arc::default());
        let mut run = Run::open(&scope, kind, false, &account, trace, deadline).await?;
        let answered = Box::pin(answer(&scope, &request, &models, candidates, &mut run)).await;
        // The entry of a client that has left is settled as cancelled when it is dropped.
        answered.map_err(|refusal| if run.deadline.has_left() { refusal } else { run.fail(refusal) })
    }
}

/// Answers the request. Returns the body.
async fn answer(
    scope: &RequestScope,
    request: &EmbeddingsRequest,
    models: &[NamedModel],
    candidates: Vec<(u32, Arc<Endpoint>)>,
    run: &mut Run,
) -> Result<Bytes, Refusal> {
    let plan = RoutingPlan {
        candidates,
        summary: summary(request, models),
        allow_fallbacks: request.provider.allow_fallbacks,
        allowed: request.provider.allowed.clone(),
    };
    run.route(plan).await?;
    run.entry.routed();
    // The session groups the embeddings of a client in records, but does not influence which
    // endpoint is used.
    run.export(request.session_id.as_ref(), request.user.as_ref(), request.trace.as_ref());
    let turn = Turn {
        // Embeddings have no output tokens.
        tokens: TurnTokens {
            input: request.weight.most(),
            inputs: request.input_count,
            output: Some(0),
            reasoning: 0,
        },
        input_tokens: request.weight.about().max(request.input_tokens.into()),
        fetched_tokens: request.weight.elsewhere(),
        may_be_empty: true,
    };
    run.reserve(turn.tokens).await?;
    let mut answering = run.ask(&EmbeddingAttempt { scope, request }, &turn).await?;
    scope.timeline.close("ok", &[FactName::Status.number(answering.begun.status.map(u64::from))]);
    run.trace.ended(run.deadline.since_dispatch());
    let vectors = &mut answering.begun.rest.vectors;
    if vectors.prompt_tokens == 0 {
        // The provider did not report the input.
        vectors.prompt_tokens = turn.input_tokens;
        vectors.total_tokens = vectors.total_tokens.max(turn.input_tokens);
        run.entry.estimated();
    }
    let usage = usage_of(vectors);
    let cost = answering.price(&usage, Amount::default());
    run.entry.consumed(&usage, &usage, &cost);
    let has_left = run.deadline.has_left();
    run.entry.settle(if has_left { UsageOutcome::Cancelled } else { UsageOutcome::Completed });
    let (model, is_byok) = (answering.endpoint.candidate.model.clone(), answering.is_byok());
    let Received { vectors, memory } = answering.begun.rest;
    let length: usize = vectors.vectors.iter().map(Vec::len).sum();
    let answer = EmbeddingsAnswer {
        id: scope.context.request_id.to_string(),
        model,
        vectors,
        cost: cost.plus(&run.entry.lost()),
        is_byok,
        metadata: run.metadata(),
    };
    let format = request.encoding_format;
    let body = aside(length, move || {
        let body = answer.body(format);
        drop(memory);
        body
    });
    body.await?.map_err(|_| Refusal::internal())
}

/// The endpoints that state what the request needs. Parts that are not text go to no endpoint that states nothing: most
/// embedding models take text only.
///
/// # Errors
/// 400 where none is left. It names the first input of a kind that no endpoint takes, or else the kinds that no endpoint
/// takes together.
fn candidates(
    models: &[NamedModel],
    request: &EmbeddingsRequest,
) -> Result<Vec<(u32, Arc<Endpoint>)>, Refusal> {
    let states = |endpoint: &Endpoint, need: Ability| {
        endpoint.candidate.supports.iter().any(|stated| stated == need.as_str())
    };
    let needs = &request.needs;
    let able = routing::candidates(models, |endpoint| needs.keys().all(|need| states(endpoint, *need)));
    if !able.is_empty() {
        return Ok(able);
    }
    let is_taken = |need| models.iter().any(|named| named.endpoints().any(|endpoint| states(endpoint, need)));
    let untaken = needs.iter().filter(|(need, _)| !is_taken(**need)).map(|(_, index)| index).min();
    match untaken {
        Some(index) => Err(Refusal::invalid(unsupported(*index))),
        None if needs.is_empty() => Err(Refusal::no_endpoints()),
        None => {
            let kinds: Vec<&str> = needs.keys().map(|need| need.as_str()).collect();
            let kinds = kinds.join(" and ");
            let message = format!(
                "input: no endpoint of this model takes {kinds} in one request; send each kind alone"
            );
            Err(Refusal::invalid(message))
        }
    }
}

/// The summary of the request that routers get.
fn summary(request: &EmbeddingsRequest, models: &[NamedModel]) -> RequestSummary {
    RequestSummary {
        preferences: request.provider.json.to_vec(),
        parameters: request.parameters.iter().map(|&name| name.to_owned()).collect(),
        needs: request.needs.keys().map(|need| need.as_str().to_owned()).collect(),
        input_tokens: request.input_tokens,
        ..routing::summary(Purpose::Embeddings, &request.model, NamedModel::ids(models))
    }
}
