//! Refusals of the console and the admin API: status, type and message.

use std::borrow::Cow;

use http::header::{ALLOW, CACHE_CONTROL, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use serde_json::json;

use crate::command::{CommandError, FailureCause};
use crate::fault::Fault;
use crate::operators::Refused;
use crate::reply::answer::ResponseBody;
use crate::reply::json_response;

#[derive(Debug)]
pub(super) enum AdminFault {
    /// The client calls this host by a name that is not its own.
    OtherHost,
    /// The listener is reachable from other machines without encryption.
    NeedsTls,
    NoBearer,
    Refused(Refused),
    NotFound,
    /// The route has this method only.
    WrongMethod(&'static str),
    /// The request is malformed; the text says what is wrong and where.
    Malformed(Cow<'static, str>),
    /// The body could not be read.
    Body(Fault),
    Command(CommandError),
    /// The host stops, or too much of this is going on.
    Busy,
    /// An internal error; its cause is in the log.
    Internal,
}

impl AdminFault {
    pub(super) fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed(text.into())
    }

    fn line(&self) -> (u16, &'static str) {
        match self {
            Self::OtherHost => (421, "misdirected_request"),
            Self::NeedsTls => (403, "permission_denied"),
            Self::NoBearer | Self::Refused(Refused::Wrong) => (401, "authentication"),
            Self::Refused(Refused::TooMany { .. }) => (429, "rate_limit_exceeded"),
            Self::NotFound => (404, "not_found"),
            Self::WrongMethod(_) => (405, "invalid_request"),
            Self::Malformed(_) => (400, "invalid_request"),
            Self::Body(fault) => (fault.line().0, fault.line().1.as_str()),
            Self::Command(error) => match error.cause {
                FailureCause::Refused => (422, "refused"),
                FailureCause::NotFound => (404, "not_found"),
                FailureCause::Conflict => (409, "conflict"),
                FailureCause::Unavailable => (503, "unavailable"),
                FailureCause::OutcomeUnknown => (504, "outcome_unknown"),
                FailureCause::Broken => (500, "server"),
            },
            Self::Busy => (503, "unavailable"),
            Self::Internal => (500, "server"),
        }
    }

    pub(super) fn message(&self) -> Cow<'_, str> {
        match self {
            Self::OtherHost => {
                "this host does not know the name in `Host`: use its address, `localhost`, or add \
                                the name to `server.admin_hosts`"
                    .into()
            }
            Self::NeedsTls => {
                "the console and the admin API are off: `server.admin` is reachable from other \
                               machines; set `[server.tls]`, or a loopback address"
                    .into()
            }
            Self::NoBearer => {
                "send `Authorization: Bearer TOKEN` with the content of operator.token in the data \
                               directory"
                    .into()
            }
            Self::Refused(Refused::Wrong) => "the bearer is wrong or has expired".into(),
            Self::Refused(Refused::TooMany { .. }) => "too many wrong bearers; wait".into(),
            Self::NotFound => "no such path; /openapi.json lists them".into(),
            Self::WrongMethod(allowed) => format!("use {allowed} on this path").into(),
            Self::Malformed(text) => text.as_ref().into(),
            Self::Body(fault) => fault.message(),
            Self::Command(error) => error.message.as_str().into(),
            Self::Busy => "the host is busy or stopping".into(),
            Self::Internal => "internal error; the log has the reason".into(),
        }
    }

    pub(super) fn into_response(self) -> Response<ResponseBody> {
        let (status, kind) = self.line();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut error = json!({"code": status.as_u16(), "type": kind, "message": self.message()});
        if let (Self::Command(CommandError { details: Some(details), .. }), Some(members)) =
            (&self, error.as_object_mut())
        {
            members.insert("details".to_owned(), details.clone());
        }
        let mut response = json_response(status, json!({"error": error}).to_string().into());
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self {
            Self::NoBearer | Self::Refused(Refused::Wrong) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::Refused(Refused::TooMany { wait_s }) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(wait_s));
            }
            Self::WrongMethod(allowed) => {
                headers.insert(ALLOW, HeaderValue::from_static(allowed));
            }
            Self::Busy | Self::Command(CommandError { cause: FailureCause::Unavailable, .. }) => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
