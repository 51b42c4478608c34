//! One try of one endpoint, up to the first real content: until then nothing
//! has been promised to the client and the next endpoint may be tried.

mod failure;

pub(crate) use failure::{AttemptFailure, Cause, exceeded};

use crate::candidates::{Answered, Trial};
use crate::catalog::Endpoint;
use crate::credential::{Credentials, Used};
use crate::echo::Echo;
use crate::pace::{Pace, Timeouts};
use crate::reading::{ANSWER_BYTES_MAX, Reading, Verdict, verdict};
use crate::request::ProviderPreferences;
use cofferdam_egress::{Egress, Limits, Outgoing, Reply};
use cofferdam_runtime::manifest::Framing;
use cofferdam_runtime::wire::{ErrorKind, Event, Prepared, ResponseHead, UpstreamRequest};
use cofferdam_runtime::{CallContext, CallError, Manifest, ProviderInstance};
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use std::time::Duration;
use tokio::time::Instant;

/// How much of an error answer is read, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// How long an error answer may take, in its whole length.
const ERROR_TIME_MAX: Duration = Duration::from_secs(5);

/// An answer that has begun: its first events, and the rest if there is one.
pub(crate) struct Begun {
    pub(crate) events: Vec<Event>,
    pub(crate) reading: Option<Box<Reading>>,
    pub(crate) status: Option<u16>,
    pub(crate) used: Option<Used>,
}

/// What an attempt needs besides the endpoint.
pub(crate) struct Attempting<'a> {
    pub(crate) egress: &'a Egress,
    pub(crate) credentials: Credentials<'a>,
    pub(crate) timeouts: &'a Timeouts,
    pub(crate) context: &'a CallContext,
    /// The checked request for the guest.
    pub(crate) request: &'a [u8],
    /// Each endpoint's guest gets the options of its provider.
    pub(crate) preferences: &'a ProviderPreferences,
    /// Where the client wants to see what is sent.
    pub(crate) echo: Option<&'a Echo>,
}

impl Answered for Begun {
    fn status(&self) -> Option<u16> {
        self.status
    }

    fn used(&self) -> Option<&Used> {
        self.used.as_ref()
    }
}

impl Trial for Attempting<'_> {
    type Answer = Begun;

    /// Tries `endpoint` until its first content, or its whole answer if the
    /// request is not streamed.
    async fn run(&self, endpoint: &Endpoint, pace: &mut Pace) -> Result<Begun, AttemptFailure> {
        let provider = &endpoint.provider;
        let call = |error: CallError| AttemptFailure::call(&error);
        let mut instance = provider.adapter.open_provider(self.context).await.map_err(call)?;
        let mut target = endpoint.target.clone();
        self.preferences.options_for(&provider.name).clone_into(&mut target.options);
        let prepared = instance.prepare(self.request, &target).await;
        let prepared = prepared.map_err(|error| AttemptFailure::prepare(&error))?;
        let upstream = match prepared {
            Ok(Prepared::Answer(events)) => {
                let begun = local(events)?;
                instance.close().await;
                return Ok(begun);
            }
            Ok(Prepared::Upstream(upstream)) => upstream,
            Err(failure) => return Err(AttemptFailure::dialect(failure)),
        };
        let used = self.credentials.release(provider).await?;
        if let Some(echo) = self.echo {
            echo.note(&upstream.body, used.as_ref());
        }
        match self.exchange(instance, endpoint, upstream, used.as_ref(), pace).await {
            Ok(begun) => Ok(Begun { used, ..begun }),
            Err(failed) => Err(failed.after(used.as_ref())),
        }
    }
}

impl Attempting<'_> {
    async fn exchange(
        &self,
        mut instance: ProviderInstance,
        endpoint: &Endpoint,
        upstream: UpstreamRequest,
        used: Option<&Used>,
        pace: &mut Pace,
    ) -> Result<Begun, AttemptFailure> {
        let provider = &endpoint.provider;
        let begin_by = Instant::now() + self.timeouts.first_event;
        let asked_for_stream = upstream.streamed;
        instance.pause();
        let reply = send(self.egress, self.timeouts, endpoint, upstream, used, pace).await?;
        instance.resume(self.context).await.map_err(|error| AttemptFailure::call(&error))?;
        let status = reply.status;
        let manifest = provider.adapter.manifest();
        let streamed = asked_for_stream && is_event_stream(&reply.headers);
        let head = response_head(manifest, &reply, streamed);
        if !status.is_success() {
            return Err(map_error(&mut instance, &head, reply, used, pace).await);
        }
        let framing = streamed.then(|| framing_of(manifest));
        let reading = Reading::open(instance, head, reply.body, framing).await;
        let reading = reading.map_err(|error| AttemptFailure::call(&error))?;
        self.first_events(reading, status.as_u16(), begin_by, pace).await
    }

    async fn first_events(
        &self,
        mut reading: Box<Reading>,
        status: u16,
        begin_by: Instant,
        pace: &mut Pace,
    ) -> Result<Begun, AttemptFailure> {
        let mut events = Vec::new();
        // A stream has begun with its first content, and that ends this function.
        let begun = !pace.is_streamed();
        loop {
            let limit = if reading.awaits_first_event() {
                begin_by.saturating_duration_since(Instant::now())
            } else {
                self.timeouts.idle
            };
            let more = reading
                .next(pace, limit)
                .await
                .map_err(|error| AttemptFailure::read(error, status, begun))?;
            let seen = events.len();
            events.extend(more);
            // Without a stream nothing is promised before the end: a failure
            // after the first word still lets another endpoint answer.
            let new = if pace.is_streamed() { events.get(seen..).unwrap_or_default() } else { &events };
            let ended = events.iter().any(|event| matches!(event, Event::Finish(_)));
            match verdict_for(new, pace.is_streamed()) {
                Verdict::Failed(failure) => {
                    return Err(AttemptFailure::in_band(failure, Some(status)));
                }
                Verdict::Answered if pace.is_streamed() || ended => {
                    let (reading, status) = (Some(reading), Some(status));
                    return Ok(Begun { events, reading, status, used: None });
                }
                Verdict::Wait | Verdict::Answered if !reading.is_over() => {}
                Verdict::Empty => {
                    return Err(AttemptFailure { status: Some(status), ..AttemptFailure::empty() });
                }
                _ => return Err(AttemptFailure { status: Some(status), ..AttemptFailure::malformed() }),
            }
        }
    }
}

/// For a request that is not streamed an error anywhere decides.
fn verdict_for(events: &[Event], streamed: bool) -> Verdict {
    let error = events.iter().find_map(|event| match event {
        Event::Error(failure) => Some(failure.clone()),
        _ => None,
    });
    match error {
        Some(failure) if !streamed => Verdict::Failed(failure),
        _ => verdict(events),
    }
}

/// A guest that answers by itself has nobody to blame but its request.
fn local(events: Vec<Event>) -> Result<Begun, AttemptFailure> {
    match verdict(&events) {
        Verdict::Answered => Ok(Begun { events, reading: None, status: None, used: None }),
        Verdict::Failed(failure) => Err(AttemptFailure::in_band(failure, None)),
        Verdict::Wait | Verdict::Empty => Err(AttemptFailure::empty()),
    }
}

/// Sends a guest's request to its provider and waits for the head of the answer.
pub(crate) async fn send(
    egress: &Egress,
    timeouts: &Timeouts,
    endpoint: &Endpoint,
    upstream: UpstreamRequest,
    used: Option<&Used>,
    pace: &mut Pace,
) -> Result<Reply, AttemptFailure> {
    let provider = &endpoint.provider;
    let Some(origin) = &provider.origin else {
        tracing::warn!(provider = %provider.name, "the plugin wants to send a request, but its provider has no base_url");
        return Err(AttemptFailure::plain(
            Cause::Plugin,
            ErrorKind::ProviderUnavailable,
            "Provider returned error",
        ));
    };
    let outgoing = Outgoing {
        origin,
        path: &upstream.path,
        headers: headers_of(&upstream)?,
        body: upstream.body.into(),
        streamed: upstream.streamed,
        credential: used.map(|used| &used.credential),
        limits: Limits {
            head: timeouts.first_event,
            idle: timeouts.total,
            body_bytes_max: ANSWER_BYTES_MAX as u64,
        },
    };
    let sent = pace.during(egress.send(outgoing), timeouts.first_event).await;
    sent.map_err(|late| AttemptFailure::late(late, false))?.map_err(|error| AttemptFailure::egress(&error))
}

fn headers_of(upstream: &UpstreamRequest) -> Result<Vec<(HeaderName, HeaderValue)>, AttemptFailure> {
    let parse = |(name, value): &(String, String)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value).ok()?))
    };
    let headers: Option<Vec<_>> = upstream.headers.iter().map(parse).collect();
    headers.ok_or_else(|| {
        tracing::warn!("a provider plugin gave a header that is not one");
        AttemptFailure::plain(Cause::Plugin, ErrorKind::ProviderUnavailable, "Provider returned error")
    })
}

/// Whether the answer comes as a stream of events; a provider may also answer a
/// request for a stream with one body.
fn is_event_stream(headers: &HeaderMap) -> bool {
    // Who was asked for a stream and does not say what it sends is taken to have listened.
    let Some(kind) = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes) else { return true };
    let starts = |known: &&str| {
        kind.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes()))
    };
    ["text/event-stream", "application/x-ndjson", "application/jsonl"].iter().any(starts)
}

fn framing_of(manifest: &Manifest) -> Framing {
    manifest.provider.as_ref().map(|provider| provider.framing).unwrap_or_default()
}

/// The head as the guest may see it: only headers its manifest names.
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
    used: Option<&Used>,
    pace: &mut Pace,
) -> AttemptFailure {
    let status = reply.status;
    if status.as_u16() < 400 {
        // A redirect or another status without an answer; redirects are never followed.
        return AttemptFailure { status: Some(status.as_u16()), ..AttemptFailure::malformed() };
    }
    // An error whose body does not come is still the error its status says.
    let mut body = pace.during(beginning(reply), ERROR_TIME_MAX).await.unwrap_or_default();
    if let Some(used) = used {
        used.credential.cover(&mut body);
    }
    match instance.map_error(head, &body).await {
        Ok(failure) => AttemptFailure::from_status(status, failure),
        Err(error) => AttemptFailure { status: Some(status.as_u16()), ..AttemptFailure::call(&error) },
    }
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
