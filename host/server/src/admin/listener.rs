//! The admin listener: `/healthz`, `/readyz` and `/metrics` are open; the console and the admin API
//! have checks of their own.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use super::fault::AdminFault;
use super::{access, api, console, http as open, openapi};
use crate::app::App;
use crate::peer::Peer;
use crate::reply::answer::ResponseBody;
use crate::reply::json_response;

/// The description of the admin API. It tells nothing about this host, so it needs no bearer.
const OPENAPI: &str = "/openapi.json";
/// Commands of the admin API that run at the same time; others wait for a while.
const COMMANDS_MAX: usize = 8;

/// Live streams of events that are open at the same time; further ones are refused.
const STREAMS_MAX: usize = 16;
/// Requests of the playground that run at the same time; further ones are refused.
const PLAYGROUNDS_MAX: usize = 8;

/// What all requests to the admin listener share.
pub(crate) struct Admin {
    pub(super) app: Arc<App>,
    pub(super) commands: Arc<Semaphore>,
    /// Live streams of events.
    pub(super) streams: Arc<Semaphore>,
    pub(super) playgrounds: Arc<Semaphore>,
    /// Held while the key of the playground is found or made.
    pub(super) console_keys: Mutex<()>,
    /// Cancelled when the host stops.
    pub(super) stop: CancellationToken,
}

/// The commands that run for the admin API. A command that changes something is finished even if its
/// client has left.
pub(crate) struct RunningCommands(Arc<Semaphore>);

impl RunningCommands {
    /// Waits until no command runs.
    pub(crate) async fn ended(&self) {
        // The semaphore is never closed.
        drop(self.0.acquire_many(COMMANDS_MAX as u32).await);
    }
}

impl Admin {
    pub(crate) fn new(app: Arc<App>, stop: CancellationToken) -> Self {
        let permits = |most| Arc::new(Semaphore::new(most));
        let (commands, streams, playgrounds) =
            (permits(COMMANDS_MAX), permits(STREAMS_MAX), permits(PLAYGROUNDS_MAX));
        Self { app, commands, streams, playgrounds, console_keys: Mutex::default(), stop }
    }

    /// The commands that run, to wait for them.
    pub(crate) fn running_commands(&self) -> RunningCommands {
        RunningCommands(Arc::clone(&self.commands))
    }

    pub(crate) async fn handle(&self, peer: Peer, request: Request<Incoming>) -> Response<ResponseBody> {
        let running = peer.begin_request();
        let mut response = self.answer(request).await;
        // A stream runs until its body is dropped.
        response.body_mut().keep_running(running);
        response
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let path = request.uri().path();
        let in_api = path.starts_with("/admin/");
        if !in_api && !console::has(path) && path != OPENAPI {
            return open::answer(&self.app, request.method(), path);
        }
        if let Err(fault) = access::check_host(&self.app, request.headers(), request.uri()) {
            return fault.into_response();
        }
        if path == OPENAPI {
            return match *request.method() {
                Method::GET => json_response(StatusCode::OK, openapi::document()),
                _ => AdminFault::WrongMethod("GET").into_response(),
            };
        }
        if !in_api {
            return console::answer(request.method(), path);
        }
        Box::pin(api::answer(self, request)).await
    }
}
