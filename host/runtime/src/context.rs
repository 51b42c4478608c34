//! On whose behalf a guest is called.

use std::borrow::Borrow;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::bindings::cofferdam::plugin::types::CallContext as GuestContext;
use crate::cache::hex;
use crate::instance::CLOCK_GRAIN_MS;

/// Length of a pseudonym in bytes before it is written in hexadecimal.
const PSEUDONYM_BYTES: usize = 16;

/// Whose instances may serve a call, as an opaque id: the key that pays for it,
/// or anything narrower. Two owners never meet in one instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The owner with this id.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self(Arc::from(id))
    }
}

/// An owner is found by its id.
impl Borrow<str> for Owner {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// On whose behalf a guest is called, and when.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The id of the response or embedding that is served.
    pub request_id: Arc<str>,
    /// The workspace's id. Guests get a pseudonym of it, another one per plugin.
    pub workspace: String,
    /// Who may be served by an instance this call leaves behind, and may have left
    /// the one it gets; without an owner the instance is fresh and ends with the call.
    pub owner: Option<Owner>,
    /// Unix time in milliseconds.
    pub now_ms: u64,
}

impl CallContext {
    /// What the guest of this plugin is told. `alias` is what it was last told the workspace is called.
    pub(crate) fn for_guest(&self, plugin: &str, alias: &mut Alias) -> GuestContext {
        GuestContext {
            request_id: self.request_id.to_string(),
            workspace: alias.of(plugin, &self.workspace).to_owned(),
            now_ms: self.now_ms - self.now_ms % CLOCK_GRAIN_MS,
        }
    }
}

/// The pseudonym an instance was last called under: as a rule it serves one workspace all its life.
#[derive(Default)]
pub(crate) struct Alias {
    workspace: String,
    pseudonym: String,
}

impl Alias {
    /// The pseudonym of a workspace. `plugin` is the same for all calls.
    fn of(&mut self, plugin: &str, workspace: &str) -> &str {
        if self.pseudonym.is_empty() || self.workspace != workspace {
            workspace.clone_into(&mut self.workspace);
            self.pseudonym = pseudonym(plugin, workspace);
        }
        &self.pseudonym
    }
}

/// Workspace ids are random, so a plain hash cannot be run through backwards.
fn pseudonym(plugin: &str, workspace: &str) -> String {
    let mut hash = Sha256::new();
    for part in ["cofferdam workspace pseudonym 1", plugin, workspace] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(hash.finalize().get(..PSEUDONYM_BYTES).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudonyms_differ_by_plugin_and_workspace_and_hide_the_id() {
        let one = pseudonym("a", "w");
        assert_eq!(one, pseudonym("a", "w"));
        assert_ne!(one, pseudonym("b", "w"));
        assert_ne!(one, pseudonym("a", "v"));
        assert_ne!(pseudonym("ab", "c"), pseudonym("a", "bc"));
        assert_eq!(one.len(), 32);
    }

    #[test]
    fn guests_see_coarse_time() {
        let context = CallContext {
            request_id: "resp_1".into(),
            workspace: "w".into(),
            owner: None,
            now_ms: 12_345_678,
        };
        assert_eq!(context.for_guest("p", &mut Alias::default()).now_ms, 12_345_670);
    }

    #[test]
    fn an_instance_is_told_the_workspace_it_serves_now() {
        let mut alias = Alias::default();
        for workspace in ["v", "v", "w", "", "v"] {
            assert_eq!(alias.of("p", workspace), pseudonym("p", workspace));
        }
    }
}
