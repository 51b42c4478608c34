//! The admin API, `/admin/v1/*`: the remote commands of the command line, each at its words as a
//! path, and signing in.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::access::check_bearer;
use super::arguments;
use super::dispatch::dispatch;
use super::fault::AdminFault;
use super::listener::Admin;
use super::{events, playground, requests, views};
use crate::api::media::{self, ContentType};
use crate::body::{self, BodyLimits};
use crate::command::remote::{self, Remote, RemoteCommand};
use crate::command::{Command, CommandError, CommandOutcome};
use crate::doctor;
use crate::operators::ExchangeError;
use crate::reply::answer::ResponseBody;
use crate::reply::json_response;

const PREFIX: &str = "/admin/v1/";
/// The maximum length of the body of a command, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The longest body of a request to sign in, in bytes. It is read before anything is known of its sender.
const SIGN_IN_BYTES_MAX: usize = 2 * 1024;
/// The maximum length of a body with a request for a model, in bytes.
const PLAYGROUND_BYTES_MAX: usize = 1024 * 1024;
/// How long a command waits for others to end.
const COMMAND_WAIT: Duration = Duration::from_secs(10);
/// How long a refused client may pause while the rest of its body is discarded.
const REST_IDLE: Duration = Duration::from_secs(1);
/// The time in which a body must arrive, and the longest pause in it.
const BODY_TIME: Duration = Duration::from_secs(10);

static COMMANDS: LazyLock<Vec<RemoteCommand>> = LazyLock::new(remote::all);

/// Answers a request to `/admin/`.
pub(super) async fn answer(admin: &Admin, request: Request<Incoming>) -> Response<ResponseBody> {
    let (head, mut body) = request.into_parts();
    let fault = match find_and_answer(admin, &head, &mut body).await {
        Ok(response) => return response,
        Err(fault) => fault,
    };
    let mut response = fault.into_response();
    let rest = BodyLimits { bytes_max: 2 * PLAYGROUND_BYTES_MAX, idle: REST_IDLE, total: BODY_TIME };
    let read = body::discard_refused(&head, &mut body, rest).await;
    // A connection of HTTP/2 goes on with its other streams.
    if !read && head.version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn find_and_answer(
    admin: &Admin,
    head: &Parts,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, AdminFault> {
    let path = head.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    if path == "session" && head.method == Method::POST {
        return sign_in(admin, head, body).await;
    }
    let bearer = check_bearer(&admin.app, &head.headers)?;
    if path == "session" {
        return match head.method {
            Method::DELETE => {
                admin.app.operators.end(bearer);
                Ok(document(&json!({"ended": true})))
            }
            _ => Err(AdminFault::WrongMethod("POST, DELETE")),
        };
    }
    match (path, &head.method) {
        ("events", &Method::GET) => return events::open(admin, bearer),
        ("playground", &Method::POST) => {
            let members = read_members(admin, head, body, PLAYGROUND_BYTES_MAX).await?;
            return playground::run(admin, &members).await;
        }
        ("events", _) => return Err(AdminFault::WrongMethod("GET")),
        ("playground", _) => return Err(AdminFault::WrongMethod("POST")),
        _ => {}
    }
    if let Some(view) = View::find(path) {
        if head.method != Method::GET {
            return Err(AdminFault::WrongMethod("GET"));
        }
        let query = arguments::of_query(head.uri.query().unwrap_or_default())?;
        return Ok(document(&view.document(admin, &query).await?));
    }
    let found = COMMANDS.iter().find(|command| path.split('/').eq(command.words.iter()));
    let command = found.ok_or(AdminFault::NotFound)?;
    let members = match (command.remote, &head.method) {
        (Remote::Reads, &Method::GET) => arguments::of_query(head.uri.query().unwrap_or_default())?,
        (Remote::Reads, _) => return Err(AdminFault::WrongMethod("GET")),
        (Remote::Changes, &Method::POST) => read_members(admin, head, body, BODY_BYTES_MAX).await?,
        (Remote::Changes, _) => return Err(AdminFault::WrongMethod("POST")),
    };
    let outcome = carry_out(admin, arguments::command(command, &members)?, command.remote).await?;
    Ok(document(&outcome.document))
}

/// What there is no remote command for.
enum View<'p> {
    Attention,
    Endpoints,
    Traffic,
    Requests,
    /// By its id.
    Request(&'p str),
}

impl<'p> View<'p> {
    fn find(path: &'p str) -> Option<Self> {
        match path {
            "attention" => Some(Self::Attention),
            "endpoints" => Some(Self::Endpoints),
            "traffic" => Some(Self::Traffic),
            "requests" => Some(Self::Requests),
            _ => path.strip_prefix("requests/").map(Self::Request),
        }
    }

    async fn document(self, admin: &Admin, query: &Map<String, Value>) -> Result<Value, AdminFault> {
        if !query.is_empty() && !matches!(self, Self::Requests) {
            return Err(AdminFault::malformed("this path has no query"));
        }
        let recorder = &admin.app.recorder;
        match self {
            Self::Requests => requests::list(recorder, &admin.app.refused, query),
            Self::Request(id) => requests::one(recorder, id),
            Self::Endpoints => Ok(views::endpoints(&admin.app)),
            Self::Traffic => Ok(views::traffic(&admin.app)),
            // The findings of `doctor`; nothing is sent to providers.
            Self::Attention => {
                let command = Command::Doctor(doctor::of_console(&admin.app));
                let outcome = carry_out(admin, command, Remote::Reads).await?;
                Ok(outcome.document.clone())
            }
        }
    }
}

/// `POST /admin/v1/session`: exchanges the operator token or a login code for a bearer.
async fn sign_in(
    admin: &Admin,
    head: &Parts,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, AdminFault> {
    let members = read_members(admin, head, body, SIGN_IN_BYTES_MAX).await?;
    let credential = match (members.len(), members.get("code").or_else(|| members.get("token"))) {
        (1, Some(Value::String(credential))) => Zeroizing::new(credential.clone()),
        _ => return Err(AdminFault::malformed("the body must be {\"code\": TEXT} or {\"token\": TEXT}")),
    };
    let bearer = admin.app.operators.exchange(&credential).map_err(|error| match error {
        ExchangeError::Refused(refused) => AdminFault::Refused(refused),
        ExchangeError::Random(error) => {
            tracing::error!(%error, "no bearer was made for an operator");
            AdminFault::Internal
        }
    })?;
    let expires_in_s = bearer.expires_in_s;
    Ok(document(&json!({"bearer": *bearer.text, "expires_in_s": expires_in_s, "idle_s": bearer.idle_s})))
}

/// Reads a body of JSON. A content type must be given: pages of other sites can send a body without
/// asking the browser only with the types of forms.
async fn read_members(
    admin: &Admin,
    head: &Parts,
    body: &mut Incoming,
    bytes_max: usize,
) -> Result<Map<String, Value>, AdminFault> {
    if media::content_type(&head.headers) != ContentType::Json {
        return Err(AdminFault::malformed("content-type must be application/json"));
    }
    if head.headers.contains_key(CONTENT_ENCODING) {
        return Err(AdminFault::malformed("the body must not be compressed"));
    }
    let limits = BodyLimits { bytes_max, idle: BODY_TIME, total: BODY_TIME };
    let mut share = admin.app.bodies.operators_share();
    let body = body::read_secret(body, limits, &mut share).await.map_err(AdminFault::Body)?;
    arguments::of_body(&body)
}

/// Carries out a command on a blocking thread. A command that changes something is finished even if
/// the client leaves; one that only reads stops then.
async fn carry_out(admin: &Admin, command: Command, remote: Remote) -> Result<CommandOutcome, AdminFault> {
    let waiting = timeout(COMMAND_WAIT, Arc::clone(&admin.commands).acquire_owned());
    let permit = waiting.await.map_err(|_| AdminFault::Busy)?.map_err(|_| AdminFault::Busy)?;
    let (app, stop) = (Arc::clone(&admin.app), admin.stop.clone());
    let left = CancellationToken::new();
    let _leaving = (remote == Remote::Reads).then(|| left.clone().drop_guard());
    let run = move || {
        let _permit = permit;
        let mut progress = |_: &str, _, _| match stop.is_cancelled() || left.is_cancelled() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        dispatch(&command, &app, &mut progress)
    };
    let done = tokio::task::spawn_blocking(run).await;
    let done = done.unwrap_or_else(|_| Err(CommandError::new("the command failed inside the host")));
    done.map_err(AdminFault::Command)
}

/// A 200 response with a JSON document. It may hold a new key, so it is not stored anywhere.
fn document(document: &Value) -> Response<ResponseBody> {
    let mut response = json_response(StatusCode::OK, document.to_string().into());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
