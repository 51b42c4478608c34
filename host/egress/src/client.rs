//! Sending one request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;

use crate::{
    ConfigError, Credential, EgressConfig, Error, GuestRequest, Origin, Reason, Reply, ReplyBody,
    dial::Dialler,
    headers,
    pool::Pool,
    reach::Reach,
    resolver::{CheckedNames, Names},
    rule::Rule,
    tls,
    wire::{Exchange, Line, Outward, Unanswered},
};

/// The door out. Clones share its connections.
#[derive(Clone)]
pub struct Egress {
    clients: Arc<Clients>,
}

/// One client, and so one pool, per reach.
struct Clients {
    anywhere: Client,
    local: Client,
    loopback: Client,
    /// For guests' own requests; nothing that was dialled for a provider is ever theirs.
    guests: Client,
    guests_plaintext: Client,
    /// For guests that may go anywhere: what the operator opened for others is closed to them.
    guests_public: Client,
    /// What decides about guests' requests before a name is resolved.
    guest_ports: Vec<u16>,
    allow_plaintext_loopback: bool,
}

/// Sends under one rule.
pub(crate) struct Client {
    dialler: Dialler,
    pool: Arc<Pool>,
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
        let tls = Arc::new(tls::settings(&config.roots)?);
        let names = Arc::new(Names::new(&config)?);
        let client = |rule: Rule| {
            let names = CheckedNames::new(Arc::clone(&names), rule);
            let dialler = Dialler::new(names, Arc::clone(&tls), config.connect_timeout);
            Client { dialler, pool: Arc::default() }
        };
        let clients = Clients {
            anywhere: client(Rule::Origin(Reach::Anywhere)),
            local: client(Rule::Origin(Reach::Local)),
            loopback: client(Rule::Origin(Reach::Loopback)),
            guests: client(Rule::guest(&config, false)),
            guests_plaintext: client(Rule::guest(&config, true)),
            guests_public: client(Rule::public_guest(&config)),
            allow_plaintext_loopback: config.allow_plaintext_loopback,
            guest_ports: config.ports,
        };
        Ok(Self { clients: Arc::new(clients) })
    }

    /// Is the way to this place open, as far as its text tells (R5, R6, R11, R12)?
    ///
    /// # Errors
    ///
    /// The rule that closes it.
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
            // The connector does not resolve it, so the resolver would not look at it.
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
    /// See [`Error`]; [`Error::is_connect`] tells whether the server can have seen the request.
    pub async fn send(&self, outgoing: Outgoing<'_>) -> Result<Reply, Error> {
        self.send_marked(outgoing, &AtomicBool::new(false)).await
    }

    /// The same; `is_sent` is set as soon as the server may have seen a byte of the request.
    ///
    /// # Errors
    ///
    /// As for [`Self::send`].
    pub async fn send_marked(&self, outgoing: Outgoing<'_>, is_sent: &AtomicBool) -> Result<Reply, Error> {
        let Outgoing { origin, path, headers, body, streamed, credential, limits } = outgoing;
        let client = match origin.reach() {
            Reach::Anywhere => &self.clients.anywhere,
            Reach::Loopback => &self.clients.loopback,
            // The origin was granted without one; nothing vouches for where it leads.
            Reach::Local if credential.is_some() => return Err(Reason::Plaintext.into()),
            Reach::Local => &self.clients.local,
        };
        let uri = origin.join(path).map_err(Reason::Path)?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers::assemble(headers, streamed, credential)?;

        let outcome = client.exchange(origin.key(), origin.host_header(), uri, request, is_sent);
        let outcome = tokio::time::timeout(limits.head, outcome).await;
        let (mut head, exchange) = outcome.map_err(|_elapsed| Error::TimedOut)??;
        if headers::is_encoded(&head.headers) {
            return Err(Error::Broken);
        }
        let mut body =
            ReplyBody::new(exchange, (Arc::clone(&client.pool), Arc::clone(origin.key())), &limits);
        if let Some(credential) = credential {
            credential.scrub().scrub_headers(&mut head.headers);
            body.search(credential.scrub());
        }
        Ok(Reply { status: head.status, headers: head.headers, body })
    }
}

impl Client {
    /// Sends a request once. A connection that had died before it took a byte of the request is not counted.
    pub(crate) async fn exchange(
        &self,
        key: &Arc<str>,
        host: &HeaderValue,
        uri: Uri,
        mut request: Outward,
        is_sent: &AtomicBool,
    ) -> Result<(http::response::Parts, Exchange), Error> {
        loop {
            let (line, is_new) = match self.pool.take(key) {
                Some(line) => (line, false),
                None => (self.dial(key, uri.clone()).await?, true),
            };
            is_sent.store(true, Ordering::Relaxed);
            let answered = match line {
                Line::Own(mut wire) => {
                    for_one(&mut request, &uri, host);
                    wire.send(request).await.map(|answer| (answer, Line::Own(wire)))
                }
                Line::Shared(mut shared) => {
                    for_many(&mut request, &uri);
                    let answer = Box::pin(shared.send(request)).await;
                    answer.map(|answer| (answer, Line::Shared(shared)))
                }
            };
            match answered {
                Ok((answer, line)) => {
                    let (head, body) = answer.into_parts();
                    return Ok((head, Exchange { body, line }));
                }
                Err(Unanswered(Some(unsent))) if !is_new => {
                    is_sent.store(false, Ordering::Relaxed);
                    request = unsent;
                }
                Err(_) => return Err(Error::Broken),
            }
        }
    }

    /// Sees to it that a connection to the origin of `uri` waits for a request.
    pub(crate) async fn connect(&self, key: &Arc<str>, uri: Uri) -> Result<(), Error> {
        let line = match self.pool.take(key) {
            Some(line) => line,
            None => self.dial(key, uri).await?,
        };
        if let Line::Own(wire) = line {
            self.pool.keep(key, wire);
        }
        Ok(())
    }

    /// A new connection. It is rare, so what it takes is not part of every request.
    async fn dial(&self, key: &Arc<str>, uri: Uri) -> Result<Line, Error> {
        let line = Box::pin(self.dialler.dial(uri)).await?;
        if let Line::Shared(shared) = &line {
            self.pool.share(key, shared);
        }
        Ok(line)
    }

    pub(crate) fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool)
    }
}

/// HTTP/1 names the path in its first line and the host in a header.
fn for_one(request: &mut Outward, uri: &Uri, host: &HeaderValue) {
    *request.uri_mut() = uri.path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    request.headers_mut().insert(header::HOST, host.clone());
}

/// HTTP/2 has the host in the address.
fn for_many(request: &mut Outward, uri: &Uri) {
    *request.uri_mut() = uri.clone();
    request.headers_mut().remove(header::HOST);
}
