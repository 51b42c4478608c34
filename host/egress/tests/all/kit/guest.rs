//! Guests' own requests to a test server behind TLS.

use bytes::Bytes;
use cofferdam_egress::{
    Egress, EgressConfig, Error, GuestBody, GuestLimits, GuestReply, GuestRequest, Placement, Reason, Target,
};
use http::{Request, Response};
use http_body_util::Full;

use super::{
    PATIENCE, Server, config, egress,
    tls::Authority,
    vault::{self, Injection, Vault},
};

/// The value of the secret that is released to `api.test`.
pub(crate) const VALUE: &str = "ghp_0123456789/abc+DEF==";
pub(crate) const NAME: &str = "github_token";

/// A server for `api.test`, and a client through which guests reach it.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) authority: Authority,
    pub(crate) config: EgressConfig,
    pub(crate) vault: Vault,
    pub(crate) egress: Egress,
}

impl Scene {
    pub(crate) async fn new(answer: fn(&Request<Bytes>) -> Response<Full<Bytes>>) -> Self {
        let authority = Authority::new();
        let server = Server::start_tls(authority.acceptor("api.test", &["h2", "http/1.1"]), answer).await;
        let config = opened(&server, &authority);
        Self { egress: egress(&config), server, authority, config, vault: Vault::new() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://api.test:{}{path}", self.server.address.port())
    }

    /// A `GET` to a path of the server.
    pub(crate) fn get(&self, path: &str) -> GuestRequest {
        get(&self.url(path))
    }

    /// The secret in `authorization: Bearer`.
    pub(crate) fn bearer(&self) -> Injection {
        self.with(Placement::header("authorization", "Bearer {}").unwrap(), VALUE)
    }

    pub(crate) fn with(&self, slot: Placement, value: &str) -> Injection {
        self.vault.injection(slot, NAME, value, "api.test")
    }

    pub(crate) async fn fetch(
        &self,
        request: GuestRequest,
        injections: Vec<Injection>,
    ) -> Result<GuestReply, Error> {
        vault::fetch(&self.egress, request, injections).await
    }

    /// The rule that refuses the request. Asserts that no connection was made.
    pub(crate) async fn refusal(&self, request: GuestRequest, injections: Vec<Injection>) -> Reason {
        let before = self.server.connections();
        let reason = refusal(self.fetch(request, injections).await);
        assert_eq!(self.server.connections(), before);
        reason
    }
}

/// A configuration that lets guests reach this server as `api.test`.
pub(crate) fn opened(server: &Server, authority: &Authority) -> EgressConfig {
    EgressConfig {
        ports: vec![server.address.port()],
        roots: vec![authority.pem()],
        allow_private: vec!["127.0.0.0/8".parse().unwrap()],
        allow_plaintext_loopback: false,
        resolve: [("api.test".to_owned(), vec!["127.0.0.1".parse().unwrap()])].into(),
        ..config()
    }
}

pub(crate) fn get(url: &str) -> GuestRequest {
    GuestRequest {
        method: "GET".to_owned(),
        target: Target::parse(url).unwrap(),
        headers: Vec::new(),
        body: Bytes::new(),
        limits: GuestLimits { body_bytes_max: 1024 * 1024, total: PATIENCE },
        public_only: false,
    }
}

pub(crate) fn with_header(mut request: GuestRequest, name: &str, value: &str) -> GuestRequest {
    request.headers.push((name.to_owned(), value.to_owned()));
    request
}

pub(crate) fn refusal(outcome: Result<GuestReply, Error>) -> Reason {
    match outcome {
        Err(Error::Refused { reason }) => reason,
        Err(error) => panic!("{error}"),
        Ok(reply) => panic!("answered with {}", reply.status),
    }
}

pub(crate) async fn text(reply: GuestReply) -> String {
    let mut body = reply.body;
    String::from_utf8(whole(&mut body).await.unwrap().to_vec()).unwrap()
}

/// Answers with the head and the body of the request.
pub(crate) fn echo(request: &Request<Bytes>) -> Response<Full<Bytes>> {
    let mut text = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        text += &format!("{name}: {}\n", value.to_str().unwrap());
    }
    Response::new(Full::from([text.as_bytes(), b"\n", request.body()].concat()))
}

/// Reads a body to its end.
pub(crate) async fn whole(body: &mut GuestBody) -> Result<Bytes, Error> {
    body.collect(|_| Ok(())).await
}
