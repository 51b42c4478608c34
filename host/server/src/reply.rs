//! What clients get to read: the one table from faults to status, type and
//! message, and the envelope around them. Messages here are fixed texts; causes
//! inside the host go to the log with the request id and nowhere else.

mod vault;

use std::borrow::Cow;

use bytes::Bytes;
use cofferdam_engine::Refusal;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, UPGRADE};
use http::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::admission::Limited;
use crate::answer::Body;

pub(crate) use vault::{Flaw, VaultFault};

/// What clients are told to wait when nobody knows better.
const RETRY_AFTER_S: u64 = 1;

/// Everything the server itself refuses, and what the engine refuses.
#[derive(Debug)]
pub(crate) enum Fault {
    /// No `Authorization` header.
    MissingKey,
    /// A token that is no working key.
    InvalidKey,
    /// The same on a route of the vault.
    InvalidVaultKey,
    /// The key is not for inference.
    NoInference,
    /// The route is for provisioning keys.
    ManagementOnly,
    /// Nothing is there, for this key at least.
    NotFound,
    /// It is a route of another interface; the text says what there is instead.
    NotServed(&'static str),
    /// The route is not served over a WebSocket.
    NoUpgrade,
    /// The route has other methods.
    WrongMethod(&'static [Method]),
    /// The path, a header or the body is malformed; the text says which.
    Malformed(&'static str),
    /// A part of the request is wrong.
    Flawed(Flaw),
    /// The workspace has as many keys as it may have.
    TooManyKeys,
    /// The key changes others too often.
    TooManyChanges {
        /// How long to wait, in seconds.
        wait_s: u64,
    },
    /// The store took a change and has not told what became of it.
    OutcomeUnknown,
    /// The request line is too long.
    UriTooLong,
    /// The headers are too many or too long.
    HeadersTooLarge,
    /// The body is too long.
    BodyTooLarge,
    /// The body stopped arriving.
    BodyTimedOut,
    /// Too many bodies are being read at once.
    Busy,
    /// The key or its workspace has used up what it may use.
    Limited(Box<Limited>),
    /// The vault refuses, in its own words.
    Vault(VaultFault),
    /// The host failed; the log knows why.
    Internal,
    /// What the engine refuses: it knows status, type and message.
    Refused {
        /// The refusal.
        refusal: Box<Refusal>,
        /// The member that routing metadata stands under, when the client asked for it.
        field: Option<&'static str>,
    },
}

/// Status, canonical type and message of one fault.
struct Line(StatusCode, &'static str, &'static str);

impl Fault {
    /// The status that the client gets.
    #[must_use]
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Refused { refusal, .. } => {
                StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            fault => fault.line().0,
        }
    }

    /// The table. A refusal of the engine brings its own line.
    fn line(&self) -> Line {
        use StatusCode as S;
        match self {
            Self::MissingKey => Line(S::UNAUTHORIZED, "authentication", "Missing Authentication header"),
            Self::InvalidKey | Self::InvalidVaultKey => {
                Line(S::UNAUTHORIZED, "authentication", "Invalid or missing API key")
            }
            Self::NoInference => {
                Line(S::FORBIDDEN, "permission_denied", "This kind of key cannot be used for inference")
            }
            Self::ManagementOnly => {
                Line(S::FORBIDDEN, "permission_denied", "Only management keys can perform this operation")
            }
            Self::NotFound => Line(S::NOT_FOUND, "not_found", "Not found"),
            Self::NotServed(what) => Line(S::NOT_FOUND, "not_found", what),
            Self::NoUpgrade => Line(
                S::UPGRADE_REQUIRED,
                "invalid_request",
                "This route is served over HTTP only: send a POST request, with stream set to true for events",
            ),
            Self::WrongMethod(_) => Line(S::METHOD_NOT_ALLOWED, "invalid_request", "Method not allowed"),
            Self::Malformed(what) => Line(S::BAD_REQUEST, "invalid_request", what),
            Self::Flawed(_) => Line(S::BAD_REQUEST, "invalid_request", "Invalid request parameters"),
            Self::TooManyKeys => {
                Line(S::CONFLICT, "precondition_failed", "The workspace has too many keys; delete some first")
            }
            Self::TooManyChanges { .. } => Line(
                S::TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                "Rate limit exceeded: this host allows this API key 60 changes of keys per minute",
            ),
            Self::OutcomeUnknown => Line(
                S::GATEWAY_TIMEOUT,
                "timeout",
                "It is not known whether the change was made; look before you repeat it",
            ),
            Self::UriTooLong => Line(S::URI_TOO_LONG, "invalid_request", "Request path and query too long"),
            Self::HeadersTooLarge => {
                Line(S::REQUEST_HEADER_FIELDS_TOO_LARGE, "invalid_request", "Request headers too large")
            }
            Self::BodyTooLarge => {
                Line(S::PAYLOAD_TOO_LARGE, "payload_too_large", "Request payload too large")
            }
            Self::BodyTimedOut => Line(S::REQUEST_TIMEOUT, "timeout", "Request body timed out"),
            Self::Busy => {
                Line(S::SERVICE_UNAVAILABLE, "provider_overloaded", "Service temporarily unavailable")
            }
            Self::Limited(_) => Line(S::TOO_MANY_REQUESTS, "rate_limit_exceeded", "Rate limit exceeded"),
            Self::Internal | Self::Refused { .. } => {
                Line(S::INTERNAL_SERVER_ERROR, "server", "Internal Server Error")
            }
            Self::Vault(fault) => fault.line(),
        }
    }

    /// The answer in its envelope. `user` is the member id of the key, if it has one.
    #[must_use]
    pub(crate) fn into_response(self, user: Option<String>) -> Response<Body> {
        let status = self.status();
        let no_upgrade = matches!(self, Self::NoUpgrade);
        let Parts { message, metadata, routing, retry_after_s, allow } = self.into_parts();
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
            // The status wants to be told what to speak instead.
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

    fn into_parts(self) -> Parts {
        match self {
            Self::Refused { refusal, field } => Parts {
                metadata: metadata(refusal.kind.as_str(), *refusal.metadata),
                message: Cow::Owned(refusal.message),
                routing: field.zip(refusal.service_metadata.map(|metadata| *metadata)),
                retry_after_s: refusal
                    .retry_after_s
                    .or_else(|| matches!(refusal.status, 429 | 503).then_some(RETRY_AFTER_S)),
                allow: None,
            },
            fault => {
                let Line(_, kind, message) = fault.line();
                let more = match &fault {
                    Self::Vault(fault) => fault.details(),
                    Self::Flawed(flaw) => flaw.details(),
                    Self::Limited(limited) => limited.details(),
                    _ => Value::Null,
                };
                Parts {
                    message: match &fault {
                        Self::Limited(limited) => Cow::Owned(limited.message()),
                        Self::Flawed(Flaw { path, reason }) => Cow::Owned(format!("{path} {reason}")),
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

/// What an error answer is made of.
struct Parts {
    message: Cow<'static, str>,
    metadata: Value,
    routing: Option<(&'static str, Value)>,
    retry_after_s: Option<u64>,
    allow: Option<String>,
}

/// `error.metadata`: the canonical type first, then who refused, then what else is
/// known. Whoever knows of a provider that refused says so; all else is ours.
fn metadata(kind: &str, more: Value) -> Value {
    let mut metadata = Map::new();
    metadata.insert("error_type".to_owned(), kind.into());
    metadata.insert("refused_by".to_owned(), "host".into());
    if let Value::Object(more) = more {
        metadata.extend(more);
    }
    Value::Object(metadata)
}

/// An answer with a JSON body.
#[must_use]
pub(crate) fn json_response(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// 200 with a document that nobody keeps.
pub(crate) fn document<T: Serialize>(document: &T) -> Response<Body> {
    match serde_json::to_vec(document) {
        Ok(bytes) => {
            let mut response = json_response(StatusCode::OK, bytes.into());
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        // Texts, numbers and lists of them always are JSON.
        Err(_) => Fault::Internal.into_response(None),
    }
}

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;
