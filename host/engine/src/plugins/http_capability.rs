//! The HTTP capability: plugins use it to reach other hosts, with secrets of the caller or of the
//! operator.
//!
//! Each request passes these steps in this order:
//!
//! 1. Its URL is parsed into a checked target.
//! 2. The host must be covered by the grant.
//! 3. The grant and the guest's request become a plan: which secrets are sent, and where each is
//!    placed.
//! 4. Everything that can be checked without a value is checked.
//! 5. If a secret is sent, a connection is opened first. It shows that the address is allowed and
//!    that the server's certificate is valid for the host.
//! 6. The secrets are released, each after its audit record is on the disk, and the request is sent
//!    at once.
//! 7. The values of the secrets are removed from the answer.
//!
//! A redirect is a new request that passes all of these steps.

mod plan;
mod redirect;
mod refusal;
mod release;
mod released;
mod stream;

use crate::Engine;
use crate::caller::Caller;
use crate::log_throttle::LogThrottle;
use crate::memory::reflection::{Reflections, Use};
use cofferdam_egress::{Egress, GuestLimits, GuestReply, GuestRequest, Injection, SecretPlacement, Target};
use cofferdam_runtime::services::{HttpDoor, HttpExchange, Opening};
use cofferdam_runtime::wire::{HttpError, HttpRequest, HttpResponse};
use cofferdam_runtime::{Grant, HostAccess, OnReflection};
use cofferdam_store::{
    FingerprintPrefix, HostName, Purpose, Reflection, RefusedRequest, RequestRefusal, SecretName, VaultId,
};
use plan::Planned;
use refusal::UnsentRequest;
use release::CallerVault;
pub(crate) use released::{Released, ReleasedSearch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

/// The longest body of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The longest body of an answer that a guest gets, in bytes.
const BODY_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// The most redirects that are followed for one request.
const REDIRECTS_MAX: u8 = 5;
/// Refused requests that are logged and audited for one client's request. After these every further
/// request fails with `Exhausted`, so that a plugin cannot fill the disk or the log.
const REFUSALS_MAX: u32 = 16;

/// The HTTP capability for the plugins of one request of `caller`.
pub(crate) fn http_door(
    engine: &Engine,
    caller: &Caller,
    request_id: &Arc<str>,
    released: &Released,
) -> Arc<dyn HttpDoor> {
    Arc::new(HttpCapability {
        egress: engine.parts.egress.clone(),
        vault: CallerVault::of(&engine.parts.store, caller),
        scope: caller.intern.map_or(VaultId::Workspace(caller.workspace), VaultId::Intern),
        reflections: Arc::clone(&engine.parts.memory.reflections),
        unreached: Arc::clone(&engine.parts.memory.unreached),
        request_id: Arc::clone(request_id),
        time_max: engine.parts.timeouts.total,
        refusals: AtomicU32::new(0),
        released: released.clone(),
    })
}

struct HttpCapability {
    egress: Egress,
    vault: CallerVault,
    scope: VaultId,
    reflections: Arc<Reflections>,
    unreached: Arc<LogThrottle>,
    request_id: Arc<str>,
    time_max: Duration,
    refusals: AtomicU32,
    released: Released,
}

/// One HTTP request of one plugin, under the plugin's grant.
struct Visit<'a> {
    door: &'a HttpCapability,
    plugin: &'a str,
    grant: &'a Grant,
}

/// A request whose answer has arrived as far as its head.
struct Reached {
    /// The request that was sent last, after redirects.
    request: GuestRequest,
    reply: GuestReply,
    sent: Vec<Sent>,
}

/// A secret that was sent.
struct Sent {
    secret: SecretName,
    fingerprint: Option<FingerprintPrefix>,
}

impl HttpDoor for HttpCapability {
    fn send<'a>(
        &'a self,
        plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpResponse, HttpError>> {
        Box::pin(async move {
            let time = self.time_for(&request)?;
            let deadline = tokio::time::Instant::now() + time;
            let visit = Visit { door: self, plugin, grant };
            let answered = async {
                let Reached { request, reply, sent } = visit.reach(request, time).await?;
                visit.read(&request, reply, &sent, deadline).await
            };
            timeout_at(deadline, answered).await.map_err(|_elapsed| HttpError::Timeout)?
        })
    }

    fn open<'a>(
        self: Arc<Self>,
        plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpExchange, HttpError>> {
        Box::pin(async move {
            let time = self.time_for(&request)?;
            let deadline = tokio::time::Instant::now() + time;
            let visit = Visit { door: &self, plugin, grant };
            let reached = timeout_at(deadline, visit.reach(request, time)).await;
            let Reached { request, reply, sent } = reached.map_err(|_elapsed| HttpError::Timeout)??;
            // Secrets in the head are noted now, because the guest may never read the body.
            let reflected = reply.body.reflected();
            visit.note_reflections(&request, &reflected, &sent)?;
            let sent = sent.into_iter().filter(|sent| !reflected.contains(&sent.secret)).collect();
            let reached = Reached { request, reply, sent };
            Ok(stream::exchange(self, plugin, grant, reached, deadline))
        })
    }
}

impl HttpCapability {
    /// The time limit of a request.
    ///
    /// # Errors
    /// `Exhausted`, after too many refused requests.
    fn time_for(&self, request: &HttpRequest) -> Result<Duration, HttpError> {
        if self.refusals.load(Ordering::Relaxed) >= REFUSALS_MAX {
            return Err(HttpError::Exhausted);
        }
        Ok(Duration::from_millis(request.timeout_ms.into()).min(self.time_max))
    }
}

impl Visit<'_> {
    /// Sends the request and follows its redirects, up to the head of the answer.
    async fn reach(&self, written: HttpRequest, time: Duration) -> Result<Reached, HttpError> {
        let HttpRequest { method, url, headers, body, injections, redirects, body_bytes_max, .. } = written;
        let target = Target::parse(&url).map_err(|error| self.refuse(None, error.into()))?;
        if body.len() > REQUEST_BYTES_MAX {
            return Err(
                self.refuse(None, UnsentRequest::invalid("the body of the request is longer than 8 MiB"))
            );
        }
        let limits = GuestLimits { body_bytes_max: body_bytes_max.min(BODY_BYTES_MAX).into(), total: time };
        let mut request =
            GuestRequest { method, target, headers, body: body.into(), limits, public_only: false };
        let mut planned = self.admit(&mut request, &injections).await?;
        for _ in 0..redirects.min(REDIRECTS_MAX) {
            // A redirect in answer to a request with secrets is returned to the guest, which may
            // request the new URL itself.
            if !planned.is_empty() {
                break;
            }
            let (reply, _) = self.exchange(&request, Vec::new()).await?;
            let next = redirect::next(&request, &reply);
            let Some(mut next) = next.map_err(|error| self.refuse(host_of(&request), error.into()))? else {
                return Ok(Reached { request, reply, sent: Vec::new() });
            };
            planned = self.admit(&mut next, &[]).await?;
            if !planned.is_empty() {
                // The redirecting host chose the path, so a request to it must not carry a secret:
                // the redirect itself is returned.
                return Ok(Reached { request, reply, sent: Vec::new() });
            }
            request = next;
        }
        let (reply, sent) = self.exchange(&request, planned).await?;
        Ok(Reached { request, reply, sent })
    }

    /// Checks that a request may be sent. Returns the secrets to send with it.
    async fn admit(
        &self,
        request: &mut GuestRequest,
        injections: &[cofferdam_runtime::wire::Injection],
    ) -> Result<Vec<Planned>, HttpError> {
        let planned = self.decide(request, injections).await;
        planned.map_err(|refused| self.refuse(host_of(request), refused))
    }

    async fn decide(
        &self,
        request: &mut GuestRequest,
        injections: &[cofferdam_runtime::wire::Injection],
    ) -> Result<Vec<Planned>, UnsentRequest> {
        let (host, access) = self.host(&request.target)?;
        let host = &host.clone();
        request.public_only = access == HostAccess::Public;
        let plan = plan::plan(self.grant, host, access, request, injections)?;
        let mut planned = plan.secrets;
        if plan.is_silent {
            planned = self.unplaced(host).await?;
        }
        for Planned { secret, .. } in &planned {
            if self.door.reflections.is_suspended(&self.used(secret), Instant::now()) {
                let log = "the secret is suspended for this plugin: hosts sent it back too often".to_owned();
                return Err(UnsentRequest::unavailable(RequestRefusal::Suspended, Some(secret.clone()), log));
            }
        }
        let slots: Vec<(&SecretPlacement, &SecretName)> =
            planned.iter().map(|planned| (&planned.slot, &planned.secret)).collect();
        self.door.egress.check(request, &slots)?;
        Ok(planned)
    }

    /// The host of `target`, if it is granted. An IP address never is.
    fn host<'t>(&self, target: &'t Target) -> Result<(&'t HostName, HostAccess), UnsentRequest> {
        let Some(host) = target.host_name() else {
            let log = "hosts are granted by name, and this is an address".to_owned();
            return Err(UnsentRequest::denied(RequestRefusal::HostNotGranted, None, log));
        };
        match self.grant.hosts.access(host) {
            Some(access) => Ok((host, access)),
            None => {
                let log = format!("the host is not granted; to allow it: {}", self.grant.line_for_host(host));
                Err(UnsentRequest::denied(RequestRefusal::HostNotGranted, None, log))
            }
        }
    }

    /// The one secret without a configured place that is bound to this host.
    async fn unplaced(&self, host: &HostName) -> Result<Vec<Planned>, UnsentRequest> {
        let names: Vec<SecretName> = self.grant.unplaced_secrets().cloned().collect();
        let Some(first) = names.first().cloned() else { return Ok(Vec::new()) };
        let found = self.door.vault.releasable(self.grant, names, host.clone()).await;
        plan::unplaced(found.map_err(|error| UnsentRequest::not_released(&first, &error))?, host)
    }

    /// The index of the first secret that the vault would not release to this host.
    async fn unreleasable(&self, host: &HostName, planned: &[Planned]) -> Result<Option<usize>, HttpError> {
        let names: Vec<SecretName> = planned.iter().map(|planned| planned.secret.clone()).collect();
        let Some(first) = names.first().cloned() else { return Ok(None) };
        let found = self.door.vault.releasable(self.grant, names, host.clone()).await;
        let found =
            found.map_err(|error| self.refuse(Some(host), UnsentRequest::not_released(&first, &error)))?;
        Ok(planned.iter().position(|planned| !found.contains(&planned.secret)))
    }

    /// Releases the planned secrets and sends the request.
    async fn exchange(
        &self,
        request: &GuestRequest,
        mut planned: Vec<Planned>,
    ) -> Result<(GuestReply, Vec<Sent>), HttpError> {
        let host = host_of(request);
        // A secret that could not be searched for in the plugin's outputs must not be sent.
        if !planned.is_empty() && self.door.released.is_full(self.plugin) {
            return Err(HttpError::Exhausted);
        }
        if let Some(host) = host.filter(|_| !planned.is_empty()) {
            match self.unreleasable(host, &planned).await? {
                // The vault will refuse this secret. It is moved to the front, so that its refusal
                // ends the request before any other secret is released, and no connection is
                // opened, so that the host does not notice the request.
                Some(place) => planned.swap(0, place),
                // Connect before releasing: nothing is released for a name that does not resolve,
                // for an address that is not allowed, or for a server that cannot prove its name.
                None => {
                    let reached = self.door.egress.connect(request).await;
                    reached.map_err(|error| self.refuse(Some(host), error.into()))?;
                }
            }
        }
        let mut injections = Vec::with_capacity(planned.len());
        let mut sent = Vec::with_capacity(planned.len());
        for Planned { secret, slot } in planned {
            let Some(host) = host else { return Err(HttpError::Denied) };
            let released = self.door.vault.release(self.grant, &secret, host, &self.purpose()).await;
            let release = released
                .map_err(|error| self.refuse(Some(host), UnsentRequest::not_released(&secret, &error)))?;
            sent.push(Sent { secret, fingerprint: release.fingerprint() });
            injections.push(Injection { slot, secret: release });
        }
        let reply = self.door.egress.fetch(request.clone(), injections).await.map_err(|error| {
            self.refuse(host, UnsentRequest::from(error).about(sent.iter().map(|sent: &Sent| &sent.secret)))
        })?;
        self.door.released.note(self.plugin, &sent, &reply.values);
        Ok((reply, sent))
    }

    /// The whole answer, if it arrives before the deadline.
    async fn read(
        &self,
        request: &GuestRequest,
        mut reply: GuestReply,
        sent: &[Sent],
        deadline: tokio::time::Instant,
    ) -> Result<HttpResponse, HttpError> {
        // Even if the answer is late, a part of it was read, and secrets found in that part are
        // noted.
        let body = timeout_at(deadline, reply.body.collect()).await;
        let body = body.unwrap_or(Err(cofferdam_egress::Error::TimedOut));
        self.note_reflections(request, &reply.body.reflected(), sent)?;
        let body = body.map_err(|error| self.refuse(host_of(request), error.into()))?;
        Ok(HttpResponse {
            status: reply.status.as_u16(),
            url: request.target.as_str().to_owned(),
            headers: reply.headers,
            body: body.into(),
        })
    }

    /// Audits and counts which of the secrets that were `sent` came back.
    ///
    /// # Errors
    /// `denied`, where the grant blocks answers that contain a secret.
    fn note_reflections(
        &self,
        request: &GuestRequest,
        reflected: &[SecretName],
        sent: &[Sent],
    ) -> Result<(), HttpError> {
        let blocked = self.grant.on_reflection == OnReflection::Block && !reflected.is_empty();
        for sent in sent.iter().filter(|sent| reflected.contains(&sent.secret)) {
            self.note_reflection(host_of(request), sent, blocked);
        }
        if blocked { Err(HttpError::Denied) } else { Ok(()) }
    }

    fn note_reflection(&self, host: Option<&HostName>, sent: &Sent, blocked: bool) {
        let Some(host) = host else { return };
        let suspended = self.door.reflections.count(self.used(&sent.secret), Instant::now());
        let Sent { secret, fingerprint } = sent;
        tracing::warn!(plugin = self.plugin, %host, secret.name = %secret, blocked, suspended, "a host sent a secret back");
        let reflection = Reflection {
            host: host.clone(),
            name: secret.clone(),
            fingerprint: *fingerprint,
            blocked,
            suspended,
            purpose: self.purpose(),
        };
        let CallerVault { store, actor, .. } = &self.door.vault;
        if store.note_reflection(*actor, reflection).is_err() {
            tracing::error!("an audit record of a reflection was lost");
        }
    }

    /// Logs why a request was not sent, writes the audit record and returns the error for the
    /// guest. Failures of the network are only logged: at most once a minute at level `warn`, else
    /// at level `debug`.
    fn refuse(&self, host: Option<&HostName>, refused: UnsentRequest) -> HttpError {
        let UnsentRequest { error, audit, log } = refused;
        let is_of_the_network =
            audit.is_none() && !matches!(error, HttpError::SecretUnavailable | HttpError::Invalid);
        if is_of_the_network {
            let (plugin, host) = (self.plugin, host.map(HostName::as_str).unwrap_or_default());
            let is_apart = matches!(error, HttpError::Unreachable | HttpError::Untrusted);
            if is_apart && self.door.unreached.is_due(&format!("{plugin} {host}"), Instant::now()) {
                tracing::warn!(plugin, host, "a plugin's request was not sent: {log}");
            } else {
                tracing::debug!(plugin, host, "request failed: {log}");
            }
            return error;
        }
        if self.door.refusals.fetch_add(1, Ordering::Relaxed) >= REFUSALS_MAX {
            return error;
        }
        tracing::warn!(
            plugin = self.plugin,
            host = host.map(tracing::field::display),
            "request refused: {log}"
        );
        if let Some((reason, name)) = audit {
            let refused = RefusedRequest { host: host.cloned(), name, reason, purpose: self.purpose() };
            let CallerVault { store, actor, .. } = &self.door.vault;
            if store.note_refused_request(*actor, refused).is_err() {
                tracing::error!("an audit record of a refused request was lost");
            }
        }
        error
    }

    fn used(&self, secret: &SecretName) -> Use {
        Use { scope: self.door.scope, plugin: self.plugin.to_owned(), secret: secret.clone() }
    }

    fn purpose(&self) -> Purpose {
        Purpose { used_by: format!("plugin {}", self.plugin), request_id: self.door.request_id.to_string() }
    }
}

fn host_of(request: &GuestRequest) -> Option<&HostName> {
    request.target.host_name()
}
