//! `http`: a guest's own requests, through the [`HttpAccess`] of the request that it serves. The
//! implementation decides which hosts and secrets are allowed, and logs the line that would allow a
//! refused one. This file counts requests.

use std::fmt;
use std::sync::Arc;

use crate::bindings::cofferdam::plugin::http::{Host, HttpError, Request, Response};
use crate::guest::GuestState;
use crate::imports::Interface;
use crate::services::HttpAccess;

/// Requests within one instance's life, which is one call: only hooks and tools import this.
const REQUESTS_MAX: u32 = 32;
/// Number of redirects that a guest may request to be followed.
const REDIRECTS_MAX: u8 = 5;

impl GuestState {
    /// Counts a request and returns the capability to send it.
    pub(super) fn http_access(&mut self, request: &Request) -> Result<Arc<dyn HttpAccess>, HttpError> {
        if self.requests >= REQUESTS_MAX {
            self.warn_of_limit(format_args!("a plugin may send at most {REQUESTS_MAX} requests in one call"));
            return Err(HttpError::Exhausted);
        }
        self.requests += 1;
        if request.redirects > REDIRECTS_MAX {
            self.warn_of_limit(format_args!(
                "a plugin may have at most {REDIRECTS_MAX} redirects followed for one request"
            ));
            return Err(HttpError::Invalid);
        }
        self.services.http.clone().ok_or(HttpError::Denied)
    }

    /// Logs the first limit of `http` that a call exceeds: a guest may go on to exceed it thousands of times.
    fn warn_of_limit(&mut self, limit: fmt::Arguments<'_>) {
        if !std::mem::replace(&mut self.is_http_limit_logged, true) {
            tracing::warn!(plugin = self.plugin.name(), "request refused: {limit}");
        }
    }
}

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap_async("send", |mut guest, (request,)| {
        Box::new(async move { Ok((guest.data_mut().send(request).await?,)) })
    })
}

impl Host for GuestState {
    async fn send(&mut self, request: Request) -> wasmtime::Result<Result<Response, HttpError>> {
        let asked = self.enter_taped("http.send", &request)?;
        if let Some(answer) = asked.recorded()? {
            return Ok(answer);
        }
        let answer = match self.http_access(&request) {
            Ok(http) => {
                let sending = http.send(self.plugin.name(), &self.plugin.grant, request);
                self.account.beside(sending).await
            }
            Err(error) => Err(error),
        };
        self.plugin.counters.requested(&answer);
        asked.note(&answer);
        Ok(answer)
    }
}
