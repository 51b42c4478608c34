//! One exchange with a provider: from the guest's request to the head of the answer, or to the error
//! that the guest makes of it.

use crate::authentication::UsedCredential;
use crate::catalog::{Endpoint, Provider};
use crate::engine::EngineParts;
use crate::failure::{AttemptFailure, Cause};
use crate::lifecycle::deadline::Deadline;
use crate::plugins::http_capability::CredentialSearch;
use crate::request::ProviderPreferences;
use crate::scope::RequestScope;
use crate::timeline::{FactName, StepMark, StepType};
use crate::upstream::reading::ANSWER_BYTES_MAX;
use cofferdam_egress::{Error as EgressError, ExchangeLimits, Origin, Outgoing, Reply, ReplyBody};
use cofferdam_runtime::manifest::Framing;
use cofferdam_runtime::services::SentSearch as _;
use cofferdam_runtime::wire::{ResponseHead, Target, UpstreamRequest};
use cofferdam_runtime::{Manifest, ProviderInstance};
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How much of an error answer is read, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// How much of an error answer the client gets, in bytes.
const RAW_BYTES_MAX: usize = 4 << 10;
/// Egress gets this much more time than the request itself, so that the request's own deadline ends
/// the wait and the error names the right limit.
const SLACK: Duration = Duration::from_secs(10);
/// How long reading a whole error answer may take.
const ERROR_TIME_MAX: Duration = Duration::from_secs(5);

/// Opens the guest of `endpoint`, and the target as that guest gets it: with the options that the
/// client set for the provider.
pub(crate) async fn open(
    scope: &RequestScope,
    endpoint: &Endpoint,
    preferences: &ProviderPreferences,
) -> Result<(ProviderInstance, Target), AttemptFailure> {
    let provider = &endpoint.provider;
    let instance = provider.adapter.open_provider(&scope.context).await?;
    let mut target = endpoint.target.clone();
    if let Some(given) = preferences.options_for(&provider.name) {
        target.options = provider.options.sift(given).json;
    }
    Ok((instance, target))
}

/// Begins the step of a call into a provider's guest.
pub(crate) fn begin_call(scope: &RequestScope, instance: &ProviderInstance, function: &str) -> StepMark {
    let plugin = instance.plugin().name();
    scope.timeline.begin(StepType::GuestCall, &[plugin, function], &[FactName::Plugin.name(plugin)])
}

/// Sends the guest's request and waits for the head of a successful answer.
pub(crate) async fn exchange(
    scope: &RequestScope,
    instance: &mut ProviderInstance,
    endpoint: &Endpoint,
    upstream: UpstreamRequest,
    used: Option<&UsedCredential>,
    deadline: &mut Deadline,
) -> Result<(ResponseHead, ReplyBody), AttemptFailure> {
    let asked_for_stream = upstream.streamed;
    // While the provider is waited for, the instance of a stateless guest may serve another call of
    // the same owner.
    if let Some(used) = used {
        instance.search_with(|| Box::new(CredentialSearch(used.credential.clone())));
    }
    instance.pause();
    let host = endpoint.provider.origin.as_ref().map_or("", Origin::host);
    let facts = [FactName::Host.name(host), FactName::Bytes.number(upstream.body.len() as u64)];
    let step = scope.timeline.begin(StepType::Exchange, &["POST", host], &facts);
    let sent = send(scope, endpoint, upstream, used, deadline).await;
    let status = sent.as_ref().ok().map(|reply| u64::from(reply.status.as_u16()));
    let outcome = sent.as_ref().map_or_else(|failed| failed.failure.kind.as_str(), |_| "ok");
    let connecting = sent.as_ref().ok().and_then(|reply| reply.connecting);
    let facts = [FactName::Status.number(status), FactName::ConnectUs.micros(connecting)];
    scope.timeline.end(step, outcome, &facts);
    let reply = sent?;
    let resumed = instance.resume(&scope.context).await;
    resumed.map_err(|error| AttemptFailure::from(error).with_status(reply.status.as_u16()))?;
    let streamed = asked_for_stream && is_stream(&reply.headers);
    let head = response_head(endpoint.provider.adapter.manifest(), &reply, streamed);
    if !reply.status.is_success() {
        return Err(map_error(instance, &head, reply, used, deadline).await);
    }
    Ok((head, reply.body))
}

/// Sends a guest's request to its provider and waits for the head of the answer.
async fn send(
    scope: &RequestScope,
    endpoint: &Endpoint,
    upstream: UpstreamRequest,
    used: Option<&UsedCredential>,
    deadline: &mut Deadline,
) -> Result<Reply, AttemptFailure> {
    let EngineParts { egress, timeouts, .. } = scope.parts();
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
    let presence = Arc::clone(deadline.presence());
    let sent = deadline.during(pin!(egress.send_marked(outgoing, presence.sent())), head).await;
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
    if provider.meter.unreached.is_due(&provider.name, std::time::Instant::now()) {
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

/// The content types of streams.
const STREAM_TYPES: [&str; 5] = [
    "text/event-stream",
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/stream+json",
];

/// Whether the answer is a stream, of events or of lines. A provider may answer with one body although a stream was asked
/// for.
fn is_stream(headers: &HeaderMap) -> bool {
    // Without a content type the answer is taken for the stream that was asked for.
    let Some(kind) = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes) else { return true };
    let starts = |known: &&str| {
        kind.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes()))
    };
    STREAM_TYPES.iter().any(starts)
}

pub(crate) fn framing_of(manifest: &Manifest) -> Framing {
    manifest.provider.as_ref().map(|provider| provider.framing).unwrap_or_default()
}

/// The head as the guest may see it: only the headers that its manifest names.
fn response_head(manifest: &Manifest, reply: &Reply, streamed: bool) -> ResponseHead {
    let wanted = manifest.provider.as_ref().map_or(&[][..], |provider| &provider.response_headers);
    let headers = wanted.iter().filter_map(|name| {
        let value = reply.headers.get(name.as_str())?.to_str().ok()?;
        Some((name.clone(), value.to_owned()))
    });
    ResponseHead { status: reply.status.as_u16(), headers: headers.collect(), streamed }
}

/// Reads an error answer and has the guest translate it.
async fn map_error(
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
    let mut body = deadline.during(pin!(beginning(reply)), ERROR_TIME_MAX).await.unwrap_or_default();
    if let Some(used) = used {
        used.credential.cover(&mut body);
    }
    match instance.map_error(head, &body).await {
        Ok(failure) => {
            AttemptFailure { raw: raw(&body, used), ..AttemptFailure::from_status(status, failure) }
        }
        Err(error) => AttemptFailure::from(error).with_status(status.as_u16()),
    }
}

/// The part of an error answer that is passed on to the client. `None` for one that has the credential in a
/// spelling that could not be covered, such as with some of its letters escaped in JSON.
fn raw(body: &[u8], used: Option<&UsedCredential>) -> Option<String> {
    let search = used.map(|used| CredentialSearch(used.credential.clone()));
    if search.is_some_and(|search| search.finds(&String::from_utf8_lossy(body))) {
        return None;
    }
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
