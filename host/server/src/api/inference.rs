//! The endpoints that ask a model, `POST /v1/responses` and `POST /v1/embeddings`: admission, reading
//! the body, request headers with options, and the head of the response.

use std::sync::Arc;

use bytes::Bytes;
use cofferdam_engine::export::TraceParent;
use cofferdam_engine::{Answer, AnswerBody, Caller, Engine, Refusal, RespondOptions};
use cofferdam_runtime::memory;
use http::header::{CONTENT_ENCODING, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;

use super::media::{self, ContentType};
use crate::body::{self, BODY_BYTES_MAX, Share};
use crate::call::Call;
use crate::fault::Fault;
use crate::limits::admission::Admitted;
use crate::reply::answer::ResponseBody;
use crate::reply::{event_stream, json_response};

/// The headers that ask for routing metadata, each with the response field that will hold it. The
/// service's own names come first, because they win when both are given.
static METADATA_HEADERS: [(HeaderName, &str); 4] = [
    (HeaderName::from_static("x-service-metadata"), SERVICE_FIELD),
    (HeaderName::from_static("x-service-experimental-metadata"), SERVICE_FIELD),
    (HeaderName::from_static("x-openrouter-metadata"), ALIAS_FIELD),
    (HeaderName::from_static("x-openrouter-experimental-metadata"), ALIAS_FIELD),
];
static SESSION_HEADER: HeaderName = HeaderName::from_static("x-session-id");
static TRACE_PARENT_HEADER: HeaderName = HeaderName::from_static("traceparent");
const SERVICE_FIELD: &str = "service_metadata";
const ALIAS_FIELD: &str = "openrouter_metadata";

/// `POST /v1/responses`.
pub(crate) async fn respond(
    call: &mut Call<'_>,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    answer(call, body, async |engine, caller, body, options| engine.respond(caller, body, options).await)
        .await
}

/// `POST /v1/embeddings`.
pub(crate) async fn embed(call: &mut Call<'_>, body: &mut Incoming) -> Result<Response<ResponseBody>, Fault> {
    answer(call, body, async |engine, caller, body, options| engine.embed(caller, body, options).await).await
}

async fn answer(
    call: &mut Call<'_>,
    body: &mut Incoming,
    ask: impl AsyncFnOnce(Arc<Engine>, Caller, Bytes, RespondOptions) -> Result<Answer, Refusal>,
) -> Result<Response<ResponseBody>, Fault> {
    let app = Arc::clone(call.app);
    let caller = admit(call).await?;
    let mut share = app.bodies.share(call.principal.key().id);
    // A missing content type means JSON.
    if media::content_type(&call.head.headers) == ContentType::Other {
        return Err(Fault::Malformed("content-type must be application/json"));
    }
    let body = plain_body(call, body, BODY_BYTES_MAX, &mut share).await?;
    let options = RespondOptions {
        log_id: Some(call.record.id()),
        body_share: Some(Box::new(share)),
        ..options(&call.head.headers)
    };
    let field = options.metadata_field;
    let engine = Arc::clone(&app.live().engine);
    let answer = ask(engine, caller, body, options).await;
    let answer = answer.map_err(|refusal| Fault::Refused { refusal: Box::new(refusal), field })?;
    Ok(response(call, answer))
}

/// Reads a body of at most `bytes_max` bytes, whatever its content type.
pub(crate) async fn plain_body(
    call: &Call<'_>,
    body: &mut Incoming,
    bytes_max: usize,
    share: &mut Share,
) -> Result<Bytes, Fault> {
    let encoding = call.head.headers.get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Fault::Malformed("The request body must not be compressed"));
    }
    // The key may have been revoked while the body arrived, so it is checked again.
    let bytes = body::read(body, call.body_limits(bytes_max), share).await?;
    call.renewed().await?;
    Ok(bytes)
}

/// Admits a request: applies the rate limits and returns the caller, with what it may use.
async fn admit(call: &mut Call<'_>) -> Result<Caller, Fault> {
    // Keys without a workspace were already refused by the access check.
    let workspace = call.principal.workspace.clone().ok_or(Fault::InvalidKey)?;
    let key = call.principal.key().id;
    let permits = call.app.runtime.instance_permits(key.as_str());
    if memory::is_short() {
        return Err(Fault::Busy);
    }
    let rates = call.app.live().config.limits.rates;
    let admitted = call.app.rates.inference.admit(key, workspace.id, &rates, permits).await;
    let Admitted { allowance, shown } = admitted.map_err(Fault::Limited)?;
    call.record.limit = shown;
    call.record.allowance = allowance.clone();
    Ok(Caller { workspace, intern: call.principal.key().intern, key, allowance })
}

fn options(headers: &HeaderMap) -> RespondOptions {
    let trace_parent = headers.get(&TRACE_PARENT_HEADER).and_then(|value| value.to_str().ok());
    RespondOptions {
        metadata_field: metadata_field(headers),
        session_header: session(headers),
        trace_parent: trace_parent.and_then(TraceParent::parse),
        ..RespondOptions::default()
    }
}

/// Builds the response from the engine's answer and records its id.
fn response(call: &mut Call<'_>, answer: Answer) -> Response<ResponseBody> {
    let mut response = match answer.body {
        AnswerBody::Whole(bytes) => json_response(StatusCode::OK, bytes),
        AnswerBody::Stream(stream) => event_stream(ResponseBody::stream(stream)),
    };
    if let Ok(id) = HeaderValue::try_from(&answer.id) {
        response.headers_mut().insert(HeaderName::from_static("x-generation-id"), id);
    }
    call.record.generation = Some(answer.id);
    response
}

fn metadata_field(headers: &HeaderMap) -> Option<&'static str> {
    let asks = |name: &HeaderName| {
        headers
            .get_all(name)
            .iter()
            .any(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"enabled"))
    };
    METADATA_HEADERS.iter().find(|(name, _)| asks(name)).map(|(_, field)| *field)
}

fn session(headers: &HeaderMap) -> Option<String> {
    let value = std::str::from_utf8(headers.get(&SESSION_HEADER)?.as_bytes()).ok()?;
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{ALIAS_FIELD, SERVICE_FIELD, SESSION_HEADER, options};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn any_of_the_metadata_headers_is_accepted() {
        let cases: [(&'static str, &'static str, Option<&str>); 8] = [
            ("x-service-metadata", "enabled", Some(SERVICE_FIELD)),
            ("x-service-metadata", "ENABLED", Some(SERVICE_FIELD)),
            ("x-service-experimental-metadata", "Enabled", Some(SERVICE_FIELD)),
            ("x-openrouter-metadata", "enabled", Some(ALIAS_FIELD)),
            ("x-service-metadata", "disabled", None),
            ("x-service-metadata", "", None),
            ("x-service-metadata", "true", None),
            ("x-other-metadata", "enabled", None),
        ];
        for (name, value, field) in cases {
            assert_eq!(options(&headers(&[(name, value)])).metadata_field, field, "{name}: {value}");
        }
    }

    #[test]
    fn own_header_wins_over_the_alias() {
        let both = headers(&[("x-openrouter-metadata", "enabled"), ("x-service-metadata", "enabled")]);
        assert_eq!(options(&both).metadata_field, Some(SERVICE_FIELD));
        let alias = headers(&[("x-openrouter-metadata", "enabled"), ("x-service-metadata", "disabled")]);
        assert_eq!(options(&alias).metadata_field, Some(ALIAS_FIELD));
    }

    #[test]
    fn empty_session_header_is_no_session() {
        assert_eq!(options(&headers(&[("x-session-id", "")])).session_header, None);
        assert_eq!(options(&headers(&[("x-session-id", "s")])).session_header, Some("s".to_owned()));
    }

    #[test]
    fn session_header_is_read_as_utf_8() {
        let session = |bytes: &[u8]| {
            let value = HeaderValue::from_bytes(bytes).unwrap();
            options(&HeaderMap::from_iter([(SESSION_HEADER.clone(), value)])).session_header
        };
        assert_eq!(session("größe".as_bytes()), Some("größe".to_owned()));
        assert_eq!(session(b"gr\xf6\xdfe"), None);
    }
}
