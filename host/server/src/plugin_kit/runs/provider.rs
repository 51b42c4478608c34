//! Cases of providers: the request that the plugin writes, and what it makes of the answer.

use std::sync::Arc;

use cofferdam_runtime::wire::{
    EmbeddingFailure, Embeddings, Frame, Prepared, PreparedEmbeddings, ResponseHead, UpstreamRequest,
};
use cofferdam_runtime::{CallContext, Plugin, ProviderInstance};
use serde_json::{Map, Value, json};

use super::answer::{assembled, events_of_stream, frames_of};
use super::served::as_served;
use super::{Trouble, failure_json, members, read};
use crate::plugin_kit::cases::{FedStream, ProviderInput, ProviderRequest, ScriptedReply, UpstreamAnswer};

pub(super) async fn answer(
    plugin: &Arc<Plugin>,
    context: &CallContext,
    input: &ProviderInput,
) -> Result<Map<String, Value>, Trouble> {
    let mut instance = plugin.open_provider(context).await?;
    let answer = match &input.request {
        ProviderRequest::Responses(request) => {
            responses(&mut instance, as_served(request).to_string().as_bytes(), input).await?
        }
        ProviderRequest::Embeddings(request) => {
            embeddings(&mut instance, request.to_string().as_bytes(), input).await?
        }
    };
    instance.close().await;
    Ok(answer)
}

async fn responses(
    instance: &mut ProviderInstance,
    request: &[u8],
    input: &ProviderInput,
) -> Result<Map<String, Value>, Trouble> {
    let upstream = match instance.prepare(request, &input.target).await? {
        Ok(Prepared::Upstream(upstream)) => upstream,
        Ok(Prepared::Answer(events)) => {
            refuse_answer(input)?;
            return assembled(Ok(events));
        }
        Err(failure) => return assembled(Err(failure)),
    };
    let mut answer = prepared(&upstream);
    let more = match &input.answer {
        None => return Ok(answer),
        Some(UpstreamAnswer::Stream(_) | UpstreamAnswer::Fed(_)) if !upstream.streamed => {
            let rule = "the case has a stream, but `prepare` asked for one body; use `answer`";
            return Err(Trouble::Rule(rule.to_owned()));
        }
        Some(UpstreamAnswer::Stream(stream)) => {
            let head = ResponseHead { status: 200, headers: Vec::new(), streamed: true };
            let provider = instance.plugin().manifest().provider.as_ref();
            let framing = provider.map(|provider| provider.framing).unwrap_or_default();
            let frames = frames_of(stream, framing)?;
            assembled(events_of_stream(instance, &head, [frames.as_slice()]).await?)?
        }
        Some(UpstreamAnswer::Fed(FedStream { status, headers, feeds })) => {
            let head = ResponseHead { streamed: true, ..head_of(instance, *status, headers) };
            assembled(events_of_stream(instance, &head, feeds.iter().map(Vec::as_slice)).await?)?
        }
        Some(UpstreamAnswer::Whole(reply)) if is_error(reply) => {
            let failure = instance.map_error(&head_of_reply(instance, reply), &reply.body).await?;
            members(json!({"failure": failure_json(&failure)}))
        }
        Some(UpstreamAnswer::Whole(reply)) => {
            let body = Frame { name: String::new(), data: reply.body.clone() };
            assembled(instance.decode(&head_of_reply(instance, reply), body).await?)?
        }
    };
    answer.extend(more);
    Ok(answer)
}

async fn embeddings(
    instance: &mut ProviderInstance,
    request: &[u8],
    input: &ProviderInput,
) -> Result<Map<String, Value>, Trouble> {
    let upstream = match instance.prepare_embeddings(request, &input.target).await? {
        Ok(PreparedEmbeddings::Upstream(upstream)) => upstream,
        Ok(PreparedEmbeddings::Answer(embeddings)) => {
            refuse_answer(input)?;
            return Ok(vectors(&embeddings));
        }
        Err(EmbeddingFailure::UnsupportedInput(index)) => {
            return Ok(members(json!({"unsupported_input": index})));
        }
        Err(EmbeddingFailure::Failed(failure)) => {
            return Ok(members(json!({"failure": failure_json(&failure)})));
        }
    };
    let mut answer = prepared(&upstream);
    let more = match &input.answer {
        None => return Ok(answer),
        Some(UpstreamAnswer::Stream(_) | UpstreamAnswer::Fed(_)) => {
            let rule = "embeddings come as one body: use `answer` in the place of a stream";
            return Err(Trouble::Rule(rule.to_owned()));
        }
        Some(UpstreamAnswer::Whole(reply)) if is_error(reply) => {
            let failure = instance.map_error(&head_of_reply(instance, reply), &reply.body).await?;
            members(json!({"failure": failure_json(&failure)}))
        }
        Some(UpstreamAnswer::Whole(reply)) => {
            match instance.decode_embeddings(&head_of_reply(instance, reply), &reply.body).await? {
                Ok(embeddings) => vectors(&embeddings),
                Err(failure) => members(json!({"failure": failure_json(&failure)})),
            }
        }
    };
    answer.extend(more);
    Ok(answer)
}

/// The plugin has answered itself, so an answer of the case would not be read.
fn refuse_answer(input: &ProviderInput) -> Result<(), Trouble> {
    match input.answer {
        None => Ok(()),
        Some(_) => {
            let rule =
                "`prepare` gave the whole answer: remove `upstream`, `stream` or `answer`, which is not read";
            Err(Trouble::Rule(rule.to_owned()))
        }
    }
}

/// Whether a serving host has the plugin make a failure of this answer.
fn is_error(reply: &ScriptedReply) -> bool {
    !(200..300).contains(&reply.status)
}

fn head_of_reply(instance: &ProviderInstance, reply: &ScriptedReply) -> ResponseHead {
    head_of(instance, reply.status, &reply.headers)
}

/// The head of an answer in one body, with the headers that the manifest asks for.
fn head_of(instance: &ProviderInstance, status: u16, headers: &[(String, String)]) -> ResponseHead {
    let provider = instance.plugin().manifest().provider.as_ref();
    let is_asked = |(name, _): &&(String, String)| {
        provider.is_some_and(|provider| provider.response_headers.contains(name))
    };
    let headers = headers.iter().filter(is_asked).cloned().collect();
    ResponseHead { status, headers, streamed: false }
}

fn prepared(upstream: &UpstreamRequest) -> Map<String, Value> {
    let UpstreamRequest { path, headers, body, streamed } = upstream;
    let headers: Map<String, Value> =
        headers.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    members(json!({"path": path, "headers": headers, "body": read(body), "streamed": streamed}))
}

fn vectors(embeddings: &Embeddings) -> Map<String, Value> {
    let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    let vector = |bytes: &Vec<u8>| bytes.as_chunks::<4>().0.iter().map(number).collect::<Vec<f32>>();
    let vectors: Vec<Vec<f32>> = embeddings.vectors.iter().map(vector).collect();
    let Embeddings { prompt_tokens, total_tokens, cost_dollars, .. } = embeddings;
    members(json!({
        "vectors": vectors,
        "usage": {"prompt_tokens": prompt_tokens, "total_tokens": total_tokens, "cost_dollars": cost_dollars},
    }))
}
