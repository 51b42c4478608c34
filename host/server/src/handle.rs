//! The path of one request: head, route, key, access, method, then the endpoint. Each step passes
//! the request on or ends it with a fault. The body is not read before the caller is authorized to
//! send it.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_engine::boxed;
use cofferdam_store::{AuthenticationError, MemberId, Principal, RequestPurpose};
use futures_util::FutureExt;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;

use crate::api;
use crate::app::App;
use crate::call::Call;
use crate::fault::{Fault, FieldError};
use crate::forwarded;
use crate::limits::rate::{ClientNetwork, failures_quota};
use crate::peer::Peer;
use crate::refused::RefusedRequest;
use crate::reply::answer::ResponseBody;
use crate::reply::record::RequestRecord;
use crate::route::{Label, Route};
use crate::telemetry::within_polls;
use crate::{access, auth, body};

/// The maximum length of path and query, in bytes.
const URI_BYTES_MAX: usize = 8 * 1024;
/// The maximum length of all headers together, in bytes. Up to twice this length the refusal is a
/// JSON error document; beyond that, hyper refuses the head itself.
pub(crate) const HEADERS_BYTES_MAX: usize = 32 * 1024;
/// The maximum number of header lines of one request. Hyper itself refuses an HTTP/1 request with more than 100, without an error
/// document; it reads up to 100 without an allocation.
const HEADERS_MAX: usize = 96;

/// The host's id of the request, sent with every response.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How long a refused client may pause while the rest of its body is discarded.
const REST_IDLE: Duration = Duration::from_secs(1);

/// Answers one request. Always returns a response: faults and panics become error documents.
pub(crate) async fn handle(app: Arc<App>, peer: Peer, request: Request<Incoming>) -> Response<ResponseBody> {
    let client =
        forwarded::client(peer.address, request.headers(), &app.live().config.server.trusted_proxies);
    let mut record = RequestRecord::begin(&request, Arc::clone(&app.metrics), &peer, client);
    let id = record.id();
    let is_head = request.method() == Method::HEAD;
    // A panic ends only this request; the connection and all other requests go on.
    let answer = AssertUnwindSafe(answer(&app, client.into(), &mut record, request)).catch_unwind();
    let answer = within_polls(id, pin!(answer)).await;
    let mut response = match answer {
        Ok(Ok(response)) => response,
        Ok(Err(RefusedCall { fault, user, closing })) => {
            app.metrics.count_refusal(fault.line().1);
            note_refusal(&app, &record, client.into(), &fault);
            let mut response = fault.into_response(user.map(|member| member.to_string()));
            if closing {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
        Err(_) => {
            app.metrics.count_refusal(Fault::Internal.line().1);
            Fault::Internal.into_response(None)
        }
    };
    if is_head {
        empty(&mut response);
    }
    if let Ok(id) = HeaderValue::try_from(id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    if let Some(limit) = record.limit {
        limit.write(response.headers_mut());
    }
    record.status = response.status().as_u16();
    if response.body().is_stream() {
        record.note_stream();
    }
    response.body_mut().attach(record);
    response
}

/// Notes a request that was refused before it reached the engine, which records the others itself.
fn note_refusal(app: &App, record: &RequestRecord, source: ClientNetwork, fault: &Fault) {
    if app.recorder.keeps() == 0 || matches!(fault, Fault::Refused { .. }) {
        return;
    }
    let (status, kind, text) = fault.line();
    // The message of a limit names the limit. Others may name what a client sent.
    let message = match fault {
        Fault::Limited(limited) => limited.message(),
        _ => text.to_owned(),
    };
    app.refused.note(RefusedRequest {
        request_id: record.id(),
        route: record.route.as_str(),
        status,
        error_type: kind.as_str(),
        message,
        key_id: record.key.map(|key| key.to_string()),
        address: source.address(),
        count: 1,
        first_ms: app.clock.now_ms(),
        last_ms: app.clock.now_ms(),
    });
}

/// A fault, and the member whose request it ended.
pub(crate) struct RefusedCall {
    fault: Fault,
    user: Option<MemberId>,
    /// The connection must close: part of the request body may still arrive.
    closing: bool,
}

impl From<Fault> for RefusedCall {
    fn from(fault: Fault) -> Self {
        Self { fault, user: None, closing: false }
    }
}

async fn answer(
    app: &Arc<App>,
    source: ClientNetwork,
    record: &mut RequestRecord,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, RefusedCall> {
    let (head, mut body) = request.into_parts();
    let refused = match find_and_answer(app, source, record, &head, &mut body).await {
        Ok(response) => return Ok(response),
        Err(refused) => refused,
    };
    let has_stopped = matches!(refused.fault, Fault::BodyTimedOut);
    let goes_on = !matches!(refused.fault, Fault::BodyTooLarge);
    let timeouts = app.live().config.timeouts;
    let limits = body::BodyLimits {
        bytes_max: 2 * body::BODY_BYTES_MAX,
        idle: REST_IDLE.min(timeouts.body_idle),
        total: timeouts.body_total,
    };
    let read = !has_stopped && body::discard_refused(&head, &mut body, limits).await;
    // A connection of HTTP/2 goes on with its other streams.
    let closing = head.version < Version::HTTP_2 && (!read || !goes_on);
    Err(RefusedCall { closing, ..refused })
}

async fn find_and_answer(
    app: &Arc<App>,
    source: ClientNetwork,
    record: &mut RequestRecord,
    head: &Parts,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, RefusedCall> {
    check_head(head).map_err(|fault| match fault {
        Fault::Malformed(reason) if head.uri.path().starts_with("/v1/vault/") => {
            Fault::InvalidVaultRequest(FieldError::at("request", reason))
        }
        fault => fault,
    })?;
    let route = Route::find(head.uri.path())?;
    record.route = route.label();
    if route == Route::Description {
        let is_served = route.methods().contains(&head.method);
        return if is_served {
            Ok(api::openapi::read())
        } else {
            Err(Fault::WrongMethod(route.methods()).into())
        };
    }
    let principal = authenticate(app, source, head, record.route).await?;
    record.key = Some(principal.key().id);
    let user = principal.key().member;
    let mut call = Call { app, principal, head, record };
    dispatch(&mut call, route, body).await.map_err(|fault| {
        if let Fault::Limited(limited) = &fault {
            call.record.limit = Some(limited.shown);
        }
        // The error for a hidden resource must be equal to the error for one that does not exist.
        let user = if matches!(fault, Fault::NotFound) { None } else { user };
        RefusedCall { fault, user, closing: false }
    })
}

async fn dispatch(
    call: &mut Call<'_>,
    route: Route,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    // The vault checks access and method among its own gates.
    if route.label() != Label::Vault {
        check_call(call, &route)?;
    }
    // The futures of these endpoints are large. They are boxed, so that the futures above, which
    // are moved when they are passed on, stay small.
    match route {
        Route::Responses => boxed(|| api::inference::respond(call, body)).await,
        Route::Embeddings => boxed(|| api::inference::embed(call, body)).await,
        Route::Models => api::models::list(call),
        Route::Model(id) => api::models::read(call, &id),
        Route::Key => Box::pin(api::key::read(call)).await,
        Route::Keys => Box::pin(api::keys::all(call, body)).await,
        Route::OneKey(id) => Box::pin(api::keys::one(call, &id, body)).await,
        Route::Credits => Box::pin(api::credits::read(call)).await,
        Route::Vault(route) => Box::pin(api::vault::answer(call, &route, body)).await,
        Route::Description => Ok(api::openapi::read()),
    }
}

/// Checks the kind of key, the protocol and the method.
fn check_call(call: &Call<'_>, route: &Route) -> Result<(), Fault> {
    access::check(route.label(), call.principal.key().kind)?;
    if *route == Route::Responses && asks_for_websocket(call.head) {
        return Err(Fault::NoUpgrade);
    }
    if !route.methods().contains(&call.head.method) {
        return Err(Fault::WrongMethod(route.methods()));
    }
    Ok(())
}

/// Whether the request asks for an upgrade to WebSocket.
fn asks_for_websocket(head: &Parts) -> bool {
    let asked = head.headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    asked.flat_map(|value| value.split(',')).any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

fn check_head(head: &Parts) -> Result<(), Fault> {
    if head.method == Method::CONNECT {
        return Err(Fault::Malformed("This is no proxy"));
    }
    let path_and_query = head.uri.path_and_query().map_or(0, |text| text.as_str().len());
    if path_and_query > URI_BYTES_MAX {
        return Err(Fault::UriTooLong);
    }
    let headers = head.headers.iter();
    let bytes: usize = headers.map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if bytes > HEADERS_BYTES_MAX || head.headers.len() > HEADERS_MAX {
        return Err(Fault::HeadersTooLarge);
    }
    let hosts = head.headers.get_all(HOST).iter().count();
    let is_clear = if head.version == Version::HTTP_11 { hosts == 1 } else { hosts <= 1 };
    if !is_clear {
        return Err(Fault::Malformed("The request must name exactly one Host"));
    }
    // What reads the name of the host must not take a user's name for a part of it.
    if head.headers.get(HOST).is_some_and(|host| host.as_bytes().contains(&b'@')) {
        return Err(Fault::Malformed("The Host must not name a user"));
    }
    Ok(())
}

/// Authenticates the request. Refused tokens are counted by address. An address over the limit gets
/// 429 instead of 401 for its next refused token, on the vault's routes only; a valid token is
/// always accepted.
async fn authenticate(
    app: &App,
    source: ClientNetwork,
    head: &Parts,
    route: Label,
) -> Result<Principal, Fault> {
    let in_vault = route == Label::Vault;
    let shown = auth::token(&head.headers);
    let authenticated = match shown {
        Ok(token) => app.store.authenticate_for(token, purpose(route)).await,
        // A request without a token guesses nothing and is not counted.
        Err(auth::NoToken::Missing) => {
            return Err(if in_vault { Fault::InvalidKey } else { Fault::MissingKey });
        }
        Err(auth::NoToken::Malformed) => Err(AuthenticationError::Malformed),
    };
    authenticated.map_err(|error| {
        let is_tokens_fault =
            !matches!(error, AuthenticationError::Incomplete(_) | AuthenticationError::NoContact);
        if is_tokens_fault {
            tracing::debug!(%error, "a token was refused");
            app.refusals.count(source, &error);
        }
        // A refused token of an address over the limit does not extend its wait.
        let counted =
            failures_quota().filter(|_| is_tokens_fault).map(|quota| app.rates.failures.take(source, quota));
        match counted {
            Some(Err(error)) if in_vault => Fault::TooManyVaultRequests { wait_s: error.wait_s },
            _ => refusal(error),
        }
    })
}

/// What a request of these routes may go by on a host without contact to the database of the store.
fn purpose(route: Label) -> RequestPurpose {
    match route {
        Label::Responses | Label::Embeddings | Label::Models => RequestPurpose::Model,
        _ => RequestPurpose::Other,
    }
}

/// The fault for a refused token. All refusals look the same to the client, except those that are
/// the host's own fault.
fn refusal(error: AuthenticationError) -> Fault {
    match error {
        AuthenticationError::Incomplete(key) => {
            tracing::error!(%key, "the owner of a good key is missing");
            Fault::Internal
        }
        // Another host, or this one later, may know the key.
        AuthenticationError::NoContact => Fault::Busy,
        _ => Fault::InvalidKey,
    }
}

/// Removes the body of the response to a `HEAD` request and keeps the length that `GET` would have.
fn empty(response: &mut Response<ResponseBody>) {
    let length = response.body().bytes().map_or(0, bytes::Bytes::len);
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    *response.body_mut() = ResponseBody::default();
}

#[cfg(test)]
mod tests {
    use cofferdam_store::AuthenticationError as Error;

    use super::refusal;

    #[test]
    fn refused_tokens_look_alike_except_for_internal_errors() {
        let key = "abcdefghijkl".parse().unwrap();
        for (error, status) in [
            (Error::Malformed, 401),
            (Error::Unknown, 401),
            (Error::Revoked(key), 401),
            (Error::Disabled(key), 401),
            (Error::Expired(key), 401),
            // The workspace, member or intern of the key does not exist.
            (Error::Incomplete(key), 500),
            // The key may be as good as any.
            (Error::NoContact, 503),
        ] {
            assert_eq!(refusal(error).line().0, status, "{error:?}");
            assert_eq!(refusal(error).retry_after_s().is_some(), status == 503, "{error:?}");
        }
    }
}
