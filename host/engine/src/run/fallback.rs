//! Collects the failed attempts of a request, decides which endpoints may still be tried, and makes
//! the refusal when none is left.

use crate::catalog::Endpoint;
use crate::failure::{AttemptFailure, Cause};
use crate::refusal::{
    PLUGIN_FAILED, PROVIDER_FAILED, Refusal, RefusedBy, STEP_TIMED_OUT, client_message, status_of, words,
};
use crate::trace::RoutingTrace;
use cofferdam_runtime::wire::ErrorKind;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The failures of one request so far.
#[derive(Default)]
pub(crate) struct Failures {
    /// The last failure that is not a rate limit.
    last: Option<FailedAttempt>,
    /// The newest rate limit of each endpoint that has one.
    limited: Vec<FailedAttempt>,
    /// Models that refused the request itself: no other endpoint of them is tried.
    refused_models: Vec<String>,
    /// Whether the head of a successful answer arrived for a request that is not streamed.
    has_begun: bool,
}

/// One failure.
struct FailedAttempt {
    why: AttemptFailure,
    endpoint: Arc<Endpoint>,
    /// Its index among the attempts of the routing trace.
    place: usize,
}

impl Failures {
    /// Whether `endpoint` may still be tried.
    pub(crate) fn allow(&self, endpoint: &Endpoint) -> bool {
        !self.refused_models.contains(&endpoint.candidate.model)
    }

    /// Notes whether a failed attempt got as far as a successful head.
    pub(crate) fn note_head(&mut self, failed: &AttemptFailure, streamed: bool) {
        self.has_begun |= !streamed && failed.status.is_some_and(|status| (200..300).contains(&status));
    }

    /// Records a failure. Breaks when no other endpoint may be tried.
    pub(crate) fn add(
        &mut self,
        endpoint: &Arc<Endpoint>,
        failed: AttemptFailure,
        trace: &mut RoutingTrace,
    ) -> ControlFlow<()> {
        trace.tried(endpoint, failed.status, Some(failed.failure.kind), failed.has_reached());
        trace.is_byok = failed.is_byok;
        tracing::info!(
            provider = %endpoint.provider.name,
            model = %endpoint.candidate.model,
            status = failed.status,
            error_type = failed.failure.kind.as_str(),
            "an attempt failed"
        );
        if matches!(failed.cause, Cause::Request | Cause::CallersCredential | Cause::UnfitCredential) {
            self.refused_models.push(endpoint.candidate.model.clone());
        }
        let over = matches!(failed.cause, Cause::Late { total: true, .. } | Cause::Saturated);
        let place = trace.attempts.len() - 1;
        let limited = failed.cause == Cause::Limited;
        let failed = FailedAttempt { why: failed, endpoint: Arc::clone(endpoint), place };
        if limited {
            self.limited.retain(|known| !Arc::ptr_eq(&known.endpoint, endpoint));
            self.limited.push(failed);
        } else {
            self.last = Some(failed);
        }
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The refusal after every candidate has failed: the last error, or the rate limit if every
    /// failure was one.
    pub(crate) fn refusal(self, trace: &RoutingTrace) -> Refusal {
        // The client gets the `Retry-After` of the rate limit that ends first, or else the last one.
        let wait = |limited: &FailedAttempt| limited.why.failure.retry_after_ms.unwrap_or(u64::MAX);
        let first = || self.limited.into_iter().rev().min_by_key(wait);
        let Some(FailedAttempt { why: mut failed, endpoint, place }) = self.last.or_else(first) else {
            return Refusal::no_endpoints();
        };
        if let Cause::Late { total: true, begun } = &mut failed.cause {
            // An answer of any attempt may have begun, not only that of the last.
            *begun |= self.has_begun;
        }
        let provider = &endpoint.provider.name;
        let mut refusal = refusal_of(&failed, provider);
        let mut metadata =
            json!({ "refused_by": refused_by(failed.cause).as_str(), "provider_name": provider });
        if let Some(members) = metadata.as_object_mut() {
            if let Some(code) = &failed.failure.code {
                members.insert("provider_code".to_owned(), json!(code));
            }
            // A provider's text about the operator's credential, or about its own fault, is not
            // shown to the client.
            let told = failed.cause != Cause::Credential && failed.status != Some(500);
            if let Some(raw) = failed.raw.as_ref().filter(|_| told) {
                members.insert("raw".to_owned(), json!(raw));
            }
        }
        refusal.metadata = Box::new(metadata);
        beside_errors(refusal, trace.previous_errors(place))
    }
}

/// The refusal with the errors of the attempts before it.
pub(super) fn beside_errors(mut refusal: Refusal, previous: Vec<Value>) -> Refusal {
    if let Some(members) = refusal.metadata.as_object_mut().filter(|_| !previous.is_empty()) {
        members.insert("previous_errors".to_owned(), Value::Array(previous));
    }
    refusal
}

/// Which side refused.
fn refused_by(cause: Cause) -> RefusedBy {
    match cause {
        // The provider was not asked, or the host did not wait for the end of its answer.
        Cause::Dialect
        | Cause::Plugin
        | Cause::Saturated
        | Cause::Store
        | Cause::Withdrawn
        | Cause::UnfitCredential
        | Cause::NoCredential
        | Cause::Late { total: true, .. } => RefusedBy::Host,
        Cause::Request
        | Cause::Endpoint
        | Cause::Unreachable
        | Cause::Empty
        | Cause::Credential
        | Cause::CallersCredential
        | Cause::Limited
        | Cause::Late { total: false, .. } => RefusedBy::Provider,
    }
}

fn refusal_of(failed: &AttemptFailure, provider: &str) -> Refusal {
    let failure = &failed.failure;
    let mut refusal = match failed.cause {
        Cause::Saturated | Cause::Store => return Refusal::saturated(),
        Cause::Late { total: true, begun: true } => Refusal::late_answer(),
        Cause::Late { .. } => Refusal::new(504, ErrorKind::Timeout, STEP_TIMED_OUT),
        Cause::Credential => {
            // The operator's credential was refused. The client's own key for this host is fine.
            Refusal::new(502, ErrorKind::ProviderUnavailable, PROVIDER_FAILED)
        }
        Cause::NoCredential => {
            let message =
                format!("This host has no key for provider {provider}; its operator has to store one");
            Refusal::new(503, ErrorKind::ProviderUnavailable, message)
        }
        Cause::CallersCredential => {
            let status = failed.status.filter(|status| matches!(status, 401..=403));
            let words = words(failure).unwrap_or("it gives no reason");
            let message = format!("Provider {provider} did not accept your key: {words}");
            Refusal::new(status.unwrap_or_else(|| status_of(failure.kind)), failure.kind, message)
        }
        Cause::Withdrawn => Refusal::new(503, failure.kind, failure.message.clone()),
        Cause::UnfitCredential => {
            Refusal::new(status_of(failure.kind), failure.kind, failure.message.clone())
        }
        Cause::Limited => Refusal::new(429, ErrorKind::RateLimitExceeded, client_message(failure)),
        Cause::Request => {
            let status = failed.status.filter(|status| matches!(status, 400 | 404 | 413 | 422));
            Refusal::new(
                status.unwrap_or_else(|| status_of(failure.kind)),
                failure.kind,
                client_message(failure),
            )
        }
        Cause::Dialect => {
            let words = words(failure).unwrap_or("This host cannot tell the provider this request");
            Refusal::new(status_of(failure.kind), failure.kind, words)
        }
        Cause::Endpoint | Cause::Unreachable | Cause::Empty | Cause::Plugin => {
            let status = if failed.status == Some(529) { 529 } else { 502 };
            let kind = match failure.kind {
                ErrorKind::ProviderOverloaded => ErrorKind::ProviderOverloaded,
                _ => ErrorKind::ProviderUnavailable,
            };
            let host = failed.cause == Cause::Plugin;
            Refusal::new(status, kind, if host { PLUGIN_FAILED } else { PROVIDER_FAILED })
        }
    };
    if refusal.status == 429 || refusal.status == 529 {
        refusal.retry_after_s = failure.retry_after_ms.map(|ms| ms.div_ceil(1000));
    }
    refusal
}
