//! `http`: a guest's own requests, through the door of the request it serves.
//! Which hosts and secrets are allowed is decided behind the door, and the line
//! that would allow a refused one told to the operator there; here stands the
//! count of requests per call.

use crate::bindings::cofferdam::plugin::http::{Host, HttpError, Request, Response};
use crate::instance::GuestState;

/// Requests within one instance's life.
const REQUESTS_MAX: u32 = 32;
/// Redirects a guest may ask for.
const REDIRECTS_MAX: u8 = 5;

impl Host for GuestState {
    async fn send(&mut self, request: Request) -> wasmtime::Result<Result<Response, HttpError>> {
        self.enter_host()?;
        if self.requests >= REQUESTS_MAX {
            return Ok(Err(HttpError::Exhausted));
        }
        self.requests += 1;
        if request.redirects > REDIRECTS_MAX {
            return Ok(Err(HttpError::Invalid));
        }
        let Some(door) = self.services.http.clone() else { return Ok(Err(HttpError::Denied)) };
        let sending = door.send(self.plugin.name(), &self.plugin.grant, request);
        Ok(self.account.beside(sending).await)
    }
}
