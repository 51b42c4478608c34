//! Selects and releases the credential of an attempt. A secret of the vault is released for one
//! attempt, after the guest has written the request and before a connection is taken or made, and
//! only to the host of the provider's origin.

use crate::authentication::{Authentication, OperatorKey, UsedCredential};
use crate::caller::Caller;
use crate::catalog::Provider;
use crate::failure::{AttemptFailure, Cause};
use crate::memory::meters::{ReleaseCounts, ReleasedFor};
use crate::refusal::SATURATED;
use crate::timeline::{FactName, StepMark, StepType, Timeline};
use cofferdam_egress::{Credential, CredentialError};
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{Actor, BoundSecret, Purpose, ReleaseError, ReleaseRequest, ReleaseScope, Store};

/// The credentials that one request may use.
#[derive(Clone, Copy)]
pub(crate) struct Credentials<'a> {
    pub(crate) store: &'a Store,
    pub(crate) caller: &'a Caller,
    pub(crate) request_id: &'a str,
    pub(crate) releases: &'a ReleaseCounts,
    /// Where releases are noted.
    pub(crate) timeline: &'a Timeline,
}

impl Credentials<'_> {
    /// Whether the caller's own credential would be used at `provider`. False if the vault cannot
    /// be read; then the attempt reports the error.
    pub(crate) async fn has_byok(&self, provider: &Provider) -> bool {
        let Some(secret) = provider.authentication.as_ref().and_then(|it| it.byok.as_ref()) else {
            return false;
        };
        let secrets = vec![(self.caller.release_scope(), secret.clone())];
        self.store.releasable(secrets).await.is_ok_and(|found| !found.is_empty())
    }

    /// Opens a compacted conversation that was sealed for the caller's workspace or intern.
    pub(crate) fn open_conversation(&self, sealed: &str) -> Option<String> {
        self.store.open_conversation(self.caller.workspace.id, self.caller.intern, sealed)
    }

    /// The credential for one attempt at `provider`; `None` where none is configured. With
    /// `callers_alone` the request was routed on the assumption that the caller pays the provider:
    /// if the caller's credential is gone by now, the operator's is not used instead.
    pub(crate) async fn release(
        &self,
        provider: &Provider,
        callers_alone: bool,
    ) -> Result<Option<UsedCredential>, AttemptFailure> {
        let Some(Authentication { placement, own, byok }) = &provider.authentication else {
            return if callers_alone { Err(withdrawn(provider)) } else { Ok(None) };
        };
        let failed = |error| failed(provider, error);
        // A problem with one workspace's vault does not count against the endpoint.
        let callers = |error| match failed(error) {
            failure if failure.cause == Cause::NoCredential => {
                AttemptFailure { cause: Cause::Plugin, ..failure }
            }
            failure => failure,
        };
        if let Some(secret) = byok {
            let request = self.request(provider, self.caller.release_scope(), secret);
            let step = self.timeline.begin(StepType::Release, &release_name(secret), &[]);
            let released = self.store.release_if_bound(request).await;
            if !matches!(released, Ok(None)) {
                self.releases.decided(ReleasedFor::Provider, &released);
            }
            self.ended(
                step,
                provider,
                match &released {
                    Ok(Some(_)) => "ok",
                    Ok(None) => "absent",
                    Err(_) => "refused",
                },
            );
            if let Some(release) = released.map_err(callers)? {
                let credential = Credential::new(placement, release.expose());
                let credential = credential.map_err(|error| unfit_byok(provider, secret, error))?;
                return Ok(Some(UsedCredential { credential, is_byok: true }));
            }
        }
        if callers_alone {
            return Err(withdrawn(provider));
        }
        let credential = match own {
            None => return Ok(None),
            Some(OperatorKey::Fixed(credential)) => credential.clone(),
            Some(OperatorKey::Vault(secret)) => {
                let request = self.request(provider, ReleaseScope::Operator, secret);
                let step = self.timeline.begin(StepType::Release, &release_name(secret), &[]);
                let released = self.store.release(request).await;
                self.releases.decided(ReleasedFor::Provider, &released);
                self.ended(step, provider, if released.is_ok() { "ok" } else { "refused" });
                let release = released.map_err(failed)?;
                Credential::new(placement, release.expose()).map_err(|error| {
                    tracing::error!(provider = %provider.name, secret.name = %secret.name, %error, "an operator's secret cannot be sent");
                    unavailable()
                })?
            }
        };
        Ok(Some(UsedCredential { credential, is_byok: false }))
    }

    fn ended(&self, step: StepMark, provider: &Provider, outcome: &'static str) {
        let facts = [FactName::Purpose.word("provider"), FactName::Provider.name(&*provider.name)];
        self.timeline.end(step, outcome, &facts);
    }

    fn request(&self, provider: &Provider, scope: ReleaseScope, secret: &BoundSecret) -> ReleaseRequest {
        let purpose = Purpose {
            used_by: format!("provider {}", provider.name),
            request_id: self.request_id.to_owned(),
        };
        ReleaseRequest { actor: Actor::Key(self.caller.key), scope, secret: secret.clone(), purpose }
    }
}

/// The name of a release: of the secret, and of the host that it is bound to.
fn release_name(secret: &BoundSecret) -> [&str; 3] {
    [secret.name.as_str(), ">", secret.host.as_str()]
}

/// The failure of an attempt whose credential was not released. The cause is logged for the
/// operator.
fn failed(provider: &Provider, error: ReleaseError) -> AttemptFailure {
    match error {
        ReleaseError::Busy => {
            AttemptFailure::plain(Cause::Saturated, ErrorKind::ProviderOverloaded, SATURATED)
        }
        ReleaseError::Store(error) => {
            tracing::error!(provider = %provider.name, %error, "the store could not be asked for a credential");
            AttemptFailure::plain(Cause::Store, ErrorKind::ProviderOverloaded, SATURATED)
        }
        error => {
            let own = provider.authentication.as_ref().and_then(|it| it.own.as_ref());
            let hint = match own {
                Some(OperatorKey::Vault(BoundSecret { name, host }))
                    if matches!(error, ReleaseError::Unavailable) =>
                {
                    Some(format!("store it with `cofferdam secret put {name} --operator --host {host}`"))
                }
                _ => None,
            };
            tracing::error!(provider = %provider.name, %error, hint, "no credential for a provider");
            unavailable()
        }
    }
}

fn unavailable() -> AttemptFailure {
    AttemptFailure::of(Cause::NoCredential)
}

/// When the client repeats the request, it is routed by what the vault contains then.
fn withdrawn(provider: &Provider) -> AttemptFailure {
    let message = format!(
        "Provider {}: your own key for it was taken away or bound to another host while the request ran. Send the \
         request again.",
        provider.name
    );
    AttemptFailure::plain(Cause::Withdrawn, ErrorKind::ProviderUnavailable, &message)
}

/// Only the caller can correct its secret. So the message says what is wrong with it, and no other
/// endpoint is tried.
fn unfit_byok(provider: &Provider, secret: &BoundSecret, error: CredentialError) -> AttemptFailure {
    let message = format!("Provider {}: the secret {} cannot be used: {error}", provider.name, secret.name);
    AttemptFailure::plain(Cause::UnfitCredential, ErrorKind::InvalidRequest, &message)
}
