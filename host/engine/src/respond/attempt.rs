//! One attempt at one endpoint, up to its first real content. Until then nothing has been sent to
//! the client, so after a failure the next endpoint can be tried.

use super::held;
use crate::assembler::Permits;
use crate::attempt::{begin_call, exchange, framing_of, open};
use crate::authentication::UsedCredential;
use crate::catalog::Endpoint;
use crate::failure::{AttemptFailure, Cause};
use crate::lifecycle::deadline::{Deadline, Late, Timeouts};
use crate::money::ledger::LedgerEntry;
use crate::offload::aside;
use crate::plugins::hooks::HELD_BYTES_MAX;
use crate::refusal::Refusal;
use crate::request::{
    Dialect, RenderedRequest, RenderedTools, ResponsesRequest, Unsealed, render, without_seals,
};
use crate::run::{Begun, Trial};
use crate::scope::RequestScope;
use crate::timeline::call_outcome;
use crate::upstream::echo::Echo;
use crate::upstream::reading::{Beginning, ReadError, UpstreamReading, verdict};
use bytes::Bytes;
use cofferdam_runtime::ProviderInstance;
use cofferdam_runtime::wire::{Event, Prepared, UpstreamRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::Instant;

/// What an attempt needs besides the endpoint.
pub(super) struct ResponseAttempt<'a> {
    pub(super) scope: &'a Arc<RequestScope>,
    /// The request of this turn as JSON for the guest.
    pub(super) json: &'a Bytes,
    /// The parsed request from which `json` was written. Each endpoint's guest gets the options of
    /// its provider.
    pub(super) request: &'a ResponsesRequest,
    /// Which kinds of items the provider may make itself.
    pub(super) permits: Permits,
    /// How many items at the beginning of the input go without their seals, because a provider could not open them.
    /// Later turns begin with the same items.
    pub(super) foreign_seals: &'a AtomicUsize,
    /// Set where the client asked to see the upstream requests (`debug.echo_upstream_body`).
    pub(super) echo: Option<&'a Echo>,
}

/// The rest of an answer that has begun.
#[derive(Default)]
pub(super) struct RestOfAnswer {
    /// Reads what is still to come; `None` for an answer that the guest made itself.
    pub(super) reading: Option<Box<UpstreamReading>>,
    /// The functions that stand for client tools of other kinds, where the request was rendered
    /// differently from what the client sent.
    pub(super) told: Option<Arc<RenderedTools>>,
}

impl Trial for ResponseAttempt<'_> {
    type Rest = RestOfAnswer;

    async fn run(
        &self,
        endpoint: &Arc<Endpoint>,
        is_byok: bool,
        deadline: &mut Deadline,
        entry: &mut LedgerEntry,
    ) -> Result<Begun<RestOfAnswer>, AttemptFailure> {
        let foreign = self.foreign_seals.load(Ordering::Relaxed);
        let unsealed = if foreign == 0 { None } else { self.without_seals(foreign).await? };
        let json = unsealed.map_or_else(|| self.json.clone(), |unsealed| Bytes::from(unsealed.json));
        let asked = self.ask(endpoint, is_byok, &json, deadline, entry).await;
        if !asked.as_ref().is_err_and(AttemptFailure::is_about_seals) || deadline.has_left() {
            return asked;
        }
        // The provider may answer without the reasoning that it could not open.
        let Some(unsealed) = self.without_seals(usize::MAX).await? else { return asked };
        if foreign == unsealed.items {
            return asked;
        }
        let provider = &endpoint.provider.name;
        tracing::info!(%provider, "a provider could not open sealed reasoning, and is asked again without it");
        entry.asked_again();
        let asked = self.ask(endpoint, is_byok, &Bytes::from(unsealed.json), deadline, entry).await;
        if asked.is_ok() {
            self.foreign_seals.store(unsealed.items, Ordering::Relaxed);
        }
        asked
    }
}

impl ResponseAttempt<'_> {
    /// The request without the seals of its first `most` items; `None` where they have none. A long request is read on
    /// another thread.
    async fn without_seals(&self, most: usize) -> Result<Option<Unsealed>, AttemptFailure> {
        let json = self.json.clone();
        let unsealed = aside(json.len(), move || without_seals(&json, most)).await;
        unsealed.map_err(|_: Refusal| AttemptFailure::of(Cause::Plugin))
    }

    /// Asks one endpoint with this JSON.
    async fn ask(
        &self,
        endpoint: &Arc<Endpoint>,
        is_byok: bool,
        json: &Bytes,
        deadline: &mut Deadline,
        entry: &mut LedgerEntry,
    ) -> Result<Begun<RestOfAnswer>, AttemptFailure> {
        let (mut instance, target) = open(self.scope, endpoint, &self.request.provider).await?;
        let rendered = self.rendered(endpoint, is_byok, json).await?;
        let json = rendered.as_ref().map_or(&json[..], |rendered| &rendered.json);
        let step = begin_call(self.scope, &instance, "prepare");
        let prepared = instance.prepare(json, &target).await;
        self.scope.timeline.end_call(step, call_outcome(&prepared), instance.spent(), &[]);
        let prepared = prepared.map_err(|error| AttemptFailure::prepare(error, json.len()))?;
        let told = rendered.map(|rendered| rendered.tools);
        let upstream = match prepared {
            Ok(Prepared::Answer(mut events)) => {
                entry.correct(&mut events);
                self.check(endpoint, &events)?;
                let is_empty = is_empty(&events)?;
                instance.close().await;
                let rest = RestOfAnswer { reading: None, told };
                return Ok(Begun { status: None, used: None, events, is_empty, rest });
            }
            Ok(Prepared::Upstream(upstream)) => upstream,
            Err(failure) => return Err(AttemptFailure::dialect(failure)),
        };
        // Only the caller's own credential may be used where the request was routed with it, or
        // asks for something that the operator does not offer on the operator's credential.
        let callers_alone = is_byok || endpoint.misses(self.request, false).is_some();
        let used = self.scope.credentials().release(&endpoint.provider, callers_alone).await?;
        if let Some(echo) = self.echo {
            echo.note(&upstream.body, used.as_ref());
        }
        let begun = self.exchange(instance, endpoint, upstream, used.as_ref(), deadline, entry).await;
        let mut begun = begun.map_err(|failed| failed.after(used.as_ref()))?;
        begun.used = used;
        begun.rest.told = told;
        Ok(begun)
    }

    /// The request rendered for the dialect of `endpoint`; `None` where the dialect takes it as it
    /// is. A long request is rendered on another thread.
    async fn rendered(
        &self,
        endpoint: &Arc<Endpoint>,
        is_byok: bool,
        json: &Bytes,
    ) -> Result<Option<RenderedRequest>, AttemptFailure> {
        let kinds = &self.request.kinds;
        if kinds.is_empty() || !in_dialect(endpoint, self.scope, is_byok, |dialect| dialect.lacks(kinds)) {
            return Ok(None);
        }
        let (endpoint, scope) = (Arc::clone(endpoint), Arc::clone(self.scope));
        let (json, compacts) = (json.clone(), kinds.compacts);
        let rendered = aside(json.len(), move || {
            in_dialect(&endpoint, &scope, is_byok, |dialect| render(&json, dialect, compacts))
        });
        rendered.await.map_err(|_: Refusal| AttemptFailure::of(Cause::Plugin))
    }

    async fn exchange(
        &self,
        mut instance: ProviderInstance,
        endpoint: &Endpoint,
        upstream: UpstreamRequest,
        used: Option<&UsedCredential>,
        deadline: &mut Deadline,
        entry: &mut LedgerEntry,
    ) -> Result<Begun<RestOfAnswer>, AttemptFailure> {
        let Timeouts { first_event, .. } = self.scope.parts().timeouts;
        let begin_by = Instant::now() + endpoint.first_event.unwrap_or(first_event);
        let (head, body) = exchange(self.scope, &mut instance, endpoint, upstream, used, deadline).await?;
        let status = head.status;
        let framing = head.streamed.then(|| framing_of(endpoint.provider.adapter.manifest()));
        let reading = UpstreamReading::open(instance, head, body, framing, &self.scope.timeline).await?;
        self.first_events(endpoint, reading, status, begin_by, deadline, entry).await
    }

    async fn first_events(
        &self,
        endpoint: &Endpoint,
        mut reading: Box<UpstreamReading>,
        status: u16,
        begin_by: Instant,
        deadline: &mut Deadline,
        entry: &mut LedgerEntry,
    ) -> Result<Begun<RestOfAnswer>, AttemptFailure> {
        let mut events = Vec::new();
        let mut held_bytes = 0;
        // For a stream this function returns at the first content, so an error in here comes before
        // it. A whole answer counts as begun as soon as its head is here.
        let begun = !deadline.is_streamed();
        loop {
            let limit = if reading.awaits_first_event() {
                begin_by.saturating_duration_since(Instant::now())
            } else {
                self.scope.parts().timeouts.idle
            };
            let mut more = reading
                .next(deadline, limit)
                .await
                .map_err(|error| AttemptFailure::read(error, status, begun))?;
            if reading.awaits_first_event() && !reading.is_over() && begin_by <= Instant::now() {
                // Bytes that are no event, such as comments, arrived in time for each read.
                return Err(AttemptFailure::read(ReadError::Late(Late::Step), status, begun));
            }
            entry.correct(&mut more);
            entry.seen(&more);
            self.check(endpoint, &more).map_err(|failed| failed.with_status(status).cut_here())?;
            let ended = more.iter().any(|event| matches!(event, Event::Finish(_)));
            let mut verdict = verdict_for(&more, deadline.is_streamed());
            if deadline.is_held() {
                held_bytes += held::add(&mut events, more);
            } else {
                events.extend(more);
            }
            // Without a stream nothing was sent to the client before the end: even after the first
            // content a failure lets another endpoint answer.
            if ended && !deadline.is_streamed() {
                verdict = verdict_for(&events, false);
            }
            // An answer that is too long to be held back is refused later, where it is assembled.
            let is_over = ended || held_bytes > HELD_BYTES_MAX;
            let is_empty = match verdict {
                Beginning::Failed(failure) => return Err(AttemptFailure::in_band(failure, Some(status))),
                Beginning::Answered if deadline.is_streamed() || is_over => false,
                Beginning::Empty => true,
                Beginning::Wait | Beginning::Answered if !reading.is_over() => continue,
                _ => return Err(AttemptFailure::of(Cause::Endpoint).with_status(status)),
            };
            if deadline.is_streamed() {
                self.scope.timeline.first_content();
            }
            let rest = RestOfAnswer { reading: Some(reading), told: None };
            return Ok(Begun { status: Some(status), used: None, events, is_empty, rest });
        }
    }

    /// Refuses an answer with an item that only a client or this host may make.
    fn check(&self, endpoint: &Endpoint, events: &[Event]) -> Result<(), AttemptFailure> {
        if self.permits.allow_all(events) {
            return Ok(());
        }
        let provider = &endpoint.provider.name;
        tracing::warn!(%provider, "a provider made an item that only a client or this host may make");
        Err(AttemptFailure::of(Cause::Endpoint))
    }
}

/// Calls `work` with what the dialect of `endpoint` has.
fn in_dialect<T>(
    endpoint: &Endpoint,
    scope: &RequestScope,
    is_byok: bool,
    work: impl FnOnce(&Dialect<'_>) -> T,
) -> T {
    let provider = endpoint.provider.adapter.manifest().provider.as_ref();
    work(&Dialect {
        has_tool: &|tool_type| endpoint.takes_kind(tool_type, is_byok),
        takes_items: provider.is_some_and(|provider| provider.takes_items),
        open: &|sealed| scope.credentials().open_conversation(sealed),
    })
}

/// Without a stream, an error event anywhere in the answer decides. In a stream, the first content
/// does.
fn verdict_for(events: &[Event], streamed: bool) -> Beginning {
    let error = events.iter().find_map(|event| match event {
        Event::Error(failure) => Some(failure.clone()),
        _ => None,
    });
    match error {
        Some(failure) if !streamed => Beginning::Failed(failure),
        _ => verdict(events),
    }
}

/// Whether an answer that the guest made without an upstream request ended without content. After an
/// error there is no provider to blame: only the request and the guest decided the answer.
fn is_empty(events: &[Event]) -> Result<bool, AttemptFailure> {
    match verdict(events) {
        Beginning::Answered => Ok(false),
        Beginning::Empty => Ok(true),
        Beginning::Failed(failure) => Err(AttemptFailure::in_band(failure, None)),
        Beginning::Wait => Err(AttemptFailure::of(Cause::Empty)),
    }
}
