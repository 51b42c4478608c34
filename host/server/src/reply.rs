//! The one table that maps faults to status, error type and message, and the JSON error document
//! around them. Messages are fixed texts; internal causes go only to the log, with the request id.

pub(crate) mod answer;
pub(crate) mod record;
mod vault;

use std::borrow::Cow;

use bytes::Bytes;
use cofferdam_engine::Refusal;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, UPGRADE};
use http::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::limits::admission::Limited;

use answer::ResponseBody;
pub(crate) use vault::{FieldError, VaultFault, too_often};

/// `Retry-After` when no better estimate exists.
const RETRY_AFTER_S: u64 = 1;

/// Every refusal of the server, and refusals of the engine.
#[derive(Debug)]
pub(crate) enum Fault {
    MissingKey,
    /// The token is malformed, unknown, revoked, disabled or expired.
    InvalidKey,
    /// [`Self::InvalidKey`] on a route of the vault.
    InvalidVaultKey,
    /// This kind of key cannot be used for inference.
    NoInference,
    /// The route is for provisioning keys only.
    ManagementOnly,
    /// The resource does not exist, or is hidden from this key.
    NotFound,
    /// A route of another API. The text says what this host serves instead.
    NotServed(&'static str),
    NoUpgrade,
    /// The method is not allowed; the route has these.
    WrongMethod(&'static [Method]),
    /// The path, a header or the body is malformed. The text says which.
    Malformed(&'static str),
    /// A parameter is invalid.
    Flawed(FieldError),
    /// The workspace has the maximum number of keys.
    TooManyKeys,
    /// The key changes other keys too often.
    TooManyChanges {
        /// How long to wait, in seconds.
        wait_s: u64,
    },
    /// The store accepted a change but did not report its outcome in time.
    OutcomeUnknown,
    UriTooLong,
    HeadersTooLarge,
    BodyTooLarge,
    BodyTimedOut,
    /// Too many request bodies are in memory, or the store takes no further changes.
    Busy,
    /// A limit of the key or its workspace is exceeded.
    Limited(Box<Limited>),
    /// The vault refuses.
    Vault(VaultFault),
    /// An internal error; its cause is in the log.
    Internal,
    /// A refusal of the engine, which brings its own status, type and message.
    Refused {
        refusal: Box<Refusal>,
        /// The top-level field for the routing metadata, if the client asked for it.
        field: Option<&'static str>,
    },
}

/// Status, error type and message of a fault.
struct FaultLine(StatusCode, &'static str, &'static str);

impl Fault {
    #[must_use]
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Refused { refusal, .. } => {
                StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            fault => fault.line().0,
        }
    }

    /// The table. Refusals of the engine bring their own status and message.
    fn line(&self) -> FaultLine {
        use StatusCode as S;
        match self {
            Self::MissingKey => FaultLine(S::UNAUTHORIZED, "authentication", "Missing Authentication header"),
            Self::InvalidKey | Self::InvalidVaultKey => {
                FaultLine(S::UNAUTHORIZED, "authentication", "Invalid or missing API key")
            }
            Self::NoInference => {
                FaultLine(S::FORBIDDEN, "permission_denied", "This kind of key cannot be used for inference")
            }
            Self::ManagementOnly => FaultLine(
                S::FORBIDDEN,
                "permission_denied",
                "Only management keys can perform this operation",
            ),
            Self::NotFound => FaultLine(S::NOT_FOUND, "not_found", "Not found"),
            Self::NotServed(what) => FaultLine(S::NOT_FOUND, "not_found", what),
            Self::NoUpgrade => FaultLine(
                S::UPGRADE_REQUIRED,
                "invalid_request",
                "This route is served over HTTP only: send a POST request, with stream set to true for events",
            ),
            Self::WrongMethod(_) => FaultLine(S::METHOD_NOT_ALLOWED, "invalid_request", "Method not allowed"),
            Self::Malformed(what) => FaultLine(S::BAD_REQUEST, "invalid_request", what),
            Self::Flawed(_) => FaultLine(S::BAD_REQUEST, "invalid_request", "Invalid request parameters"),
            Self::TooManyKeys => FaultLine(
                S::CONFLICT,
                "precondition_failed",
                "The workspace has too many keys; delete some first",
            ),
            Self::TooManyChanges { .. } => FaultLine(
                S::TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                "Rate limit exceeded: this host allows this API key 60 changes of keys per minute",
            ),
            Self::OutcomeUnknown => FaultLine(
                S::GATEWAY_TIMEOUT,
                "timeout",
                "It is not known whether the change was made; look before you repeat it",
            ),
            Self::UriTooLong => {
                FaultLine(S::URI_TOO_LONG, "invalid_request", "Request path and query too long")
            }
            Self::HeadersTooLarge => {
                FaultLine(S::REQUEST_HEADER_FIELDS_TOO_LARGE, "invalid_request", "Request headers too large")
            }
            Self::BodyTooLarge => {
                FaultLine(S::PAYLOAD_TOO_LARGE, "payload_too_large", "Request payload too large")
            }
            Self::BodyTimedOut => FaultLine(S::REQUEST_TIMEOUT, "timeout", "Request body timed out"),
            Self::Busy => {
                FaultLine(S::SERVICE_UNAVAILABLE, "provider_overloaded", "Service temporarily unavailable")
            }
            Self::Limited(_) => FaultLine(S::TOO_MANY_REQUESTS, "rate_limit_exceeded", "Rate limit exceeded"),
            Self::Internal | Self::Refused { .. } => {
                FaultLine(S::INTERNAL_SERVER_ERROR, "server", "Internal Server Error")
            }
            Self::Vault(fault) => fault.line(),
        }
    }

    /// The error document. `user` is the member id of the key, if it has one.
    #[must_use]
    pub(crate) fn into_response(self, user: Option<String>) -> Response<ResponseBody> {
        let status = self.status();
        let no_upgrade = matches!(self, Self::NoUpgrade);
        let FaultParts { message, metadata, routing, retry_after_s, allow } = self.into_parts();
        let mut envelope = Map::new();
        let error = json!({"code": status.as_u16(), "message": message, "metadata": metadata});
        envelope.insert("error".to_owned(), error);
        if let Some((field, routing)) = routing {
            envelope.insert(field.to_owned(), routing);
        }
        envelope.insert("user_id".to_owned(), user.into());
        let mut response = json_response(status, Value::Object(envelope).to_string().into());
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if no_upgrade {
            // RFC 9110, section 15.5.22: a 426 response must name the protocols to upgrade to.
            headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
        }
        if let Some(seconds) = retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = allow.and_then(|methods| HeaderValue::try_from(methods).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }

    fn into_parts(self) -> FaultParts {
        match self {
            Self::Refused { refusal, field } => FaultParts {
                metadata: metadata(refusal.kind.as_str(), *refusal.metadata),
                message: Cow::Owned(refusal.message),
                routing: field.zip(refusal.service_metadata.map(|metadata| *metadata)),
                retry_after_s: refusal
                    .retry_after_s
                    .or_else(|| matches!(refusal.status, 429 | 503).then_some(RETRY_AFTER_S)),
                allow: None,
            },
            fault => {
                let FaultLine(_, kind, message) = fault.line();
                let more = match &fault {
                    Self::Vault(fault) => fault.details(),
                    Self::Flawed(flaw) => flaw.details(),
                    Self::Limited(limited) => limited.details(),
                    _ => Value::Null,
                };
                FaultParts {
                    message: match &fault {
                        Self::Limited(limited) => Cow::Owned(limited.message()),
                        Self::Flawed(FieldError { path, reason }) => Cow::Owned(format!("{path} {reason}")),
                        Self::Vault(fault) => fault.message().map_or(Cow::Borrowed(message), Cow::Owned),
                        _ => Cow::Borrowed(message),
                    },
                    metadata: metadata(kind, more),
                    routing: None,
                    retry_after_s: match &fault {
                        Self::Busy => Some(RETRY_AFTER_S),
                        Self::TooManyChanges { wait_s } => Some(*wait_s),
                        Self::Limited(limited) => Some(limited.wait_s),
                        Self::Vault(VaultFault::TooManyRequests { wait_s }) => Some(*wait_s),
                        _ => None,
                    },
                    allow: match fault {
                        Self::WrongMethod(methods) => {
                            Some(methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", "))
                        }
                        _ => None,
                    },
                }
            }
        }
    }
}

/// The parts of an error document.
struct FaultParts {
    message: Cow<'static, str>,
    metadata: Value,
    routing: Option<(&'static str, Value)>,
    retry_after_s: Option<u64>,
    allow: Option<String>,
}

/// `error.metadata`: the error type, `refused_by`, then further details. Details of a refusal by a
/// provider overwrite `refused_by`; all other refusals come from the host.
fn metadata(kind: &str, more: Value) -> Value {
    let mut metadata = Map::new();
    metadata.insert("error_type".to_owned(), kind.into());
    metadata.insert("refused_by".to_owned(), "host".into());
    if let Value::Object(more) = more {
        metadata.extend(more);
    }
    Value::Object(metadata)
}

#[must_use]
pub(crate) fn json_response(status: StatusCode, body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A 200 response with a JSON document and `Cache-Control: no-store`.
pub(crate) fn document<T: Serialize>(document: &T) -> Response<ResponseBody> {
    match serde_json::to_vec(document) {
        Ok(bytes) => {
            let mut response = json_response(StatusCode::OK, bytes.into());
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        // Cannot happen for the documents of this crate: they hold only texts, numbers and lists.
        Err(_) => Fault::Internal.into_response(None),
    }
}

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;
