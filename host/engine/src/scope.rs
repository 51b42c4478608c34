//! What a request is made with: the engine, the caller, the client's wishes and the ids. It never
//! changes while the request runs.

use crate::Engine;
use crate::RespondOptions;
use crate::caller::Caller;
use crate::credential::Credentials;
use crate::engine::EngineParts;
use crate::request::ProviderPreferences;
use crate::timeline::Timeline;
use crate::trace::{RoutingTrace, params};
use cofferdam_runtime::{CallContext, Owner};
use std::sync::Arc;

/// What all steps of one request share.
pub(crate) struct RequestScope {
    pub(crate) engine: Arc<Engine>,
    pub(crate) caller: Caller,
    pub(crate) options: RespondOptions,
    pub(crate) context: CallContext,
    /// Where the steps of the request are noted.
    pub(crate) timeline: Timeline,
}

impl RequestScope {
    /// For a request that the client knows by `id`.
    pub(crate) fn new(
        engine: Arc<Engine>,
        caller: Caller,
        options: RespondOptions,
        id: &str,
        timeline: Timeline,
    ) -> Arc<Self> {
        let context = CallContext {
            request_id: Arc::from(id),
            workspace: caller.workspace.id.to_string(),
            owner: Some(Owner::new(caller.key.as_str())),
            now_ms: engine.parts.clock.now_ms(),
            inputs: None,
        };
        Arc::new(Self { engine, caller, options, context, timeline })
    }

    pub(crate) fn parts(&self) -> &EngineParts {
        &self.engine.parts
    }

    /// The credentials that the request may use.
    pub(crate) fn credentials(&self) -> Credentials<'_> {
        let Self { engine, caller, context, timeline, .. } = self;
        let releases = &engine.parts.memory.meters.releases;
        Credentials {
            store: &engine.parts.store,
            caller,
            request_id: &context.request_id,
            releases,
            timeline,
        }
    }

    /// The routing trace of the request, whose first model is `requested`. `router` is the plugin
    /// entry of the model router, if the request names one.
    pub(crate) fn trace<'a>(
        &self,
        requested: &str,
        provider: &ProviderPreferences,
        router: impl FnOnce() -> Option<&'a [u8]>,
    ) -> RoutingTrace {
        let mut trace = RoutingTrace::new(requested, self.parts().region.as_deref());
        if self.options.metadata_field.is_some() {
            trace.params = params(&provider.json, router());
            trace.preferences = provider.clone();
        }
        trace
    }
}
