//! One attempt at one endpoint, up to its first real content. Until then nothing has been sent to
//! the client, so after a failure the next endpoint can be tried.

pub(crate) mod candidates;
mod fallback;
mod held;

use crate::assembler::Permits;
use crate::attempt::candidates::{Answered, Trial};
use crate::authentication::UsedCredential;
use crate::catalog::{Endpoint, Provider};
use crate::credential::Credentials;
use crate::failure::{AttemptFailure, Cause};
use crate::lifecycle::deadline::{Deadline, Timeouts};
use crate::plugins::hooks::HELD_BYTES_MAX;
use crate::request::{Dialect, RenderedRequest, ResponsesRequest, ToldTools, render};
use crate::routing::Order;
use crate::upstream::echo::Echo;
use crate::upstream::reading::{ANSWER_BYTES_MAX, Beginning, UpstreamReading, verdict};
use cofferdam_egress::{Egress, Error as EgressError, ExchangeLimits, Origin, Outgoing, Reply};
use cofferdam_runtime::manifest::Framing;
use cofferdam_runtime::wire::{Event, Prepared, ResponseHead, UpstreamRequest};
use cofferdam_runtime::{CallContext, Manifest, ProviderInstance};
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How much of an error answer is read, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// How much of an error answer the client gets, in bytes.
const RAW_BYTES_MAX: usize = 4 << 10;
/// Egress gets this much more time than the request itself, so that the request's own deadline ends
/// the wait and the error names the right limit.
const SLACK: Duration = Duration::from_secs(10);
/// How long reading a whole error answer may take.
const ERROR_TIME_MAX: Duration = Duration::from_secs(5);

/// An answer that has begun: its first events, and the rest if it is not complete.
pub(crate) struct Begun {
    pub(crate) events: Vec<Event>,
    pub(crate) reading: Option<Box<UpstreamReading>>,
    pub(crate) status: Option<u16>,
    pub(crate) used: Option<UsedCredential>,
    /// The functions that stand for client tools of other kinds, where the request was rendered
    /// differently from what the client sent.
    pub(crate) told: Option<Arc<ToldTools>>,
    /// Whether the answer ended normally without content.
    pub(crate) is_empty: bool,
}

/// What an attempt needs besides the endpoint.
pub(crate) struct ResponseAttempt<'a> {
    pub(crate) egress: &'a Egress,
    pub(crate) credentials: Credentials<'a>,
    pub(crate) timeouts: &'a Timeouts,
    pub(crate) context: &'a CallContext,
    /// The checked request as JSON for the guest.
    pub(crate) request: &'a [u8],
    /// The parsed request from which `request` was written. Each endpoint's guest gets the options
    /// of its provider.
    pub(crate) checked: &'a ResponsesRequest,
    /// The router's order. It records at which endpoints the caller's own credential is to be used.
    pub(crate) order: &'a Order,
    /// Which kinds of items the provider may make itself.
    pub(crate) permits: Permits,
    /// Set where the client asked to see the upstream requests (`debug.echo_upstream_body`).
    pub(crate) echo: Option<&'a Echo>,
}

impl Answered for Begun {
    fn status(&self) -> Option<u16> {
        self.status
    }

    fn used(&self) -> Option<&UsedCredential> {
        self.used.as_ref()
    }

    fn events(&self) -> &[Event] {
        &self.events
    }

    fn is_empty(&self) -> bool {
        self.is_empty
    }
}

impl Trial for ResponseAttempt<'_> {
    type Answer = Begun;

    /// Tries `endpoint` until its first content, or its whole answer if the request is not
    /// streamed.
    async fn run(&self, endpoint: &Endpoint, deadline: &mut Deadline) -> Result<Begun, AttemptFailure> {
        let provider = &endpoint.provider;
        let mut instance = provider.adapter.open_provider(self.context).await?;
        let mut target = endpoint.target.clone();
        if let Some(given) = self.checked.provider.options_for(&provider.name) {
            target.options = provider.options.sift(given).json;
        }
        let told = self.rendered(endpoint);
        let request = told.as_ref().map_or(self.request, |told| &told.json);
        let prepared = instance.prepare(request, &target).await;
        let prepared = prepared.map_err(|error| AttemptFailure::prepare(error, request.len()))?;
        let told = told.map(|told| told.tools);
        let upstream = match prepared {
            Ok(Prepared::Answer(events)) => {
                self.check(endpoint, &events)?;
                let begun = local(events)?;
                instance.close().await;
                return Ok(Begun { told, ..begun });
            }
            Ok(Prepared::Upstream(upstream)) => upstream,
            Err(failure) => return Err(AttemptFailure::dialect(failure)),
        };
        let used = self.credentials.release(provider, self.is_callers_alone(endpoint)).await?;
        if let Some(echo) = self.echo {
            echo.note(&upstream.body, used.as_ref());
        }
        match self.exchange(instance, endpoint, upstream, used.as_ref(), deadline).await {
            Ok(begun) => Ok(Begun { used, told, ..begun }),
            Err(failed) => Err(failed.after(used.as_ref())),
        }
    }
}

impl ResponseAttempt<'_> {
    /// The request rendered for the dialect of `endpoint`; `None` where the dialect takes it as it
    /// is.
    fn rendered(&self, endpoint: &Endpoint) -> Option<RenderedRequest> {
        let provider = endpoint.provider.adapter.manifest().provider.as_ref();
        let (kinds, is_byok) = (&self.checked.kinds, self.order.is_byok(endpoint));
        let dialect = Dialect {
            has_tool: &|tool_type| endpoint.takes_kind(tool_type, is_byok),
            takes_items: provider.is_some_and(|provider| provider.takes_items),
            open: &|sealed| self.credentials.open_conversation(sealed),
        };
        (!kinds.is_empty() && dialect.lacks(kinds)).then(|| render(self.request, &dialect, kinds)).flatten()
    }

    /// Whether only the caller's own credential may be used there: the request was routed with it,
    /// or it asks for something that the operator does not offer on the operator's credential.
    fn is_callers_alone(&self, endpoint: &Endpoint) -> bool {
        self.order.is_byok(endpoint) || endpoint.misses(self.checked, false).is_some()
    }

    async fn exchange(
        &self,
        mut instance: ProviderInstance,
        endpoint: &Endpoint,
        upstream: UpstreamRequest,
        used: Option<&UsedCredential>,
        deadline: &mut Deadline,
    ) -> Result<Begun, AttemptFailure> {
        let provider = &endpoint.provider;
        let first_event = endpoint.first_event.unwrap_or(self.timeouts.first_event);
        let begin_by = Instant::now() + first_event;
        let asked_for_stream = upstream.streamed;
        // While the provider is waited for, the instance of a stateless guest may serve another call of
        // the same owner.
        instance.pause();
        let reply = send(self.egress, self.timeouts, endpoint, upstream, used, deadline).await?;
        instance.resume(self.context).await?;
        let status = reply.status;
        let manifest = provider.adapter.manifest();
        let streamed = asked_for_stream && is_event_stream(&reply.headers);
        let head = response_head(manifest, &reply, streamed);
        if !status.is_success() {
            return Err(map_error(&mut instance, &head, reply, used, deadline).await);
        }
        let framing = streamed.then(|| framing_of(manifest));
        let reading = UpstreamReading::open(instance, head, reply.body, framing).await?;
        self.first_events(endpoint, reading, status.as_u16(), begin_by, deadline).await
    }

    async fn first_events(
        &self,
        endpoint: &Endpoint,
        mut reading: Box<UpstreamReading>,
        status: u16,
        begin_by: Instant,
        deadline: &mut Deadline,
    ) -> Result<Begun, AttemptFailure> {
        let mut events = Vec::new();
        let mut held_bytes = 0;
        // For a stream this function returns at the first content, so an error in here comes before
        // it. A whole answer counts as begun as soon as its head is here.
        let begun = !deadline.is_streamed();
        loop {
            let limit = if reading.awaits_first_event() {
                begin_by.saturating_duration_since(Instant::now())
            } else {
                self.timeouts.idle
            };
            let more = reading
                .next(deadline, limit)
                .await
                .map_err(|error| AttemptFailure::read(error, status, begun))?;
            self.check(endpoint, &more).map_err(|failed| failed.with_status(status))?;
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
            match verdict {
                Beginning::Failed(failure) => {
                    return Err(AttemptFailure::in_band(failure, Some(status)));
                }
                Beginning::Answered if deadline.is_streamed() || is_over => {
                    let (reading, status) = (Some(reading), Some(status));
                    return Ok(Begun { events, reading, status, used: None, told: None, is_empty: false });
                }
                Beginning::Wait | Beginning::Answered if !reading.is_over() => {}
                Beginning::Empty => {
                    let (reading, status) = (Some(reading), Some(status));
                    return Ok(Begun { events, reading, status, used: None, told: None, is_empty: true });
                }
                _ => return Err(AttemptFailure::of(Cause::Endpoint).with_status(status)),
            }
        }
    }
}

impl ResponseAttempt<'_> {
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

/// An answer that the guest made without an upstream request. There is no provider to blame: only
/// the request and the guest decided it.
fn local(events: Vec<Event>) -> Result<Begun, AttemptFailure> {
    let is_empty = match verdict(&events) {
        Beginning::Answered => false,
        Beginning::Empty => true,
        Beginning::Failed(failure) => return Err(AttemptFailure::in_band(failure, None)),
        Beginning::Wait => return Err(AttemptFailure::of(Cause::Empty)),
    };
    Ok(Begun { events, reading: None, status: None, used: None, told: None, is_empty })
}

/// Sends a guest's request to its provider and waits for the head of the answer.
pub(crate) async fn send(
    egress: &Egress,
    timeouts: &Timeouts,
    endpoint: &Endpoint,
    upstream: UpstreamRequest,
    used: Option<&UsedCredential>,
    deadline: &mut Deadline,
) -> Result<Reply, AttemptFailure> {
    let provider = &endpoint.provider;
    let Some(origin) = &provider.origin else {
        tracing::warn!(provider = %provider.name, "the plugin wants to send a request, but its provider has no base_url");
        return Err(AttemptFailure::of(Cause::Plugin));
    };
    // A provider that is asked for a single body sends the head when the whole body is ready, so
    // the head gets the time of the whole answer.
    let usual = if upstream.streamed { timeouts.first_event } else { timeouts.total };
    let head = endpoint.first_event.unwrap_or(usual);
    let outgoing = Outgoing {
        origin,
        path: &upstream.path,
        headers: headers_of(&upstream)?,
        body: upstream.body.into(),
        streamed: upstream.streamed,
        credential: used.map(|used| &used.credential),
        limits: ExchangeLimits {
            head: head.saturating_add(SLACK),
            idle: timeouts.total.saturating_add(SLACK),
            body_bytes_max: ANSWER_BYTES_MAX as u64,
        },
    };
    let attendance = Arc::clone(deadline.attendance());
    let sent = deadline.during(egress.send_marked(outgoing, attendance.sent()), head).await;
    let answered = sent.map_err(|late| AttemptFailure::late(late, false))?;
    answered.map_err(|error| {
        if error.is_connect() {
            log_unreached(provider, origin, &error);
        }
        error.into()
    })
}

/// Logs, at most once a minute for each provider, why nothing could be sent to it.
fn log_unreached(provider: &Provider, origin: &Origin, error: &EgressError) {
    if provider.attempts.unreached.is_due(&provider.name, std::time::Instant::now()) {
        let (provider, host, port) = (&provider.name, origin.host(), origin.port());
        let cause = match error {
            EgressError::Unreachable(cause) => cause.to_string(),
            error => error.to_string(),
        };
        tracing::warn!(%provider, host, port, "a provider cannot be reached: {cause}");
    }
}

fn headers_of(upstream: &UpstreamRequest) -> Result<Vec<(HeaderName, HeaderValue)>, AttemptFailure> {
    let parse = |(name, value): &(String, String)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value).ok()?))
    };
    let headers: Option<Vec<_>> = upstream.headers.iter().map(parse).collect();
    headers.ok_or_else(|| {
        tracing::warn!("a provider plugin returned an invalid header");
        AttemptFailure::of(Cause::Plugin)
    })
}

/// Whether the answer is a stream of events. A provider may answer with one body although a stream
/// was asked for.
fn is_event_stream(headers: &HeaderMap) -> bool {
    // Without a content type the answer is taken for the stream that was asked for.
    let Some(kind) = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes) else { return true };
    let starts = |known: &&str| {
        kind.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes()))
    };
    ["text/event-stream", "application/x-ndjson", "application/jsonl"].iter().any(starts)
}

fn framing_of(manifest: &Manifest) -> Framing {
    manifest.provider.as_ref().map(|provider| provider.framing).unwrap_or_default()
}

/// The head as the guest may see it: only the headers that its manifest names.
pub(crate) fn response_head(manifest: &Manifest, reply: &Reply, streamed: bool) -> ResponseHead {
    let wanted = manifest.provider.as_ref().map_or(&[][..], |provider| &provider.response_headers);
    let headers = wanted.iter().filter_map(|name| {
        let value = reply.headers.get(name.as_str())?.to_str().ok()?;
        Some((name.clone(), value.to_owned()))
    });
    ResponseHead { status: reply.status.as_u16(), headers: headers.collect(), streamed }
}

/// Reads an error answer and has the guest translate it.
pub(crate) async fn map_error(
    instance: &mut ProviderInstance,
    head: &ResponseHead,
    reply: Reply,
    used: Option<&UsedCredential>,
    deadline: &mut Deadline,
) -> AttemptFailure {
    let status = reply.status;
    if status.as_u16() < 400 {
        // A redirect or another status without an answer. Redirects of providers are never
        // followed.
        return AttemptFailure::of(Cause::Endpoint).with_status(status.as_u16());
    }
    // If the body does not arrive, the status alone decides.
    let mut body = deadline.during(beginning(reply), ERROR_TIME_MAX).await.unwrap_or_default();
    if let Some(used) = used {
        used.credential.cover(&mut body);
    }
    match instance.map_error(head, &body).await {
        Ok(failure) => AttemptFailure { raw: raw(&body), ..AttemptFailure::from_status(status, failure) },
        Err(error) => AttemptFailure::from(error).with_status(status.as_u16()),
    }
}

/// The part of an error answer that is passed on to the client.
fn raw(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body.get(..RAW_BYTES_MAX).unwrap_or(body));
    (!text.trim().is_empty()).then(|| text.into_owned())
}

async fn beginning(mut reply: Reply) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = reply.body.chunk().await {
        let room = ERROR_BYTES_MAX - body.len();
        body.extend(chunk.iter().take(room));
        if body.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    body
}
