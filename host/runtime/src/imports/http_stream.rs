//! `http-stream`: answers of a guest's own requests, read in chunks. The limits are those of
//! `http`.

use wasmtime::component::{Resource, ResourceType};

use crate::bindings::cofferdam::plugin::http::Response;
use crate::bindings::cofferdam::plugin::http_stream::{Host, HostExchange, HttpError, Request};
use crate::guest::GuestState;
use crate::imports::Interface;
use crate::services::HttpExchange;

/// Status and headers of an answer.
type ExchangeHead = (u16, Vec<(String, String)>);

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    let exchange = ResourceType::host::<HttpExchange>();
    interface.resource("exchange", exchange, |mut guest, number| {
        HostExchange::drop(guest.data_mut(), Resource::new_own(number))
    })?;
    interface.func_wrap("[method]exchange.status", |mut guest, (exchange,)| {
        Ok((guest.data_mut().status(exchange)?,))
    })?;
    interface.func_wrap("[method]exchange.headers", |mut guest, (exchange,)| {
        Ok((guest.data_mut().headers(exchange)?,))
    })?;
    interface.func_wrap_async("[method]exchange.read", |mut guest, (exchange,)| {
        Box::new(async move { Ok((guest.data_mut().read(exchange).await?,)) })
    })?;
    interface.func_wrap_async("open", |mut guest, (request,)| {
        Box::new(async move { Ok((guest.data_mut().open(request).await?,)) })
    })
}

impl Host for GuestState {
    async fn open(
        &mut self,
        request: Request,
    ) -> wasmtime::Result<Result<Resource<HttpExchange>, HttpError>> {
        let asked = self.enter_taped("http-stream.open", &request)?;
        let opened = match asked.recorded::<Result<ExchangeHead, HttpError>>()? {
            Some(head) => head.map(recorded),
            None => {
                let opened = self.open_exchange(request).await;
                self.plugin.counters.requested(&opened);
                asked.note(&opened.as_ref().map(|exchange| (exchange.status, &exchange.headers)));
                opened
            }
        };
        match opened {
            Ok(exchange) => Ok(Ok(self.table().push(exchange)?)),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl GuestState {
    async fn open_exchange(&mut self, request: Request) -> Result<HttpExchange, HttpError> {
        let http = self.http_access(&request)?;
        let opening = http.open(self.plugin.name(), &self.plugin.grant, request);
        self.account.beside(opening).await
    }
}

/// An answer of a recording. Its body is on the tape.
fn recorded((status, headers): ExchangeHead) -> HttpExchange {
    Response { status, url: String::new(), headers, body: Vec::new() }.into()
}

impl HostExchange for GuestState {
    fn status(&mut self, exchange: Resource<HttpExchange>) -> wasmtime::Result<u16> {
        self.enter_host()?;
        Ok(self.table().get(&exchange)?.status)
    }

    fn headers(&mut self, exchange: Resource<HttpExchange>) -> wasmtime::Result<Vec<(String, String)>> {
        self.enter_host()?;
        Ok(self.table().get(&exchange)?.headers.clone())
    }

    async fn read(
        &mut self,
        exchange: Resource<HttpExchange>,
    ) -> wasmtime::Result<Result<Vec<u8>, HttpError>> {
        let asked = self.enter_taped("http-stream.read", &exchange.rep())?;
        if let Some(piece) = asked.recorded()? {
            return Ok(piece);
        }
        let account = std::sync::Arc::clone(&self.account);
        let body = &mut self.table().get_mut(&exchange)?.body;
        let piece = account.beside(body.read()).await;
        asked.note(&piece);
        Ok(piece)
    }

    fn drop(&mut self, exchange: Resource<HttpExchange>) -> wasmtime::Result<()> {
        self.table().delete(exchange)?;
        Ok(())
    }
}
