//! [`Egress`]: one client per rule, the exchange that all requests share, and the rules for requests
//! to providers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;

use crate::{
    Credential, EgressConfig, EgressConfigError, Error, ExchangeLimits, GuestRequest, Origin, Reason, Reply,
    ReplyBody, ScrubSet,
    dial::Dialler,
    headers, path, placing,
    pool::ConnectionPool,
    reach::AllowedAddresses,
    resolver::{CheckedNames, HostResolver},
    rule::PoolRule,
    tls,
    wire::{Exchange, Outward, Unanswered, UpstreamConnection},
};

/// Sends requests to servers outside. Clones share the connection pools.
#[derive(Clone)]
pub struct Egress {
    clients: Arc<Clients>,
}

/// One client, and therefore one connection pool, per rule: a connection that was dialled under one
/// rule is never used for a request under another one.
struct Clients {
    anywhere: Client,
    local: Client,
    loopback: Client,
    /// Guests' own requests. They never use a connection that was dialled for a provider.
    guests: Client,
    guests_plaintext: Client,
    /// Guests that may reach any public host. `allow_private` does not apply to them.
    guests_public: Client,
    /// Checked for guests' requests before a name is resolved.
    guest_ports: Vec<u16>,
    allow_plaintext_loopback: bool,
}

/// Dials and sends under one rule.
pub(crate) struct Client {
    dialler: Dialler,
    pool: Arc<ConnectionPool>,
}

/// One request to a provider. [`Egress::send`] makes a POST with a JSON body of it, [`Egress::get`]
/// a GET.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The destination that the operator configured.
    pub origin: &'a Origin,
    /// The path from the guest, appended to the origin's path. It may have a query.
    pub path: &'a str,
    /// The headers from the guest. They must not compete with the credential.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body from the guest.
    pub body: Bytes,
    /// Whether an event stream is expected. Decides the default of the `accept` header.
    pub streamed: bool,
    /// Added after all headers of the guest are checked.
    pub credential: Option<&'a Credential>,
    /// Limits in bytes and time.
    pub limits: ExchangeLimits,
}

/// Checks the path and the headers of a request to a provider by the rules of [`Egress::send`] that depend on neither the
/// destination nor the credential itself. `slot` is the header of the credential, for a dialect with one.
///
/// # Errors
///
/// The first rule that is broken.
pub fn check_outgoing(path: &str, headers: &[(String, String)], slot: Option<&str>) -> Result<(), Reason> {
    path::check(path)?;
    headers::check(headers, slot)
}

impl Egress {
    /// Builds the clients. Nothing is resolved or connected yet.
    ///
    /// # Errors
    ///
    /// [`EgressConfigError`] if a root certificate cannot be read or a library refuses its settings.
    pub fn new(config: EgressConfig) -> Result<Self, EgressConfigError> {
        let tls = tls::settings(&config.roots)?;
        let names = Arc::new(HostResolver::new(&config)?);
        let client = |rule: PoolRule| {
            let tls = if matches!(rule, PoolRule::Guest(_)) { &tls.guests } else { &tls.providers };
            let names = CheckedNames::new(Arc::clone(&names), rule);
            let dialler = Dialler::new(names, Arc::clone(tls), config.connect_timeout);
            Client { dialler, pool: Arc::default() }
        };
        let clients = Clients {
            anywhere: client(PoolRule::Origin(AllowedAddresses::Anywhere)),
            local: client(PoolRule::Origin(AllowedAddresses::Local)),
            loopback: client(PoolRule::Origin(AllowedAddresses::Loopback)),
            guests: client(PoolRule::guest(&config, false)),
            guests_plaintext: client(PoolRule::guest(&config, true)),
            guests_public: client(PoolRule::public_guest(&config)),
            allow_plaintext_loopback: config.allow_plaintext_loopback,
            guest_ports: config.ports,
        };
        Ok(Self { clients: Arc::new(clients) })
    }

    /// Checks scheme, port and literal address of a guest's request before anything is resolved
    /// (egress rules R5, R6, R11 and R12).
    ///
    /// # Errors
    ///
    /// The rule that closes the destination.
    pub(crate) fn check_way(&self, request: &GuestRequest, with_secret: bool) -> Result<(), Reason> {
        let target = &request.target;
        let is_local = self.clients.allow_plaintext_loopback && target.is_loopback() && !request.public_only;
        if !target.is_https() && !is_local {
            return Err(if with_secret { Reason::Plaintext } else { Reason::PlaintextGuest });
        }
        if !self.clients.guest_ports.contains(&target.port()) {
            return Err(Reason::Port);
        }
        match target.literal() {
            Some(_) if with_secret => Err(Reason::SecretHost),
            // The connector does not resolve a literal, so the check in the resolver does not see
            // it.
            Some(address) => self.guests(request).dialler.check(address),
            None => Ok(()),
        }
    }

    pub(crate) fn guests(&self, request: &GuestRequest) -> &Client {
        match (request.target.is_https(), request.public_only) {
            (false, _) => &self.clients.guests_plaintext,
            (true, false) => &self.clients.guests,
            (true, true) => &self.clients.guests_public,
        }
    }

    /// Sends a request once and waits for the head of the answer.
    ///
    /// # Errors
    ///
    /// See [`Error`]. [`Error::is_connect`] says whether the server may have seen the request.
    pub async fn send(&self, outgoing: Outgoing<'_>) -> Result<Reply, Error> {
        self.send_marked(outgoing, &AtomicBool::new(false)).await
    }

    /// Same as [`Self::send`], and sets `is_sent` as soon as the server may have seen a byte of the
    /// request. It is false again while a request that the server did not process waits to be sent
    /// once more. The caller can read it even after it dropped the future.
    ///
    /// # Errors
    ///
    /// Same as [`Self::send`].
    pub async fn send_marked(&self, outgoing: Outgoing<'_>, is_sent: &AtomicBool) -> Result<Reply, Error> {
        self.send_by(Method::POST, outgoing, is_sent).await
    }

    /// Same as [`Self::send`], as a GET.
    ///
    /// # Errors
    ///
    /// Same as [`Self::send`].
    pub async fn get(&self, outgoing: Outgoing<'_>) -> Result<Reply, Error> {
        self.send_by(Method::GET, outgoing, &AtomicBool::new(false)).await
    }

    /// Makes sure that there is a connection to an origin: resolves the name, connects, and makes
    /// the TLS handshake. Sends no request.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::Unreachable`] and [`Error::Untrusted`].
    pub async fn connect_to(&self, origin: &Origin) -> Result<(), Error> {
        // Only its scheme and authority count for a connection.
        let uri = origin.join("models").map_err(Reason::Path)?;
        self.provider_client(origin).connect(origin.key(), uri).await.map(drop)
    }

    /// The client for the addresses that the origin may lead to.
    fn provider_client(&self, origin: &Origin) -> &Client {
        match origin.reach() {
            AllowedAddresses::Anywhere => &self.clients.anywhere,
            AllowedAddresses::Loopback => &self.clients.loopback,
            AllowedAddresses::Local => &self.clients.local,
        }
    }

    async fn send_by(
        &self,
        method: Method,
        outgoing: Outgoing<'_>,
        is_sent: &AtomicBool,
    ) -> Result<Reply, Error> {
        let Outgoing { origin, path, headers, body, streamed, credential, limits } = outgoing;
        // The origin was checked as one without a credential, so it may lead to a private address
        // over plain http.
        if origin.reach() == AllowedAddresses::Local && credential.is_some() {
            return Err(Reason::Plaintext.into());
        }
        let client = self.provider_client(origin);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = origin.join(path).map_err(Reason::Path)?;
        *request.headers_mut() = headers::assemble(headers, streamed, credential)?;
        if let Some(credential) = credential {
            placing::fill(&mut request, &[(credential.placement(), credential.expose())])?;
        }
        let values = credential.map(Credential::scrub);
        let reply =
            client.exchange(origin.key(), origin.host_header(), request, values, limits, is_sent).await?;
        // No request asks for a part. In a part, a secret that is cut by the edge would not be found (egress
        // rule R18).
        if credential.is_some() && reply.status == StatusCode::PARTIAL_CONTENT {
            return Err(Error::Broken);
        }
        Ok(reply)
    }
}

impl Client {
    /// Sends a request once and waits for the head of the answer. `key` is that of the connections
    /// to the origin. The `values` that were sent with the request are removed from the answer.
    pub(crate) async fn exchange(
        &self,
        key: &Arc<str>,
        host: &HeaderValue,
        request: Request<Bytes>,
        values: Option<&ScrubSet>,
        limits: ExchangeLimits,
        is_sent: &AtomicBool,
    ) -> Result<Reply, Error> {
        let outcome = tokio::time::timeout(limits.head, self.send(key, host, request, is_sent)).await;
        let (mut head, exchange, connecting) = outcome.map_err(|_elapsed| Error::TimedOut)??;
        // No request asks for a content coding. An encoded body could not be searched for secrets.
        if headers::is_encoded(&head.headers) {
            return Err(Error::Broken);
        }
        let mut body = ReplyBody::new(exchange, (Arc::clone(&self.pool), Arc::clone(key)), &limits);
        if let Some(values) = values {
            body.search(values, values.scrub_headers(&mut head.headers));
        }
        Ok(Reply { status: head.status, headers: head.headers, body, connecting })
    }

    /// If a pooled connection turns out to be dead before it took a byte of the request, the request
    /// is sent over another one. If an HTTP/2 server says that it has not processed the request, it
    /// is sent once more.
    async fn send(
        &self,
        key: &Arc<str>,
        host: &HeaderValue,
        request: Request<Bytes>,
        is_sent: &AtomicBool,
    ) -> Result<(http::response::Parts, Exchange, Option<Duration>), Error> {
        let uri = request.uri().clone();
        let mut request = request.map(Full::new);
        let mut connecting = None;
        let mut is_repeated = false;
        loop {
            let (connection, is_new) = match self.pool.take(key) {
                Some(connection) => (connection, false),
                None => {
                    let began = Instant::now();
                    let connection = self.dial(key, uri.clone()).await?;
                    connecting = Some(began.elapsed());
                    (connection, true)
                }
            };
            // Set before sending: if this future is dropped during the send, the server may have
            // seen the request.
            is_sent.store(true, Ordering::Relaxed);
            let answered = match connection {
                UpstreamConnection::Own(mut wire) => {
                    for_one(&mut request, &uri, host);
                    wire.send(request).await.map(|answer| (answer, UpstreamConnection::Own(wire)))
                }
                UpstreamConnection::Shared(mut shared) => {
                    for_many(&mut request, &uri);
                    let answer = Box::pin(shared.send(request)).await;
                    answer.map(|answer| (answer, UpstreamConnection::Shared(shared)))
                }
            };
            match answered {
                Ok((answer, connection)) => {
                    let (head, body) = answer.into_parts();
                    return Ok((head, Exchange { body, connection }, connecting));
                }
                Err(Unanswered::Unsent(unsent)) if !is_new => request = unsent,
                Err(Unanswered::Refused(refused)) if !is_repeated => {
                    is_repeated = true;
                    request = refused;
                }
                Err(_) => return Err(Error::Broken),
            }
            is_sent.store(false, Ordering::Relaxed);
        }
    }

    /// Makes sure that the pool has a connection to the origin of `uri`. Returns how long making one
    /// took, if there was none.
    pub(crate) async fn connect(&self, key: &Arc<str>, uri: Uri) -> Result<Option<Duration>, Error> {
        let began = Instant::now();
        let (connection, connecting) = match self.pool.take(key) {
            Some(connection) => (connection, None),
            None => (self.dial(key, uri).await?, Some(began.elapsed())),
        };
        if let UpstreamConnection::Own(wire) = connection {
            self.pool.keep(key, wire);
        }
        Ok(connecting)
    }

    /// Opens a new connection. Boxed because it is rare: its large future is not part of every
    /// request's future.
    async fn dial(&self, key: &Arc<str>, uri: Uri) -> Result<UpstreamConnection, Error> {
        let connection = Box::pin(self.dialler.dial(uri)).await?;
        if let UpstreamConnection::Shared(shared) = &connection {
            self.pool.share(key, shared);
        }
        Ok(connection)
    }
}

/// HTTP/1 has the path in its request line and the host in the `Host` header.
fn for_one(request: &mut Outward, uri: &Uri, host: &HeaderValue) {
    *request.uri_mut() = uri.path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    request.headers_mut().insert(header::HOST, host.clone());
}

/// HTTP/2 has the host in the `:authority` pseudo-header, which comes from the URI.
fn for_many(request: &mut Outward, uri: &Uri) {
    *request.uri_mut() = uri.clone();
    request.headers_mut().remove(header::HOST);
}
