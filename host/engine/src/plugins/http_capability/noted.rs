//! The HTTP capability as one call of a plugin gets it: its requests are noted in the recorder of
//! requests, below the step of the call.

use super::HttpCapability;
use super::stream::exchange;
use super::visit::{Reached, Visit};
use crate::timeline::{Fact, FactName, StepMark, StepType, Timeline};
use cofferdam_egress::CheckedRequest;
use cofferdam_runtime::Grant;
use cofferdam_runtime::services::{HttpAccess, HttpExchange, Opening, SentSearch};
use cofferdam_runtime::wire::{HttpError, HttpRequest, HttpResponse};
use cofferdam_store::HostName;
use std::sync::Arc;
use tokio::time::timeout_at;

/// The methods that have their own name in the recorder.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The HTTP capability for one call of a plugin.
pub(super) struct NotedHttp {
    pub(super) capability: Arc<HttpCapability>,
    /// Where the requests are noted.
    pub(super) timeline: Timeline,
}

impl HttpAccess for NotedHttp {
    fn sent_for(&self, plugin: &str) -> Option<Box<dyn SentSearch>> {
        self.capability.history.released.search(plugin).map(|search| Box::new(search) as Box<dyn SentSearch>)
    }

    fn send<'a>(
        &'a self,
        plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpResponse, HttpError>> {
        Box::pin(async move {
            let Self { capability, timeline } = self;
            let time = capability.time_for(&request)?;
            let deadline = tokio::time::Instant::now() + time;
            let visit = Visit { capability, plugin, grant, timeline };
            let answered = async { visit.read(visit.reach(request, time).await?, deadline).await };
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
            let Self { capability, timeline } = &*self;
            let time = capability.time_for(&request)?;
            let deadline = tokio::time::Instant::now() + time;
            let visit = Visit { capability, plugin, grant, timeline };
            let reached = timeout_at(deadline, visit.reach(request, time)).await;
            let mut reached = reached.map_err(|_elapsed| HttpError::Timeout)??;
            // Secrets in the head are noted now, because the guest may never read the body.
            let reflected = reached.reply.body.reflected();
            visit.end(&reached, "ok", reflected.len());
            visit.note_reflections(&reflected)?;
            Ok(exchange(Arc::clone(capability), plugin, grant, reached, deadline))
        })
    }
}

impl Visit<'_> {
    /// Begins the step of one request. A host that is not granted by its name is not shown, because
    /// a model or a client may have chosen it.
    pub(super) fn begin(&self, checked: &CheckedRequest) -> StepMark {
        let request = checked.request();
        let host = request.target.host_name().map(HostName::as_str);
        let granted = host.filter(|host| self.grant.hosts.iter().any(|granted| granted == *host));
        let host = granted.unwrap_or("*");
        let method = METHODS.iter().find(|method| request.method.eq_ignore_ascii_case(method));
        let facts = [FactName::Plugin.name(self.plugin), FactName::Host.name(host)];
        self.timeline.begin(StepType::Http, &[method.unwrap_or(&"OTHER"), host], &facts)
    }

    /// Ends the step of a request whose answer has arrived, with so many secrets in it.
    pub(super) fn end(&self, reached: &Reached, outcome: &'static str, reflections: usize) {
        let Reached { reply, step, .. } = reached;
        let facts: [Option<Fact<'_>>; 3] = [
            FactName::Status.number(u64::from(reply.status.as_u16())),
            FactName::ConnectUs.micros(reply.connecting),
            FactName::Reflections.number((reflections > 0).then_some(reflections as u64)),
        ];
        self.timeline.end(*step, outcome, &facts);
    }
}

/// The word for an error in the recorder of requests.
pub(super) fn error_word(error: &HttpError) -> &'static str {
    match error {
        HttpError::Denied => "denied",
        HttpError::Invalid => "invalid",
        HttpError::SecretUnavailable => "secret_unavailable",
        HttpError::Unreachable => "unreachable",
        HttpError::Untrusted => "untrusted",
        HttpError::Timeout => "timeout",
        HttpError::TooLarge => "too_large",
        HttpError::Broken => "broken",
        HttpError::Exhausted => "exhausted",
    }
}
