//! One HTTP request of one plugin: the steps that the capability names.

use super::bounded::BoundedRequest;
use super::noted::error_word;
use super::redirect::redirected;
use super::released::GROUPS_MAX;
use super::{HttpCapability, REFUSALS_MAX};
use crate::memory::meters::{ReleaseResult, ReleasedFor};
use crate::memory::reflection::SecretUse;
use crate::offload::aside;
use crate::refusal::Refusal;
use crate::timeline::{FactName, StepMark, StepType, Timeline};
use cofferdam_egress::{
    CheckedRequest, GuestReply, GuestRequest, PlacedSecret, SentSecret, SentSecrets, Target,
};
use cofferdam_runtime::memory::MemoryShare;
use cofferdam_runtime::wire::{self, HttpError, HttpRequest, HttpResponse};
use cofferdam_runtime::{Grant, OnReflection, SecretSource, UnsentRequest};
use cofferdam_store::{
    BoundSecret, HostName, Purpose, Reflection, RefusedRequest, Release, ReleaseRequest, ReleaseScope,
    RequestRefusal, SecretName,
};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

/// One HTTP request of one plugin, under the plugin's grant.
pub(super) struct Visit<'a> {
    pub(super) capability: &'a HttpCapability,
    pub(super) plugin: &'a str,
    pub(super) grant: &'a Grant,
    pub(super) timeline: &'a Timeline,
}

/// A request whose answer has arrived as far as its head.
pub(super) struct Reached {
    /// The URL of the request that was sent last, after redirects.
    pub(super) target: Target,
    pub(super) reply: GuestReply,
    /// The step of this request.
    pub(super) step: StepMark,
}

impl Visit<'_> {
    /// Sends the request and follows its redirects, up to the head of the answer.
    pub(super) async fn reach(&self, written: HttpRequest, time: Duration) -> Result<Reached, HttpError> {
        let bounded = BoundedRequest::of(written, time).map_err(|refused| self.refuse(None, refused))?;
        let BoundedRequest { request, injections, redirects } = bounded;
        let mut checked = self.admit(request, &injections).await?;
        for _ in 0..redirects {
            // A redirect in answer to a request with secrets is returned to the guest, which may
            // request the new URL itself.
            if !checked.secrets().is_empty() {
                break;
            }
            let step = self.begin(&checked);
            let reply = self.exchange(&mut checked, step).await?;
            let target = &checked.request().target;
            let next = redirected(checked.request(), reply.status.as_u16(), &reply.headers);
            let Some(next) = next.map_err(|error| self.refuse(target.host_name(), error.into()))? else {
                return Ok(Reached { target: target.clone(), reply, step });
            };
            let status = FactName::Status.number(u64::from(reply.status.as_u16()));
            self.timeline.end(step, "ok", &[status, FactName::ConnectUs.micros(reply.connecting)]);
            let next = self.admit(next, &[]).await?;
            if !next.secrets().is_empty() {
                // The redirecting host chose the path, so a request to it must not carry a secret:
                // the redirect itself is returned.
                return Ok(Reached { target: target.clone(), reply, step });
            }
            checked = next;
        }
        let step = self.begin(&checked);
        let reply = self.exchange(&mut checked, step).await?;
        Ok(Reached { target: checked.request().target.clone(), reply, step })
    }

    /// Checks that a request may be sent, and with which secrets.
    async fn admit(
        &self,
        request: GuestRequest,
        injections: &[wire::Injection],
    ) -> Result<CheckedRequest, HttpError> {
        let host = request.target.host_name().cloned();
        let checked = self.decide(request, injections).await;
        checked.map_err(|refused| self.refuse(host.as_ref(), refused))
    }

    async fn decide(
        &self,
        mut request: GuestRequest,
        injections: &[wire::Injection],
    ) -> Result<CheckedRequest, UnsentRequest> {
        self.search_request(&request).await?;
        let mut plan = self.grant.plan(&request, injections)?;
        if let Some(host) = request.target.host_name()
            && !plan.unplaced.is_empty()
        {
            let bound = self.releasable(host, std::mem::take(&mut plan.unplaced)).await?;
            plan.place(bound, host)?;
        }
        for PlacedSecret { secret, .. } in &plan.secrets {
            if self.capability.reflections.is_suspended(&self.used(secret), Instant::now()) {
                let log = "the secret is suspended for this plugin: hosts sent it back too often".to_owned();
                return Err(UnsentRequest::unavailable(RequestRefusal::Suspended, Some(secret.clone()), log));
            }
        }
        request.public_only = plan.public_only;
        Ok(self.capability.egress.check(request, plan.secrets)?)
    }

    /// Searches what a plugin wrote for secrets that were sent for it: a plugin may have decoded an answer with one.
    async fn search_request(&self, request: &GuestRequest) -> Result<(), UnsentRequest> {
        let Some(mut search) = self.capability.history.released.search(self.plugin) else { return Ok(()) };
        let request = request.clone();
        let searched = aside(request.body.len(), move || {
            search.request(request);
            search
        });
        let failed = |_: Refusal| UnsentRequest::invalid("the request could not be searched for secrets");
        let search = searched.await.map_err(failed)?;
        let Some(first) = search.found().first() else { return Ok(()) };
        for sent in search.found() {
            self.note_reflection(sent, true);
        }
        Err(UnsentRequest {
            error: HttpError::Denied,
            audit: Some((RequestRefusal::Rule, Some(first.name.clone()))),
            log: "the request, or the redirect that leads to it, has a secret that a host sent back"
                .to_owned(),
        })
    }

    /// Those of the names that the vault would release to this host.
    async fn releasable(
        &self,
        host: &HostName,
        names: Vec<SecretName>,
    ) -> Result<Vec<SecretName>, UnsentRequest> {
        let Some(first) = names.first().cloned() else { return Ok(names) };
        let secrets = names.into_iter().map(|name| self.bound(&name, host)).collect();
        let found = self.capability.store.releasable(secrets).await;
        let found = found.map_err(|error| UnsentRequest::not_released(&first, &error.into()))?;
        Ok(found.into_iter().map(|secret| secret.name).collect())
    }

    /// Releases the secrets and sends the request.
    async fn exchange(&self, checked: &mut CheckedRequest, step: StepMark) -> Result<GuestReply, HttpError> {
        let answered = self.exchange_below(checked, &self.timeline.under(step)).await;
        if let Err(error) = &answered {
            self.timeline.end(step, error_word(error), &[]);
        }
        answered
    }

    async fn exchange_below(
        &self,
        checked: &mut CheckedRequest,
        timeline: &Timeline,
    ) -> Result<GuestReply, HttpError> {
        let host = checked.request().target.host_name().cloned();
        let (releases, connecting) = match &host {
            Some(host) if !checked.secrets().is_empty() => self.release(checked, host, timeline).await?,
            _ => (Vec::new(), None),
        };
        let sent = SentSecrets::new(releases);
        // Before the request is sent: a server may send the secrets back in another answer, whatever becomes of this
        // one.
        if !self.capability.history.released.take(self.plugin, &sent) {
            return Err(self.refuse(host.as_ref(), too_many_groups()));
        }
        let mut reply = self.capability.egress.fetch(checked, sent).await.map_err(|error| {
            let names = checked.secrets().iter().map(|placed| &placed.secret);
            self.refuse(host.as_ref(), UnsentRequest::from(error).about(names))
        })?;
        reply.connecting = reply.connecting.or(connecting);
        Ok(reply)
    }

    /// Releases the secrets of a request, once a connection to its host is made. Returns also how
    /// long making the connection took, if there was none.
    async fn release(
        &self,
        checked: &mut CheckedRequest,
        host: &HostName,
        timeline: &Timeline,
    ) -> Result<(Vec<Release>, Option<Duration>), HttpError> {
        if !self.capability.history.released.may_take(self.plugin, checked.secrets()) {
            return Err(self.refuse(Some(host), too_many_groups()));
        }
        let names = checked.secrets().iter().map(|placed| placed.secret.clone()).collect();
        let releasable =
            self.releasable(host, names).await.map_err(|refused| self.refuse(Some(host), refused))?;
        let connecting =
            match checked.secrets().iter().position(|placed| !releasable.contains(&placed.secret)) {
                // The vault will refuse this secret. It is moved to the front, so that its refusal ends
                // the request before any other secret is released, and no connection is opened, so that
                // the host does not notice the request.
                Some(index) => {
                    checked.move_to_front(index);
                    None
                }
                // Connect before releasing: nothing is released for a name that does not resolve, for
                // an address that is not allowed, or for a server that cannot prove its name.
                None => {
                    let connected = self.capability.egress.connect(checked).await;
                    connected.map_err(|error| self.refuse(Some(host), error.into()))?
                }
            };
        let mut releases = Vec::with_capacity(checked.secrets().len());
        for PlacedSecret { secret, .. } in checked.secrets() {
            let (scope, bound) = self.bound(secret, host);
            let (actor, purpose) = (self.capability.actor, self.purpose());
            let request = ReleaseRequest { actor, scope, secret: bound, purpose };
            let facts = [FactName::Purpose.word("plugin"), FactName::Plugin.name(self.plugin)];
            let name = [secret.as_str(), ">", host.as_str()];
            let step = timeline.begin(StepType::Release, &name, &facts);
            let released = self.capability.store.release_recorded(request).await;
            self.capability.releases.decided(ReleasedFor::Tool, &released);
            let audit = released.as_ref().ok().and_then(Release::audit);
            let outcome = if released.is_ok() { "ok" } else { "refused" };
            timeline.end(step, outcome, &[FactName::AuditSeq.number(audit)]);
            releases.push(
                released
                    .map_err(|error| self.refuse(Some(host), UnsentRequest::not_released(secret, &error)))?,
            );
        }
        Ok((releases, connecting))
    }

    /// The whole answer, if it arrives before the deadline.
    pub(super) async fn read(
        &self,
        mut reached: Reached,
        deadline: tokio::time::Instant,
    ) -> Result<HttpResponse, HttpError> {
        // Even if the answer is late, a part of it was read, and secrets found in that part are
        // noted.
        let mut memory = MemoryShare::of_answer();
        let cover = |total: usize| memory.cover(total).map_err(|_| self.no_memory());
        let body = timeout_at(deadline, reached.reply.body.collect(cover)).await;
        let body = body.unwrap_or_else(|_| Err(cofferdam_egress::Error::TimedOut.into()));
        let reflected = reached.reply.body.reflected();
        self.end(&reached, if body.is_ok() { "ok" } else { "broken" }, reflected.len());
        self.note_reflections(&reflected)?;
        let Reached { target, reply, .. } = reached;
        let body = body.map_err(|unsent| self.refuse(target.host_name(), unsent))?;
        Ok(HttpResponse {
            status: reply.status.as_u16(),
            url: target.as_str().to_owned(),
            headers: reply.headers,
            body: body.into(),
        })
    }

    /// The answer is longer than there is memory for now.
    pub(super) fn no_memory(&self) -> UnsentRequest {
        let log = "long answers take all the memory that they may have, or memory is short";
        if self.capability.unreached.is_due(&format!("{} memory", self.plugin), Instant::now()) {
            tracing::warn!(plugin = self.plugin, "an answer for a plugin was not read: {log}");
        }
        UnsentRequest { error: HttpError::TooLarge, audit: None, log: log.to_owned() }
    }

    /// Audits and counts secrets that came back.
    ///
    /// # Errors
    /// `denied`, where the grant blocks answers that contain a secret.
    pub(super) fn note_reflections(&self, reflected: &[SentSecret]) -> Result<(), HttpError> {
        let blocked = self.grant.on_reflection == OnReflection::Block && !reflected.is_empty();
        for sent in reflected {
            self.note_reflection(sent, blocked);
        }
        if blocked { Err(HttpError::Denied) } else { Ok(()) }
    }

    pub(super) fn note_reflection(&self, sent: &SentSecret, blocked: bool) {
        let SentSecret { name, host, fingerprint } = sent;
        let suspended = self.capability.reflections.count(self.used(name), Instant::now());
        self.capability.releases.count(ReleasedFor::Tool, ReleaseResult::Reflected);
        tracing::warn!(plugin = self.plugin, %host, secret.name = %name, blocked, suspended, "a host sent a secret back");
        let reflection = Reflection {
            host: host.clone(),
            name: name.clone(),
            fingerprint: *fingerprint,
            blocked,
            suspended,
            purpose: self.purpose(),
        };
        if self.capability.store.note_reflection(self.capability.actor, reflection).is_err() {
            tracing::error!("an audit record of a reflection was lost");
        }
    }

    /// Logs why a request was not sent, writes the audit record and returns the error for the
    /// guest. Failures of the network are only logged: at most once a minute at level `warn`, else
    /// at level `debug`.
    pub(super) fn refuse(&self, host: Option<&HostName>, refused: UnsentRequest) -> HttpError {
        let UnsentRequest { error, audit, log } = refused;
        let is_of_the_network =
            audit.is_none() && !matches!(error, HttpError::SecretUnavailable | HttpError::Invalid);
        if is_of_the_network {
            let (plugin, host) = (self.plugin, host.map(HostName::as_str).unwrap_or_default());
            let is_apart = matches!(error, HttpError::Unreachable | HttpError::Untrusted);
            if is_apart && self.capability.unreached.is_due(&format!("{plugin} {host}"), Instant::now()) {
                tracing::warn!(plugin, host, "a plugin's request was not sent: {log}");
            } else {
                tracing::debug!(plugin, host, "request failed: {log}");
            }
            return error;
        }
        if self.capability.history.refusals.fetch_add(1, Ordering::Relaxed) >= REFUSALS_MAX {
            return error;
        }
        tracing::warn!(
            plugin = self.plugin,
            host = host.map(tracing::field::display),
            "request refused: {log}"
        );
        if let Some((reason, name)) = audit {
            let refused = RefusedRequest { host: host.cloned(), name, reason, purpose: self.purpose() };
            if self.capability.store.note_refused_request(self.capability.actor, refused).is_err() {
                tracing::error!("an audit record of a refused request was lost");
            }
        }
        error
    }

    /// A secret for a host, and the scope that the plugin gets it from.
    fn bound(&self, name: &SecretName, host: &HostName) -> (ReleaseScope, BoundSecret) {
        let scope = match self.grant.source(name) {
            SecretSource::Caller => self.capability.release_scope,
            SecretSource::Workspace => ReleaseScope::Workspace(self.capability.workspace),
            SecretSource::Operator => ReleaseScope::Operator,
        };
        (scope, BoundSecret { name: name.clone(), host: host.clone() })
    }

    fn used(&self, secret: &SecretName) -> SecretUse {
        SecretUse { scope: self.capability.scope, plugin: self.plugin.to_owned(), secret: secret.clone() }
    }

    fn purpose(&self) -> Purpose {
        Purpose {
            used_by: format!("plugin {}", self.plugin),
            request_id: self.capability.request_id.to_string(),
        }
    }
}

/// A secret that could not be searched for in the plugin's outputs is not sent.
fn too_many_groups() -> UnsentRequest {
    let log = format!("more than {GROUPS_MAX} different groups of secrets in one request");
    UnsentRequest { error: HttpError::Exhausted, audit: Some((RequestRefusal::Rule, None)), log }
}
