//! `http`: a guest's own requests, through the door of the request it serves.
//! Which hosts and secrets are allowed is decided behind the door, and the line
//! that would allow a refused one told to the operator there; here stands the
//! count of requests per call.

use std::sync::Arc;

use crate::bindings::cofferdam::plugin::http::{Host, HttpError, Request, Response};
use crate::instance::GuestState;
use crate::services::HttpDoor;

/// Requests within one instance's life.
const REQUESTS_MAX: u32 = 32;
/// Redirects a guest may ask for.
const REDIRECTS_MAX: u8 = 5;

impl GuestState {
    /// The door for this request, which counts as one of the call's.
    pub(super) fn http_door(
        &mut self,
        request: &Request,
    ) -> wasmtime::Result<Result<Arc<dyn HttpDoor>, HttpError>> {
        self.enter_host()?;
        if self.requests >= REQUESTS_MAX {
            return Ok(Err(HttpError::Exhausted));
        }
        self.requests += 1;
        if request.redirects > REDIRECTS_MAX {
            return Ok(Err(HttpError::Invalid));
        }
        Ok(self.services.http.clone().ok_or(HttpError::Denied))
    }
}

impl Host for GuestState {
    async fn send(&mut self, request: Request) -> wasmtime::Result<Result<Response, HttpError>> {
        let door = match self.http_door(&request)? {
            Ok(door) => door,
            Err(error) => return Ok(Err(error)),
        };
        let sending = door.send(self.plugin.name(), &self.plugin.grant, request);
        Ok(self.account.beside(sending).await)
    }
}
