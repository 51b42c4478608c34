//! Sending one request.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};

use crate::{
    ConfigError, Credential, EgressConfig, Error, Origin, Reason, Reply, ReplyBody,
    error::reduce,
    headers,
    reach::Reach,
    resolver::{CheckedNames, Names},
    tls,
};

/// Idle connections are closed before the usual server (60 s and more) closes them under a request.
const POOL_IDLE: Duration = Duration::from_secs(50);
/// Idle connections kept per origin: as many as the default number of streams.
const POOL_IDLE_MAX: usize = 1000;

/// The door out. Clones share its connections.
#[derive(Clone)]
pub struct Egress {
    clients: Arc<Clients>,
}

/// One client, and so one pool, per reach.
struct Clients {
    anywhere: reqwest::Client,
    local: reqwest::Client,
    loopback: reqwest::Client,
}

/// One request to a provider; always a POST with a JSON body.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Where to: the operator's grant.
    pub origin: &'a Origin,
    /// The guest's path, appended to the origin's; may carry a query.
    pub path: &'a str,
    /// The guest's headers besides content type, accept and the credential.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The guest's body.
    pub body: Bytes,
    /// Will the answer be a stream of events? Decides what `accept` says.
    pub streamed: bool,
    /// Put in at the last moment.
    pub credential: Option<&'a Credential>,
    /// How much and how long.
    pub limits: Limits,
}

/// Bounds of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest time until the head of the answer is here, connecting included.
    pub head: Duration,
    /// The longest silence between two pieces of the body.
    pub idle: Duration,
    /// The longest body, in bytes.
    pub body_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            body_bytes_max: 64 * 1024 * 1024,
        }
    }
}

impl Egress {
    /// Builds the clients. Nothing is resolved or connected yet.
    ///
    /// # Errors
    ///
    /// A root certificate that cannot be read, or settings that a library refuses.
    pub fn new(config: EgressConfig) -> Result<Self, ConfigError> {
        let tls = tls::settings(&config.roots)?;
        let names = Arc::new(Names::new(&config)?);
        let client = |reach| client(CheckedNames::new(Arc::clone(&names), reach), tls.clone(), &config);
        let clients = Clients {
            anywhere: client(Reach::Anywhere)?,
            local: client(Reach::Local)?,
            loopback: client(Reach::Loopback)?,
        };
        Ok(Self { clients: Arc::new(clients) })
    }

    /// Sends a request once and waits for the head of the answer.
    ///
    /// # Errors
    ///
    /// See [`Error`]; [`Error::is_connect`] tells whether the server can have seen the request.
    pub async fn send(&self, outgoing: Outgoing<'_>) -> Result<Reply, Error> {
        let Outgoing { origin, path, headers, body, streamed, credential, limits } = outgoing;
        let client = match origin.reach() {
            Reach::Anywhere => &self.clients.anywhere,
            Reach::Loopback => &self.clients.loopback,
            // The origin was granted without one; nothing vouches for where it leads.
            Reach::Local if credential.is_some() => return Err(Reason::Plaintext.into()),
            Reach::Local => &self.clients.local,
        };
        let url = origin.join(path).map_err(Reason::Path)?;
        let mut request = reqwest::Request::new(Method::POST, url);
        *request.headers_mut() = headers::assemble(headers, streamed, credential)?;
        *request.body_mut() = Some(body.into());

        let mut response = match tokio::time::timeout(limits.head, client.execute(request)).await {
            Ok(outcome) => outcome.map_err(|error| reduce(&error))?,
            Err(_elapsed) => return Err(Error::TimedOut),
        };
        let headers = std::mem::take(response.headers_mut());
        if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            return Err(Error::Broken);
        }
        Ok(Reply { status: response.status(), headers, body: ReplyBody::new(response, &limits) })
    }
}

/// Everything that could send a request a second time, elsewhere or with more in it is off.
fn client(
    names: CheckedNames,
    tls: rustls::ClientConfig,
    config: &EgressConfig,
) -> Result<reqwest::Client, ConfigError> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Arc::new(names))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .user_agent(concat!("cofferdam/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(config.connect_timeout)
        .tcp_nodelay(true)
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_IDLE_MAX)
        // A silent peer is asked for a sign of life, so that a dead path is noticed before the idle time.
        .http2_keep_alive_interval(Duration::from_secs(20))
        .http2_keep_alive_timeout(Duration::from_secs(10))
        .build()
        .map_err(|_| ConfigError::Client)
}
