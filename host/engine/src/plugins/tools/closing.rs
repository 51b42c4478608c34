//! What tools do when a request is over: a function that the manifest names (`closing`), such as
//! one that ends the sessions that the tool has opened elsewhere. The request does not wait for it,
//! and its result is ignored.

use super::CALLS_AT_ONCE;
use super::capabilities::RequestCapabilities;
use super::run::Invocation;
use crate::Engine;
use crate::request::ResponsesRequest;
use crate::timeline::Timeline;
use bytes::Bytes;
use cofferdam_protocol::ToolKind;
use cofferdam_runtime::{CallContext, Plugin, Services};
use futures_util::stream::{self, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long all tools of a request together may take for it.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(5);

/// The closing calls of a request's tools. They are made when this is dropped, because a client may
/// leave at any time.
pub(super) struct Closing {
    calls: Vec<LastCall>,
    context: Option<CallContext>,
    /// A permit of these is held while the calls are made. A host that ends waits for all of them.
    running: Arc<Semaphore>,
}

struct LastCall {
    plugin: Arc<Plugin>,
    settings: Bytes,
    services: Services,
}

impl Closing {
    /// The closing calls for the tools of a request.
    pub(super) fn of(
        engine: &Engine,
        request: &ResponsesRequest,
        context: &CallContext,
        capabilities: &RequestCapabilities,
    ) -> Self {
        let last_call = |(name, settings): (&String, &Bytes)| {
            let plugin = engine.tool_plugin(name)?;
            function_of(plugin)?;
            // The request is charged already, so the function cannot ask models. Its record is over,
            // so what it does is not noted.
            let services = Services { ask: None, ..capabilities.services(plugin, &Timeline::default()) };
            Some(LastCall { plugin: Arc::clone(plugin), settings: settings.clone(), services })
        };
        let servers = request.tools.iter().filter_map(|tool| match &tool.kind {
            ToolKind::Server(name) => Some((name, &tool.settings)),
            _ => None,
        });
        let calls: Vec<_> = servers.filter_map(last_call).collect();
        let context = (!calls.is_empty()).then(|| context.clone());
        Self { calls, context, running: Arc::clone(&engine.parts.memory.closing_calls) }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let (Some(context), Ok(runtime)) = (self.context.take(), Handle::try_current()) else { return };
        let calls = std::mem::take(&mut self.calls);
        let Ok(running) = Arc::clone(&self.running).try_acquire_owned() else {
            tracing::warn!(
                count = calls.len(),
                "too many tools are being ended, so closing calls are left out"
            );
            return;
        };
        runtime.spawn(async move {
            let _running = running;
            let calls = stream::iter(calls).map(|call| call.make(&context));
            let ended = calls.buffer_unordered(CALLS_AT_ONCE).for_each(async |()| {});
            if timeout(CLOSING_TIME_MAX, ended).await.is_err() {
                tracing::debug!("a tool took too long to end what it had begun");
            }
        });
    }
}

impl LastCall {
    async fn make(self, context: &CallContext) {
        let Some(function) = function_of(&self.plugin) else { return };
        let invocation =
            Invocation { plugin: &self.plugin, function, arguments: b"{}", settings: &self.settings };
        // The request is over, so the result is ignored.
        drop(invocation.run_unsearched(context, self.services).await);
    }
}

fn function_of(plugin: &Plugin) -> Option<&str> {
    plugin.manifest().tool.as_ref()?.closing.as_deref()
}
