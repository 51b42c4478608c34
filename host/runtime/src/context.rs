//! The caller on whose behalf a guest runs, and the pseudonym of its workspace.

use std::sync::Arc;

use cofferdam_store::hex;
use sha2::{Digest, Sha256};

use crate::bindings::cofferdam::plugin::types::CallContext as GuestContext;
use crate::clock::CLOCK_GRAIN_MS;
use crate::inputs::GuestInputs;
use crate::owner::Owner;

/// Length of a pseudonym in bytes; it is written as hexadecimal digits.
const PSEUDONYM_BYTES: usize = 16;

/// The caller on whose behalf a guest runs, and the time.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The id of the response or embedding that is being made.
    pub request_id: Arc<str>,
    /// The workspace's id. Guests get a pseudonym of it, which differs per plugin.
    pub workspace: String,
    /// The call may use an instance that an earlier call of this owner left, and may leave one for
    /// the next call. Without an owner the instance is new and ends with the call.
    pub owner: Option<Owner>,
    /// Unix time in milliseconds.
    pub now_ms: u64,
    /// The guest's clock readings and random bytes, if they do not come from the machine. Such a
    /// call gets a new instance, which ends with it.
    pub inputs: Option<Arc<dyn GuestInputs>>,
}

impl CallContext {
    /// The context as the guest of this plugin gets it. `alias` caches the pseudonym of the
    /// instance's previous call.
    pub(crate) fn for_guest(&self, plugin: &str, alias: &mut Alias) -> GuestContext {
        GuestContext {
            request_id: self.request_id.to_string(),
            workspace: alias.of(plugin, &self.workspace).to_owned(),
            now_ms: self.now_ms - self.now_ms % CLOCK_GRAIN_MS,
        }
    }
}

/// The pseudonym of an instance's previous call. Most instances serve one workspace only.
#[derive(Default)]
pub(crate) struct Alias {
    workspace: String,
    pseudonym: String,
}

impl Alias {
    /// The pseudonym of a workspace. `plugin` must be the same in all calls.
    fn of(&mut self, plugin: &str, workspace: &str) -> &str {
        if self.pseudonym.is_empty() || self.workspace != workspace {
            workspace.clone_into(&mut self.workspace);
            self.pseudonym = pseudonym(plugin, workspace);
        }
        &self.pseudonym
    }
}

/// Hashes plugin and workspace. Workspace ids are random, so the hash cannot be reversed by trying
/// ids.
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
            inputs: None,
        };
        assert_eq!(context.for_guest("p", &mut Alias::default()).now_ms, 12_345_670);
    }

    #[test]
    fn an_instance_gets_the_pseudonym_of_its_current_workspace() {
        let mut alias = Alias::default();
        for workspace in ["v", "v", "w", "", "v"] {
            assert_eq!(alias.of("p", workspace), pseudonym("p", workspace));
        }
    }
}
