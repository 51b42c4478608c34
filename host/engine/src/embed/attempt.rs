//! One attempt at one endpoint for embeddings.

use super::document::{floats, written_bytes};
use crate::attempt::{begin_call, exchange, open};
use crate::authentication::UsedCredential;
use crate::catalog::Endpoint;
use crate::cost::no_usage;
use crate::failure::{AttemptFailure, Cause};
use crate::lifecycle::deadline::Deadline;
use crate::money::ledger::LedgerEntry;
use crate::request::EmbeddingsRequest;
use crate::run::{Begun, Trial};
use crate::scope::RequestScope;
use crate::timeline::{FactName, StepType, call_outcome};
use crate::upstream::reading::{ReadError, read_whole};
use cofferdam_egress::ReplyBody;
use cofferdam_runtime::ProviderInstance;
use cofferdam_runtime::memory::MemoryShare;
use cofferdam_runtime::wire::{
    EmbeddingFailure, Embeddings, ErrorKind, Failure, PreparedEmbeddings, ResponseHead, UpstreamRequest,
    Usage,
};
use std::sync::Arc;

/// The vectors of an answer, with their share of the memory of long answers.
pub(super) struct Received {
    pub(super) vectors: Embeddings,
    pub(super) memory: MemoryShare,
}

/// What an attempt needs besides the endpoint.
pub(super) struct EmbeddingAttempt<'a> {
    pub(super) scope: &'a RequestScope,
    pub(super) request: &'a EmbeddingsRequest,
}

impl Trial for EmbeddingAttempt<'_> {
    type Rest = Received;

    async fn run(
        &self,
        endpoint: &Arc<Endpoint>,
        is_byok: bool,
        deadline: &mut Deadline,
        entry: &mut LedgerEntry,
    ) -> Result<Begun<Received>, AttemptFailure> {
        let (mut instance, target) = open(self.scope, endpoint, &self.request.provider).await?;
        let request = &self.request.guest_json;
        let step = begin_call(self.scope, &instance, "prepare");
        let prepared = instance.prepare_embeddings(request, &target).await;
        let outcome = prepared.as_ref().map_or_else(|error| error.kind.as_str(), |_| "ok");
        self.scope.timeline.end_call(step, outcome, instance.spent(), &[]);
        let prepared = prepared.map_err(|error| AttemptFailure::prepare(error, request.len()))?;
        let begun = |status, used, rest| Begun { status, used, events: Vec::new(), is_empty: false, rest };
        let upstream = match prepared {
            Ok(PreparedEmbeddings::Answer(vectors)) => {
                let vectors = self.checked(corrected(vectors, entry))?;
                instance.close().await;
                return Ok(begun(None, None, Received { vectors, memory: MemoryShare::of_answer() }));
            }
            Ok(PreparedEmbeddings::Upstream(upstream)) => upstream,
            Err(EmbeddingFailure::Failed(failure)) => return Err(AttemptFailure::dialect(failure)),
            Err(EmbeddingFailure::UnsupportedInput(index)) => {
                let message = unsupported(index as usize);
                return Err(AttemptFailure::dialect(Failure::new(ErrorKind::InvalidRequest, message)));
            }
        };
        let used = self.scope.credentials().release(&endpoint.provider, is_byok).await?;
        match self.exchange(instance, endpoint, upstream, used.as_ref(), deadline, entry).await {
            Ok((received, status)) => Ok(begun(Some(status), used, received)),
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
        entry: &mut LedgerEntry,
    ) -> Result<(Received, u16), AttemptFailure> {
        let (head, body) = exchange(self.scope, &mut instance, endpoint, upstream, used, deadline).await?;
        let status = head.status;
        let received = self.receive(instance, head, body, deadline, entry).await;
        Ok((received.map_err(|failed| failed.with_status(status))?, status))
    }

    /// Reads and decodes the body of an answer.
    async fn receive(
        &self,
        mut instance: ProviderInstance,
        head: ResponseHead,
        mut body: ReplyBody,
        deadline: &mut Deadline,
        entry: &mut LedgerEntry,
    ) -> Result<Received, AttemptFailure> {
        let (status, idle) = (head.status, self.scope.parts().timeouts.idle);
        let timeline = &self.scope.timeline;
        let step = timeline.begin(StepType::Answer, &["body"], &[]);
        let (mut bytes, mut memory) = (0, MemoryShare::of_answer());
        let arrived = |more: usize| {
            bytes += more;
            memory.cover(bytes).map_err(|_| ReadError::OutOfMemory)
        };
        let body = read_whole(&mut body, deadline, idle, arrived).await;
        let outcome = if body.is_ok() { "ok" } else { "unfinished" };
        timeline.end(step, outcome, &[FactName::Bytes.number(bytes as u64)]);
        let body = body.map_err(|error| AttemptFailure::read(error, status, true))?;
        // Embeddings come as one body whatever its content type says.
        let head = ResponseHead { streamed: false, ..head };
        let step = begin_call(self.scope, &instance, "decode");
        let vectors = instance.decode_embeddings(&head, &body).await;
        timeline.end_call(step, call_outcome(&vectors), instance.spent(), &[]);
        let vectors = vectors?;
        let vectors = vectors.map_err(|failure| AttemptFailure::in_band(failure, Some(status)))?;
        let vectors = corrected(vectors, entry);
        entry.told(usage_of(&vectors));
        let vectors = self.checked(vectors)?;
        drop(body);
        // The vectors, and the body that is made of them.
        let length: usize = vectors.vectors.iter().map(Vec::len).sum();
        let written = written_bytes(&vectors, self.request.encoding_format);
        memory
            .cover(length + written)
            .map_err(|_| AttemptFailure::read(ReadError::OutOfMemory, status, true))?;
        instance.close().await;
        Ok(Received { vectors, memory })
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

/// The usage that the provider reported with the vectors.
pub(super) fn usage_of(vectors: &Embeddings) -> Usage {
    Usage { input_tokens: vectors.prompt_tokens, cost_dollars: vectors.cost_dollars, ..no_usage() }
}

/// The answer without figures that cannot be right, see [`LedgerEntry::corrected`].
fn corrected(vectors: Embeddings, entry: &LedgerEntry) -> Embeddings {
    let usage = entry.corrected(usage_of(&vectors));
    let total = entry.corrected(Usage { input_tokens: vectors.total_tokens, ..no_usage() });
    let prompt_tokens_details =
        if usage.input_tokens > 0 { vectors.prompt_tokens_details } else { Vec::new() };
    Embeddings {
        prompt_tokens: usage.input_tokens,
        total_tokens: total.input_tokens.max(usage.input_tokens),
        cost_dollars: usage.cost_dollars,
        prompt_tokens_details,
        ..vectors
    }
}

/// The endpoint made vectors of another length than the client asked for.
fn undimensioned() -> AttemptFailure {
    let message = "dimensions is not supported by any endpoint of this model";
    AttemptFailure::dialect(Failure::new(ErrorKind::InvalidRequest, message))
}

/// The message for an input of a kind that no endpoint takes.
pub(super) fn unsupported(index: usize) -> String {
    format!("input[{index}] is of a kind that no endpoint of this model takes")
}
