//! `http`: a guest's own requests, through the door of the request it serves.
//! Which hosts and secrets are allowed is checked behind the door; here stand
//! the count of requests per call and the line that tells the operator what
//! would have allowed a refused one.

use std::collections::BTreeSet;

use crate::bindings::cofferdam::plugin::http::{Host, HttpError, Request, Response};
use crate::grant::operator_line;
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
        let host = host_of(&request.url).map(str::to_owned);
        let sending = door.send(self.plugin.name(), &self.plugin.grant, request);
        let answer = self.account.beside(sending).await;
        if let (Err(HttpError::Denied), Some(host)) = (&answer, host) {
            self.report_denied(&host);
        }
        Ok(answer)
    }
}

impl GuestState {
    fn report_denied(&self, host: &str) {
        let plugin = self.plugin.name();
        if self.plugin.grant.hosts.contains(host) {
            tracing::warn!(plugin, host, "request denied: the port, method or a header is not granted");
            return;
        }
        let mut asked: BTreeSet<_> = self.plugin.manifest.hosts.clone();
        if asked.contains(host) {
            let line = operator_line(plugin, "hosts", &self.plugin.grant.hosts, [&host.to_owned()]);
            tracing::warn!(plugin, host, "request denied; to allow it: {line}");
        } else {
            asked.insert(host.to_owned());
            tracing::warn!(plugin, host, "request denied; to allow it: {plugin}.toml: hosts = {asked:?}");
        }
    }
}

/// The host of a URL, for a message only: nothing is decided by it. Anything
/// that does not look like a plain name is not repeated.
fn host_of(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let host = rest.split(['/', '?', '#', ':']).next()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    ((1..=253).contains(&host.len()) && host.bytes().all(plain)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn only_plain_hosts_are_repeated() {
        assert_eq!(host_of("https://api.test/x?y"), Some("api.test"));
        assert_eq!(host_of("https://api.test:444/"), Some("api.test"));
        for url in ["https://a@b/", "api.test", "https:///x", "https://a\\b/", "https://a\nb/", "https://é/"]
        {
            assert_eq!(host_of(url), None, "{url:?}");
        }
    }
}
