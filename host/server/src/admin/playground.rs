//! `POST /admin/v1/playground`: a request that an operator sends from the console. It runs as one of
//! a client's, paid by the key `console` of a workspace, and the stream of its answer also has its
//! steps.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use cofferdam_engine::timeline::{StepReceiver, follow_steps};
use cofferdam_engine::{Answer, AnswerBody, Caller, EventStream, RespondOptions};
use cofferdam_store::{Actor, ApiKey, KeyOwner, Name, NewKey, SpendLimits, Workspace};
use http::Response;
use serde_json::{Map, Value};
use tokio::sync::mpsc::{Sender, channel};
use uuid::Uuid;

use super::events::event;
use super::fault::AdminFault;
use super::listener::Admin;
use crate::access::{CONSOLE_KEY, is_console_key};
use crate::command::CommandError;
use crate::fault::Fault;
use crate::limits::admission::Admitted;
use crate::metrics::Metrics;
use crate::reply::answer::ResponseBody;
use crate::reply::event_stream;
use crate::route::Label;
use crate::telemetry::within_polls;

/// Chunks that wait for a slow client; a full queue slows the provider down.
const WAITING_MAX: usize = 16;

/// Runs `{"as": WORKSPACE, "request": {...}}`. The answer is always a stream; a request that is
/// refused has the error document that a client would get.
pub(super) async fn run(
    admin: &Admin,
    members: &Map<String, Value>,
) -> Result<Response<ResponseBody>, AdminFault> {
    let (workspace, body) = read(members)?;
    let permit = Arc::clone(&admin.playgrounds).try_acquire_owned().map_err(|_| AdminFault::Busy)?;
    let app = &admin.app;
    let workspace = app.store.find_workspace(&workspace).await.map_err(failed)?;
    let key = console_key(admin, &workspace).await?;
    let now_ms = app.clock.now_ms();
    if key.disabled || key.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
        let message = format!(
            "the key `{CONSOLE_KEY}` of this workspace is disabled or expired: `key enable {}`",
            key.id
        );
        return Err(AdminFault::Command(CommandError::new(message)));
    }
    app.store.record_playground_use(key.id, workspace.id).map_err(|_| AdminFault::Busy)?;
    let mut counted = CountedRun { metrics: Arc::clone(&app.metrics), began: Instant::now(), status: LEFT };
    let permits = app.runtime.instance_permits(key.id.as_str());
    let rates = app.live().config.limits.rates;
    let admitted = app.rates.inference.admit(key.id, workspace.id, &rates, permits).await;
    let Admitted { allowance, .. } = match admitted {
        Ok(admitted) => admitted,
        Err(limited) => return Ok(counted.refused(Fault::Limited(limited))),
    };
    let caller = Caller { workspace, intern: None, key: key.id, allowance };
    let (sender, steps) = follow_steps();
    // The lines that are logged during the request carry this id.
    let id = Uuid::new_v4();
    let options = RespondOptions { follow: Some(sender), log_id: Some(id), ..RespondOptions::default() };
    let engine = Arc::clone(&app.live().engine);
    let answer = within_polls(id, Box::pin(engine.respond(caller, body, options))).await;
    let stream = match answer {
        Ok(Answer { body: AnswerBody::Stream(stream), .. }) => stream,
        Ok(Answer { body: AnswerBody::Whole(_), .. }) => {
            counted.status = 500;
            return Err(AdminFault::Internal);
        }
        Err(refusal) => {
            return Ok(counted.refused(Fault::Refused { refusal: Box::new(refusal), field: None }));
        }
    };
    counted.status = 200;
    let (chunks, answer) = channel(WAITING_MAX);
    tokio::spawn(async move {
        within_polls(id, pin!(forward(stream, steps, &chunks))).await;
        drop((permit, counted));
    });
    Ok(event_stream(ResponseBody::channel(answer)))
}

/// The status that is counted for a run whose operator has left before the answer began.
const LEFT: u16 = 499;

/// A run that counts in the metrics when it is over, like a request of a client.
struct CountedRun {
    metrics: Arc<Metrics>,
    began: Instant,
    status: u16,
}

impl CountedRun {
    fn refused(&mut self, fault: Fault) -> Response<ResponseBody> {
        let (status, kind, _) = fault.line();
        self.status = status;
        self.metrics.count_refusal(kind);
        fault.into_response(None)
    }
}

impl Drop for CountedRun {
    fn drop(&mut self) {
        self.metrics.count_request(Label::Playground, self.status, self.began.elapsed());
    }
}

/// The workspace, and the request as bytes, always streamed.
fn read(members: &Map<String, Value>) -> Result<(String, Bytes), AdminFault> {
    let (Some(Value::String(workspace)), Some(Value::Object(request)), 2) =
        (members.get("as"), members.get("request"), members.len())
    else {
        return Err(AdminFault::malformed("the body must be {\"as\": WORKSPACE, \"request\": OBJECT}"));
    };
    let mut request = request.clone();
    request.insert("stream".to_owned(), true.into());
    Ok((workspace.clone(), Value::Object(request).to_string().into()))
}

/// The key that pays for this workspace. It is made at the first use, and its token is shown
/// nowhere. The operator can limit or disable it like any other key.
async fn console_key(admin: &Admin, workspace: &Workspace) -> Result<ApiKey, AdminFault> {
    let is_console = |key: &cofferdam_store::OwnedKey| is_console_key(key.key());
    let store = &admin.app.store;
    let _turn = admin.console_keys.lock().await;
    let found = store.keys_of(workspace.id, is_console, 0, 1).await.map_err(failed)?;
    if let Some(key) = found.entries.first() {
        return Ok(key.key().clone());
    }
    let owner = KeyOwner::Member { workspace: workspace.id, member: None };
    let name: Name = CONSOLE_KEY.parse().map_err(|_| AdminFault::Internal)?;
    let new = NewKey { owner, name: Some(name), expires_at_ms: None, limits: SpendLimits::default() };
    let store = store.clone();
    let issued = tokio::task::spawn_blocking(move || store.issue_key(Actor::Operator, new)).await;
    let issued = issued.map_err(|_| AdminFault::Internal)?.map_err(failed)?;
    Ok(issued.key)
}

fn failed(error: cofferdam_store::Error) -> AdminFault {
    AdminFault::Command(error.into())
}

/// Sends the steps and the events of the answer in the order in which they come, until the answer
/// ends or the client leaves.
async fn forward(mut stream: EventStream, mut steps: StepReceiver, chunks: &Sender<Bytes>) {
    let mut stepping = true;
    loop {
        let chunk = tokio::select! {
            biased;
            () = chunks.closed() => return,
            step = steps.next(), if stepping => match step {
                Some(step) => event("cofferdam.step", &step),
                None => {
                    stepping = false;
                    continue;
                }
            },
            chunk = poll_fn(|context| stream.poll_next(context)) => match chunk {
                Some(chunk) => chunk,
                None => break,
            },
        };
        if chunks.send(chunk).await.is_err() {
            return;
        }
    }
    drop(stream);
    // The last steps are noted when the request is dropped.
    while let Some(step) = steps.next().await {
        if chunks.send(event("cofferdam.step", &step)).await.is_err() {
            return;
        }
    }
}
