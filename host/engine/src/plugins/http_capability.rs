//! The HTTP capability: plugins use it to reach other hosts, with secrets of the caller or of the
//! operator.
//!
//! Each request passes these steps in this order:
//!
//! 1. Its URL is parsed into a checked target.
//! 2. It must not have the value of a secret that was sent for the plugin before.
//! 3. The host must be covered by the grant.
//! 4. The grant and the guest's request become a plan: which secrets are sent, and where each is
//!    placed.
//! 5. No secret of the plan may be suspended for the plugin.
//! 6. Everything that can be checked without a value is checked.
//! 7. If a secret is sent, a connection is opened first. It shows that the address is allowed and
//!    that the server's certificate is valid for the host.
//! 8. The secrets are released, each after its audit record is on the disk. They are noted for the
//!    search of what the plugin gives on, and the request is sent at once.
//! 9. The values of the secrets are removed from the answer.
//!
//! A redirect is a new request that passes all of these steps.

mod bounded;
mod noted;
mod redirect;
mod released;
mod stream;
mod visit;

use crate::Engine;
use crate::caller::Caller;
use crate::log_throttle::LogThrottle;
use crate::memory::meters::ReleaseCounts;
use crate::memory::reflection::Reflections;
use crate::timeline::Timeline;
pub use bounded::BoundedRequest;
use cofferdam_egress::Egress;
use cofferdam_runtime::services::HttpAccess;
use cofferdam_runtime::wire::{HttpError, HttpRequest};
use cofferdam_runtime::{OnReflection, Plugin};
use cofferdam_store::{Actor, ReleaseScope, Store, VaultId, WorkspaceId};
use noted::NotedHttp;
pub use redirect::redirected;
use released::Released;
pub(crate) use released::{CredentialSearch, ReleasedSearch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use visit::Visit;

/// Refused requests that are logged and audited for one client's request. After these every further
/// request fails with `Exhausted`, so that a plugin cannot fill the disk or the log.
const REFUSALS_MAX: u32 = 16;

/// The HTTP capability for the plugins of one request.
pub(crate) struct HttpCapability {
    egress: Egress,
    store: Store,
    actor: Actor,
    workspace: WorkspaceId,
    /// Where the caller's own secrets are released from.
    release_scope: ReleaseScope,
    /// Whose reflections are counted together.
    scope: VaultId,
    reflections: Arc<Reflections>,
    unreached: Arc<LogThrottle>,
    releases: Arc<ReleaseCounts>,
    request_id: Arc<str>,
    time_max: Duration,
    history: Arc<HttpHistory>,
}

/// What the plugins of one client's request were refused and sent.
#[derive(Default)]
pub(crate) struct HttpHistory {
    refusals: AtomicU32,
    released: Released,
}

impl HttpCapability {
    /// For the plugins of one request of `caller`, which have this history.
    pub(crate) fn new(
        engine: &Engine,
        caller: &Caller,
        request_id: &Arc<str>,
        history: &Arc<HttpHistory>,
    ) -> Arc<Self> {
        Arc::new(Self {
            egress: engine.parts.egress.clone(),
            store: engine.parts.store.clone(),
            actor: Actor::Key(caller.key),
            workspace: caller.workspace.id,
            release_scope: caller.release_scope(),
            scope: caller.intern.map_or(VaultId::Workspace(caller.workspace.id), VaultId::Intern),
            reflections: Arc::clone(&engine.parts.memory.reflections),
            unreached: Arc::clone(&engine.parts.memory.unreached),
            releases: Arc::clone(&engine.parts.memory.meters.releases),
            request_id: Arc::clone(request_id),
            time_max: engine.parts.timeouts.total,
            history: Arc::clone(history),
        })
    }

    /// This capability for one call of a plugin, whose requests are noted in `timeline`.
    pub(crate) fn noted_in(self: &Arc<Self>, timeline: &Timeline) -> Arc<dyn HttpAccess> {
        Arc::new(NotedHttp { capability: Arc::clone(self), timeline: timeline.here() })
    }

    /// A search through what a plugin gives on; `None` if no secret was sent for it.
    pub(crate) fn search(&self, plugin: &Plugin) -> Option<ReleasedSearch> {
        self.history.released.search(plugin.name())
    }

    /// Has `clean` remove the values of secrets that were sent for the plugin from an output of it, and counts what was
    /// found as reflections. `None` for an output that had some, where the grant of the plugin blocks such outputs.
    pub(crate) fn clean<T>(
        &self,
        plugin: &Plugin,
        output: T,
        clean: impl FnOnce(&mut ReleasedSearch, T) -> T,
    ) -> Option<T> {
        let Some(mut search) = self.search(plugin) else { return Some(output) };
        let output = clean(&mut search, output);
        let blocks = plugin.grant().on_reflection == OnReflection::Block;
        (!self.note_decoded(plugin, &search, blocks)).then_some(output)
    }

    /// Counts what a search has found as reflections, for an output that is used without the secrets
    /// even where the grant of the plugin blocks such outputs.
    pub(crate) fn note_removed(&self, plugin: &Plugin, search: &ReleasedSearch) {
        self.note_decoded(plugin, search, false);
    }

    /// Returns whether the output is blocked.
    fn note_decoded(&self, plugin: &Plugin, search: &ReleasedSearch, blocks: bool) -> bool {
        let blocked = blocks && !search.found().is_empty();
        let timeline = &Timeline::default();
        let visit = Visit { capability: self, plugin: plugin.name(), grant: plugin.grant(), timeline };
        for sent in search.found() {
            visit.note_reflection(sent, blocked);
        }
        if !search.found().is_empty() {
            tracing::warn!(
                plugin = plugin.name(),
                blocked,
                "a plugin decoded a secret that a host sent back; it was removed"
            );
        }
        blocked
    }

    /// The time limit of a request.
    ///
    /// # Errors
    /// `Exhausted`, after too many refused requests.
    fn time_for(&self, request: &HttpRequest) -> Result<Duration, HttpError> {
        if self.history.refusals.load(Ordering::Relaxed) >= REFUSALS_MAX {
            return Err(HttpError::Exhausted);
        }
        Ok(Duration::from_millis(request.timeout_ms.into()).min(self.time_max))
    }
}
