//! Calls into providers. One instance serves one attempt: it prepares the request, decodes the
//! answer or maps its error, and may keep state in between.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use wasmtime::component::{ResourceAny, TypedFunc};

use crate::calls::answers::{
    Broken, check_events, check_prepared, check_upstream, check_vectors, event_bytes,
};
use crate::calls::{borrowing, cached};
use crate::context::CallContext;
use crate::error::{CallError, CallErrorKind};
use crate::guest::exports::{Decode, EventsAnswer, Prepare};
use crate::instance::Instance;
use crate::permits::Claim;
use crate::plugin::Plugin;
use crate::services::SentSearch;
use crate::wire::{
    EmbeddingFailure, Embeddings, Event, Failure, Frame, Prepared, PreparedEmbeddings, ResponseHead, Target,
};

/// Output limit in bytes for an empty input: a short prompt can lead to a long answer.
const OUTPUT_BYTES_FREE: usize = 1024 * 1024;
/// Additional output per byte of input: a request grows when it is translated, and an event takes
/// more memory than its line.
const OUTPUT_PER_INPUT_BYTE: usize = 8;
/// Output limit of embeddings in bytes: 2,048 vectors of 4,096 numbers. Independent of the input,
/// because a short text gives a vector as long as any other. The guest's own memory limit is
/// stricter.
const VECTORS_BYTES_MAX: usize = 48 * 1024 * 1024;
/// Output limit of any call, in bytes.
const OUTPUT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Number of events per call, plus one per `BYTES_PER_EVENT` bytes that were fed.
const EVENTS_FREE: usize = 4_096;
const BYTES_PER_EVENT: usize = 16;
/// Length limit of an error's body in bytes, as in `wit/provider.wit`.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// One attempt at a provider. After a [`CallError`], or if the future of a call was dropped, it is
/// dead: every later call returns an error.
pub struct ProviderInstance {
    plugin: Arc<Plugin>,
    live: Option<Instance>,
    /// The permit for an instance, held while it has no instance.
    paused: Option<Claim>,
    decoder: Option<ResourceAny>,
    fed_bytes: usize,
    emitted_bytes: usize,
}

impl Plugin {
    /// Gets the instance for one attempt: a new one, or an idle one of an earlier attempt of the
    /// same owner.
    ///
    /// # Errors
    ///
    /// The plugin is not a provider, lacks a grant, does not start, or no instance is free.
    pub async fn open_provider(
        self: &Arc<Self>,
        context: &CallContext,
    ) -> Result<ProviderInstance, CallError> {
        if self.compiled().await?.functions.map_error.is_none() {
            return Err(self.missing("dialect"));
        }
        let live = Instance::warm(self, context).await?;
        Ok(ProviderInstance {
            plugin: Arc::clone(self),
            live: Some(live),
            paused: None,
            decoder: None,
            fed_bytes: 0,
            emitted_bytes: 0,
        })
    }
}

impl ProviderInstance {
    /// The plugin of this instance.
    #[must_use]
    pub fn plugin(&self) -> &Arc<Plugin> {
        &self.plugin
    }

    /// Processor time of the last call; zero after a call that failed.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.live.as_ref().map_or(Duration::ZERO, Instance::spent)
    }

    /// Translates a request into the provider's dialect, or answers it directly.
    ///
    /// # Errors
    ///
    /// The guest trapped or its answer breaks a rule. The inner error is a failure that the guest
    /// reports.
    pub async fn prepare(
        &mut self,
        request: &[u8],
        target: &Target,
    ) -> Result<Result<Prepared, Failure>, CallError> {
        self.require(self.plugin.exports_generation(), "generation")?;
        let prepare = async |instance: &mut Instance| {
            let function: TypedFunc<Prepare<'_>, _> =
                cached(instance, |exports| &mut exports.prepare, |functions| functions.prepare)?;
            let arguments = (request, target, &instance.context);
            Ok(function.call_async(&mut instance.live.store, arguments).await?.0)
        };
        self.make_room(request.len())?;
        self.note_call("generation.prepare", &(request, target));
        let answer = self.call("generation.prepare", output_bytes_max(request.len()), prepare).await?;
        self.note_answer(&answer);
        if let Ok(prepared) = &answer {
            self.accept("generation.prepare", check_prepared(prepared, self.slot()))?;
        }
        Ok(answer)
    }

    /// Call while waiting for the provider. A guest that keeps no state (`stateless` in its
    /// manifest) gives its instance to other attempts of the same owner. Otherwise there would be
    /// one instance per request in progress; a few instances in use stay in the processor's caches.
    pub fn pause(&mut self) {
        let stateless = self.plugin.manifest().provider.as_ref().is_some_and(|provider| provider.stateless);
        if stateless && self.decoder.is_none() {
            // The additional memory of a long request is not held while waiting for its provider.
            let may_pause =
                |live: &mut Instance| live.may_be_kept() || (live.has_room() && live.tape().is_none());
            let idle = self.live.take_if(may_pause);
            self.paused = idle.map(Instance::pause);
        }
    }

    /// Continues after [`Self::pause`], when the provider has answered. `context` must be the one
    /// it was opened with.
    ///
    /// # Errors
    ///
    /// A new instance does not start.
    pub async fn resume(&mut self, context: &CallContext) -> Result<(), CallError> {
        if let Some(claim) = self.paused.take() {
            self.live = Some(Instance::resume(claim, &self.plugin, context).await?);
        }
        Ok(())
    }

    /// Opens the decoder for one answer. Replaces an earlier decoder.
    ///
    /// # Errors
    ///
    /// The guest trapped.
    pub async fn open_decoder(&mut self, head: &ResponseHead) -> Result<(), CallError> {
        self.require(self.plugin.exports_generation(), "generation")?;
        let earlier = self.decoder.take();
        let open = async |instance: &mut Instance| {
            if let Some(earlier) = earlier {
                earlier.resource_drop_async(&mut instance.live.store).await?;
            }
            new_decoder(instance, head).await
        };
        self.note_call("decoder.new", &(head,));
        self.decoder = Some(self.call("decoder.new", OUTPUT_BYTES_FREE, open).await?);
        (self.fed_bytes, self.emitted_bytes) = (0, 0);
        Ok(())
    }

    /// Decodes the frames of all that has arrived since the last call. Without frames the guest is not called.
    ///
    /// # Errors
    ///
    /// The guest trapped, its answer breaks a rule, or no decoder is open.
    pub async fn feed(&mut self, frames: &[Frame]) -> Result<Result<Vec<Event>, Failure>, CallError> {
        if frames.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let decoder = self.opened()?;
        let bytes: usize = frames.iter().map(|frame| frame.name.len() + frame.data.len()).sum();
        self.fed_bytes = self.fed_bytes.saturating_add(bytes);
        self.allow_time(bytes);
        let feed = async |instance: &mut Instance| feed(instance, decoder, frames).await;
        self.note_call("decoder.feed", &(frames,));
        let answer = self.call("decoder.feed", self.output_bytes_left(), feed).await?;
        self.take("decoder.feed", answer, bytes)
    }

    /// Ends the decoding. Returns the remaining events.
    ///
    /// # Errors
    ///
    /// The guest trapped, its answer breaks a rule, or no decoder is open.
    pub async fn finish(&mut self) -> Result<Result<Vec<Event>, Failure>, CallError> {
        let decoder = self.opened()?;
        // A decoder may have kept all that it was fed until now.
        self.allow_time(self.fed_bytes);
        let finish = async |instance: &mut Instance| finish(instance, decoder).await;
        self.note_call("decoder.finish", &());
        let answer = self.call("decoder.finish", self.output_bytes_left(), finish).await?;
        self.take("decoder.finish", answer, self.fed_bytes)
    }

    /// Decodes an answer that arrived as one body, in one call of the host. The guest sees the same
    /// calls as for a stream of one frame.
    ///
    /// # Errors
    ///
    /// The guest trapped or its answer breaks a rule. The inner error is a failure that the guest
    /// reports.
    pub async fn decode(
        &mut self,
        head: &ResponseHead,
        body: Frame,
    ) -> Result<Result<Vec<Event>, Failure>, CallError> {
        self.require(self.plugin.exports_generation(), "generation")?;
        let (bytes, frames) = (body.data.len(), [body]);
        self.allow_time(bytes);
        let decode = async |instance: &mut Instance| whole(instance, head, &frames).await;
        self.note_call("decode", &(head, &frames));
        let answer = self.call("decoder.feed", output_bytes_max(bytes), decode).await?;
        self.take("decode", answer, bytes)
    }

    /// Maps a provider's error answer to a failure. The guest gets the first 64 KiB of `body`.
    ///
    /// # Errors
    ///
    /// The guest trapped.
    pub async fn map_error(&mut self, head: &ResponseHead, body: &[u8]) -> Result<Failure, CallError> {
        let body = body.get(..ERROR_BODY_BYTES_MAX).unwrap_or(body);
        let map = async |instance: &mut Instance| {
            let function = borrowing::<Decode<'_>, (Failure,)>(instance, |functions| functions.map_error)?;
            Ok(function.call_async(&mut instance.live.store, (head, body)).await?.0)
        };
        self.note_call("dialect.map-error", &(head, body));
        let failure = self.call("dialect.map-error", OUTPUT_BYTES_FREE, map).await?;
        self.note_answer(&failure);
        Ok(failure)
    }

    /// Translates an embeddings request into the provider's dialect, or answers it directly.
    ///
    /// # Errors
    ///
    /// The guest trapped or its answer breaks a rule. The inner error is a failure that the guest
    /// reports.
    pub async fn prepare_embeddings(
        &mut self,
        request: &[u8],
        target: &Target,
    ) -> Result<Result<PreparedEmbeddings, EmbeddingFailure>, CallError> {
        self.require(self.plugin.exports_embedding(), "embedding")?;
        let prepare = async |instance: &mut Instance| {
            let function: TypedFunc<Prepare<'_>, _> = cached(
                instance,
                |exports| &mut exports.prepare_embeddings,
                |functions| functions.prepare_embeddings,
            )?;
            let arguments = (request, target, &instance.context);
            Ok(function.call_async(&mut instance.live.store, arguments).await?.0)
        };
        self.make_room(request.len())?;
        let most = output_bytes_max(request.len()).max(VECTORS_BYTES_MAX);
        self.note_call("embedding.prepare", &(request, target));
        let answer = self.call("embedding.prepare", most, prepare).await?;
        self.note_answer(&answer);
        let checked = match &answer {
            Ok(PreparedEmbeddings::Upstream(request)) => check_upstream(request, self.slot()),
            Ok(PreparedEmbeddings::Answer(answer)) => check_vectors(&answer.vectors),
            Err(_) => Ok(()),
        };
        self.accept("embedding.prepare", checked)?;
        Ok(answer)
    }

    /// Translates the provider's answer to an embeddings request.
    ///
    /// # Errors
    ///
    /// The guest trapped or its answer breaks a rule. The inner error is a failure that the guest
    /// reports.
    pub async fn decode_embeddings(
        &mut self,
        head: &ResponseHead,
        body: &[u8],
    ) -> Result<Result<Embeddings, Failure>, CallError> {
        self.require(self.plugin.exports_embedding(), "embedding")?;
        let decode = async |instance: &mut Instance| {
            let function: TypedFunc<Decode<'_>, _> = cached(
                instance,
                |exports| &mut exports.decode_embeddings,
                |functions| functions.decode_embeddings,
            )?;
            Ok(function.call_async(&mut instance.live.store, (head, body)).await?.0)
        };
        self.make_room(body.len())?;
        self.note_call("embedding.decode", &(head, body));
        let answer = self.call("embedding.decode", VECTORS_BYTES_MAX, decode).await?;
        self.note_answer(&answer);
        if let Ok(embeddings) = &answer {
            self.accept("embedding.decode", check_vectors(&embeddings.vectors))?;
        }
        Ok(answer)
    }

    /// Ends a successful attempt and keeps its instance for the next one of the same owner. An
    /// instance that is dropped instead is not reused.
    pub async fn close(mut self) {
        let Some(live) = self.live.take().filter(Instance::may_be_kept) else { return };
        let Some(decoder) = self.decoder.take() else { return live.keep() };
        let end = async |instance: &mut Instance| decoder.resource_drop_async(&mut instance.live.store).await;
        // A trap in the destructor is counted and logged. The attempt already has its answer.
        if let Ok((live, ())) = live.run("decoder.drop", OUTPUT_BYTES_FREE, end).await {
            live.keep();
        }
    }

    fn make_room(&mut self, request_bytes: usize) -> Result<(), CallError> {
        self.live.as_mut().map_or(Ok(()), |live| live.make_room(request_bytes))
    }

    /// Runs one call in the instance. A call that fails loses the instance.
    async fn call<T>(
        &mut self,
        function: &'static str,
        output_bytes_max: usize,
        call: impl AsyncFnOnce(&mut Instance) -> wasmtime::Result<T>,
    ) -> Result<T, CallError> {
        let Some(live) = self.live.take() else {
            return Err(CallError::new(self.plugin.name(), CallErrorKind::Dead));
        };
        let (live, answer) = live.run(function, output_bytes_max, call).await?;
        self.live = Some(live);
        Ok(answer)
    }

    /// Raises the limit of processor time of the next call for an input of `bytes` bytes, if it is a long one.
    fn allow_time(&mut self, bytes: usize) {
        if let Some(live) = &mut self.live {
            live.allow_time(bytes);
        }
    }

    fn require(&self, exported: bool, interface: &'static str) -> Result<(), CallError> {
        if exported { Ok(()) } else { Err(self.plugin.missing(interface)) }
    }

    fn opened(&self) -> Result<ResourceAny, CallError> {
        self.decoder
            .ok_or_else(|| CallError::new(self.plugin.name(), CallErrorKind::NotExported("an open decoder")))
    }

    /// Before a recording of this attempt is written, it is searched with `search` too.
    pub fn search_with(&self, search: impl FnOnce() -> Box<dyn SentSearch>) {
        if let Some(tape) = self.live.as_ref().and_then(Instance::tape) {
            tape.search_with(search);
        }
    }

    fn note_call(&self, function: &'static str, input: &impl Serialize) {
        if let Some(live) = &self.live {
            live.note_call(function, input);
        }
    }

    fn note_answer(&self, answer: &impl Serialize) {
        if let Some(live) = &self.live {
            live.note_answer(answer);
        }
    }

    /// The header of the credential.
    fn slot(&self) -> Option<&str> {
        let slot = self.plugin.manifest().provider.as_ref()?.credential.as_ref();
        slot.map(|slot| slot.header.as_str())
    }

    fn accept(&mut self, function: &'static str, checked: Result<(), Broken>) -> Result<(), CallError> {
        checked.map_err(|rule| self.end(function, CallErrorKind::InvalidAnswer(rule)))
    }

    /// A broken rule ends the instance like a trap: its next answer cannot be trusted either.
    fn end(&mut self, function: &'static str, kind: CallErrorKind) -> CallError {
        match self.live.take() {
            Some(live) => live.failed(function, kind),
            None => self.plugin.failed(kind),
        }
    }

    fn output_bytes_left(&self) -> usize {
        output_bytes_max(self.fed_bytes).saturating_sub(self.emitted_bytes)
    }

    fn take(
        &mut self,
        function: &'static str,
        answer: Result<Vec<Event>, Failure>,
        bytes: usize,
    ) -> Result<Result<Vec<Event>, Failure>, CallError> {
        self.note_answer(&answer);
        if let Ok(events) = &answer {
            if events.len() > EVENTS_FREE + bytes / BYTES_PER_EVENT {
                return Err(self.end(function, CallErrorKind::OutputTooLarge));
            }
            self.accept(function, check_events(events))?;
            let emitted: usize = events.iter().map(event_bytes).sum();
            self.emitted_bytes = self.emitted_bytes.saturating_add(emitted);
        }
        Ok(answer)
    }
}

/// Creates a decoder, feeds it all frames and finishes it.
async fn whole(
    instance: &mut Instance,
    head: &ResponseHead,
    frames: &[Frame],
) -> wasmtime::Result<Result<Vec<Event>, Failure>> {
    let decoder = new_decoder(instance, head).await?;
    let mut answer = feed(instance, decoder, frames).await?;
    let is_end = |event: &Event| matches!(event, Event::Finish(_) | Event::Error(_));
    // After a final event, `finish` has nothing to add and is not called.
    if let Ok(events) = &mut answer
        && !events.iter().any(is_end)
    {
        let last = finish(instance, decoder).await?;
        answer = last.map(|last| std::mem::take(events).into_iter().chain(last).collect());
    }
    decoder.resource_drop_async(&mut instance.live.store).await?;
    Ok(answer)
}

async fn new_decoder(instance: &mut Instance, head: &ResponseHead) -> wasmtime::Result<ResourceAny> {
    let function: TypedFunc<(&ResponseHead,), _> =
        cached(instance, |exports| &mut exports.new_decoder, |functions| functions.new_decoder)?;
    Ok(function.call_async(&mut instance.live.store, (head,)).await?.0)
}

async fn feed(
    instance: &mut Instance,
    decoder: ResourceAny,
    frames: &[Frame],
) -> wasmtime::Result<Result<Vec<Event>, Failure>> {
    let function: TypedFunc<(ResourceAny, &[Frame]), EventsAnswer> =
        cached(instance, |exports| &mut exports.feed, |functions| functions.feed)?;
    Ok(function.call_async(&mut instance.live.store, (decoder, frames)).await?.0)
}

async fn finish(
    instance: &mut Instance,
    decoder: ResourceAny,
) -> wasmtime::Result<Result<Vec<Event>, Failure>> {
    let function = cached(instance, |exports| &mut exports.finish, |functions| functions.finish)?;
    Ok(function.call_async(&mut instance.live.store, (decoder,)).await?.0)
}

fn output_bytes_max(input_bytes: usize) -> usize {
    input_bytes.saturating_mul(OUTPUT_PER_INPUT_BYTE).saturating_add(OUTPUT_BYTES_FREE).min(OUTPUT_BYTES_MAX)
}
