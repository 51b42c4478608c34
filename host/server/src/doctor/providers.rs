//! Providers: whether the name resolves, the TLS handshake succeeds and the credential is taken.
//! Nothing is spent: the credential is tried with a GET that lists models.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_egress::{Credential, Egress, Error, ExchangeLimits, Origin, Outgoing, Unreached, Untrusted};
use cofferdam_engine::OperatorKey;
use cofferdam_engine::catalog::Provider;
use cofferdam_runtime::manifest::ModelsRoute;
use cofferdam_store::{Actor, Purpose, ReleaseRequest, ReleaseScope};
use futures_util::StreamExt;
use http::{HeaderName, HeaderValue, StatusCode};

use super::{CheckFinding, Installation};
use crate::config::{KeySource, ProviderConfig};

const ID: &str = "provider";
/// Providers that are tried at the same time.
const AT_ONCE: usize = 16;
/// How long a provider may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The answer's body is not read.
const BODY_BYTES_MAX: u64 = 64 * 1024;

pub(super) async fn check(providers: &[Arc<Provider>], installation: &Installation<'_>) -> Vec<CheckFinding> {
    if installation.offline {
        return Vec::new();
    }
    let egress = match Egress::new(installation.config.egress.clone()) {
        Ok(egress) => egress,
        Err(error) => {
            let remedy = "correct [egress] in the configuration";
            return vec![CheckFinding::bad(ID, "providers", error.to_string(), remedy)];
        }
    };
    let tried = providers.iter().filter_map(|provider| {
        let origin = provider.origin.as_ref()?;
        let written = installation.config.providers.iter().find(|written| written.name == provider.name)?;
        Some(ProviderCheck { provider, origin, written, installation, egress: &egress })
    });
    futures_util::stream::iter(tried)
        .map(|check| async move { check.run().await })
        .buffered(AT_ONCE)
        .collect()
        .await
}

/// What a request to a provider carries.
enum Carried {
    /// No credential: none is configured, or each caller has one of its own.
    Nothing,
    Own(Credential),
    /// The configured credential cannot be had.
    Missing(String),
}

/// One provider that is tried.
struct ProviderCheck<'t> {
    provider: &'t Provider,
    origin: &'t Origin,
    written: &'t ProviderConfig,
    installation: &'t Installation<'t>,
    egress: &'t Egress,
}

impl ProviderCheck<'_> {
    async fn run(&self) -> CheckFinding {
        if let Err(error) = self.egress.connect_to(self.origin).await {
            return self.unreached(error);
        }
        let carried = match self.carried().await {
            Carried::Nothing => None,
            Carried::Own(credential) => Some(credential),
            Carried::Missing(why) => {
                return CheckFinding::bad(
                    ID,
                    self.subject(),
                    format!("its credential cannot be used: {why}"),
                    self.give(),
                );
            }
        };
        let table = self.provider.adapter.manifest().provider.as_ref();
        let Some(route) = table.and_then(|table| table.models.as_ref()) else {
            let found =
                format!("{} is reached; its adapter names no way to try the credential", self.place());
            return CheckFinding::ok(ID, self.subject(), found);
        };
        match self.ask(route, carried.as_ref()).await {
            Ok(status) => self.judge(status, route, carried.is_some()),
            Err(error) => self.unreached(error),
        }
    }

    async fn ask(&self, route: &ModelsRoute, credential: Option<&Credential>) -> Result<StatusCode, Error> {
        let parse = |(name, value): (&String, &String)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        };
        let outgoing = Outgoing {
            origin: self.origin,
            path: &route.path,
            headers: route.headers.iter().filter_map(parse).collect(),
            body: Bytes::new(),
            streamed: false,
            credential,
            limits: ExchangeLimits { head: ANSWER_TIME, idle: ANSWER_TIME, body_bytes_max: BODY_BYTES_MAX },
        };
        Ok(self.egress.get(outgoing).await?.status)
    }

    /// The operator's credential. A secret of the vault is released for this, with an audit record.
    async fn carried(&self) -> Carried {
        let own =
            self.provider.authentication.as_ref().and_then(|it| Some((&it.placement, it.own.as_ref()?)));
        let (placement, secret) = match own {
            None if self.written.key.is_some() => return Carried::Missing("it is not set".to_owned()),
            None => return Carried::Nothing,
            Some((_, OperatorKey::Fixed(credential))) => return Carried::Own(credential.clone()),
            Some((placement, OperatorKey::Vault(secret))) => (placement, secret),
        };
        let Some(store) = self.installation.store else {
            return Carried::Missing("there is no store".to_owned());
        };
        let used_by = format!("doctor, provider {}", self.provider.name);
        let released = store.release_recorded(ReleaseRequest {
            actor: Actor::Operator,
            scope: ReleaseScope::Operator,
            secret: secret.clone(),
            purpose: Purpose { used_by, request_id: "doctor".to_owned() },
        });
        match released.await {
            Err(error) => Carried::Missing(error.to_string()),
            Ok(release) => match Credential::new(placement, release.expose()) {
                Ok(credential) => Carried::Own(credential),
                Err(error) => Carried::Missing(error.to_string()),
            },
        }
    }

    fn judge(&self, status: StatusCode, route: &ModelsRoute, with_credential: bool) -> CheckFinding {
        let asked = format!("{} answers GET {} with {}", self.place(), route.path, status.as_u16());
        let subject = self.subject();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if with_credential => {
                CheckFinding::bad(ID, subject, format!("{asked}: it refuses the credential"), self.give())
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if self.written.byok.is_some() => {
                CheckFinding::ok(
                    ID,
                    subject,
                    format!("{asked}: it wants the key of each caller, which is configured"),
                )
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => CheckFinding::bad(
                ID,
                subject,
                format!("{asked}: it wants a credential and none is configured"),
                self.give(),
            ),
            status if status.is_success() => CheckFinding::ok(ID, subject, asked),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                CheckFinding::warn(ID, subject, asked, "try again later; look at the provider's own status")
            }
            _ => CheckFinding::warn(
                ID,
                subject,
                format!("{asked}, so the credential was not tried"),
                format!(
                    "see whether base_url at {} is right; some servers have no list of models",
                    self.line()
                ),
            ),
        }
    }

    fn unreached(&self, error: Error) -> CheckFinding {
        let remedy = match error {
            Error::Unreachable(Unreached::UnknownName) => {
                format!("correct the host of base_url at {}, or add the name to the DNS", self.line())
            }
            Error::Unreachable(Unreached::NoNameServer) => {
                "look at the name servers of this machine, or set egress.nameservers".to_owned()
            }
            Error::Untrusted(Untrusted::UnknownRoot) => {
                "add the root certificate of the server to egress.roots, if it is yours".to_owned()
            }
            Error::Untrusted(Untrusted::NotYetValid) => "set the clock of this machine".to_owned(),
            _ => format!("see whether the server runs and base_url at {} is right", self.line()),
        };
        CheckFinding::bad(ID, self.subject(), format!("{}: {error}", self.place()), remedy)
    }

    /// What gives the provider a credential that works.
    fn give(&self) -> String {
        match &self.written.key {
            Some((KeySource::Env(name), _)) => {
                format!("set the variable {name} to a valid key and start the host again")
            }
            Some((KeySource::Operator(name), _)) => {
                format!("cofferdam secret put {name} --operator --host {}", self.origin.host())
            }
            None => format!("set `key` of the provider at {}", self.line()),
        }
    }

    fn subject(&self) -> String {
        format!("provider {}", self.provider.name)
    }

    fn place(&self) -> String {
        format!("{}:{}", self.origin.host(), self.origin.port())
    }

    fn line(&self) -> String {
        let place = &self.written.place;
        format!("{}:{}", place.file.display(), place.line)
    }
}
