//! `health`: asks the running host whether it is ready, as a load balancer does. It needs no store, no lock and no key,
//! so supervisors and health checks of containers can run it often. The address is the one that the running host has
//! written into its data directory, because a mistake in a configuration that is not used yet must not look as if the host
//! were ill; else that of the configuration.

mod trust;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{PathAndQuery, Scheme};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use trust::Trust;

use crate::admin::admin_url;
use crate::app::Addresses;
use crate::command::CommandError;
use crate::config::Config;
use crate::failure::Failure;
use crate::options::Options;
use crate::start::{block_on, write_out};

/// For how long the host may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// What is asked where `--url` names no path.
const READY_PATH: &str = "/readyz";

/// The parts of the answer that say why a host is not ready.
const REASONS: [(&str, bool, &str); 3] = [
    ("draining", true, "it is stopping"),
    ("plugins_compiled", false, "its plugins are not compiled yet"),
    ("store_writable", false, "its store takes no changes"),
];

/// The status and the document of an answer, null where it is not JSON; else why there is none.
type HostAnswer = Result<(StatusCode, Value), String>;

/// Prints whether the host is ready.
///
/// # Errors
///
/// It is not, does not answer, or its address is not known.
pub(super) fn health(options: &Options, url: Option<&Uri>) -> Result<(), Failure> {
    let running = Target::of_running(options).filter(|_| url.is_none());
    let told = match running {
        Some(target) => Some((target.url.clone(), target.ask_in_time()?)),
        None => None,
    };
    // A host that was killed leaves the file behind, and another program may have its port now.
    let told = told.filter(|(_, answer)| answer.as_ref().is_none_or(is_of_host));
    let (shown, answer) = match told {
        Some(told) => told,
        None => {
            let target = Target::new(options, url)?;
            let answer = target.ask_in_time()?;
            (target.url, answer)
        }
    };
    let late = || Err(format!("no answer within {} seconds", ANSWER_TIME.as_secs()));
    let answer = answer.unwrap_or_else(late);
    let trouble = match &answer {
        Ok((StatusCode::OK, _)) => None,
        Ok((status, body)) => Some(format!("{shown} answered {status}{}", reason(body))),
        Err(error) => Some(format!("{shown}: {error}")),
    };
    if options.json {
        let body = answer.ok().map(|(_, body)| body);
        write_out(&format!(
            "{}\n",
            json!({"ready": trouble.is_none(), "url": shown.to_string(), "answer": body})
        ))?;
    } else if trouble.is_none() {
        write_out(&format!("ready: {shown}\n"))?;
    }
    trouble.map_or(Ok(()), |trouble| Err(Failure::NotReady(trouble)))
}

/// Whether it is the answer of a host to `/readyz`.
fn is_of_host(answer: &HostAnswer) -> bool {
    answer.as_ref().is_ok_and(|(_, body)| body["ready"].is_boolean())
}

/// Why the host is not ready, if its answer says so.
fn reason(body: &Value) -> String {
    let stated = REASONS.iter().filter(|(part, value, _)| body[*part] == *value);
    let stated: Vec<&str> = stated.map(|(_, _, reason)| *reason).collect();
    if stated.is_empty() { String::new() } else { format!(": {}", stated.join(", ")) }
}

/// What is asked, and whose certificate is taken.
struct Target {
    url: Uri,
    trust: Trust,
}

/// Reads the value of `--url`: a URL without a path means `/readyz`.
///
/// # Errors
///
/// It is not a URL of HTTP.
pub(super) fn url(text: &str) -> Result<Uri, String> {
    let mut parts = text.parse::<Uri>().map_err(|error| error.to_string())?.into_parts();
    if !parts.scheme.as_ref().is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme)) {
        return Err("expected http://HOST:PORT or https://HOST:PORT".to_owned());
    }
    if parts.path_and_query.as_ref().is_none_or(|path| path == "/") {
        parts.path_and_query = Some(PathAndQuery::from_static(READY_PATH));
    }
    Uri::from_parts(parts).map_err(|error| error.to_string())
}

impl Target {
    fn new(options: &Options, url: Option<&Uri>) -> Result<Self, Failure> {
        let server = || Ok::<_, Failure>(Config::load(options.config.as_deref(), &options.data)?.server);
        if let Some(url) = url.cloned() {
            let files = if url.scheme() == Some(&Scheme::HTTPS) { server()?.tls } else { None };
            let own = files.and_then(|files| trust::first(&files.certificate));
            return Ok(Self { url, trust: Trust::Verified { own } });
        }
        let server = server()?;
        if server.admin.port() == 0 {
            let message = "server.admin has port 0, so its address is not known: name it with --url";
            return Err(CommandError::new(message.to_owned()).into());
        }
        let scheme = if server.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let url = format!("{scheme}://{}{READY_PATH}", Addresses::reachable(server.admin));
        let url = url.parse().map_err(|error| Failure::NotReady(format!("{url}: {error}")))?;
        // The address is one of this machine and nothing secret is sent. The host may rightly serve another certificate
        // than the files have now: the one before.
        Ok(Self { url, trust: Trust::Any })
    }

    /// The address that the running host has written into its data directory.
    fn of_running(options: &Options) -> Option<Self> {
        let url = admin_url::read(&options.data)?;
        let parts = format!("{url}{READY_PATH}").parse::<Uri>().ok()?;
        Some(Self { url: parts, trust: Trust::Any })
    }

    /// As [`Self::ask`]; `None` where no answer came within [`ANSWER_TIME`].
    ///
    /// # Errors
    ///
    /// The system refuses a runtime.
    fn ask_in_time(&self) -> Result<Option<HostAnswer>, Failure> {
        Ok(block_on(async { tokio::time::timeout(ANSWER_TIME, self.ask()).await })?.ok())
    }

    /// Sends the request; the answer's status and its body, null if it is not JSON.
    async fn ask(&self) -> HostAnswer {
        let host = self.url.host().unwrap_or_default();
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let is_tls = self.url.scheme() == Some(&Scheme::HTTPS);
        let port = self.url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((name, port)).await.map_err(|error| {
            format!("cannot connect: {error}; is the host running, and is this the address of server.admin?")
        })?;
        if !is_tls {
            return exchange(stream, &self.url).await;
        }
        let settings = self.trust.settings().map_err(|error| error.to_string())?;
        let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::new(settings)).connect(name, stream).await;
        exchange(stream.map_err(|error| format!("TLS: {error}"))?, &self.url).await
    }
}

async fn exchange<S>(stream: S, url: &Uri) -> Result<(StatusCode, Value), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let authority = url.authority().map(ToString::to_string).unwrap_or_default();
    let path = url.path_and_query().map_or(READY_PATH, |path| path.as_str());
    let request = Request::get(path).header(header::HOST, authority).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let bytes = body.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection ends when it was closed or has failed: the exchange knows why.
        _ = connection => exchange.await,
    }
}

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn a_url_without_a_path_asks_for_readiness() {
        for (text, read) in [
            ("http://127.0.0.1:8081", "http://127.0.0.1:8081/readyz"),
            ("https://host/", "https://host/readyz"),
            ("http://[::1]:1/healthz", "http://[::1]:1/healthz"),
        ] {
            assert_eq!(url(text).unwrap().to_string(), read);
        }
        for text in ["127.0.0.1:8081", "ftp://host/", "/readyz", "", "http://"] {
            assert!(url(text).is_err(), "{text}");
        }
    }
}
