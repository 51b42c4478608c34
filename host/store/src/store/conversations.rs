//! Compacted conversations: sealed and given to the client, which sends them back later. The store
//! keeps none of them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Store;
use crate::ids::{InternId, WorkspaceId};

/// Prefix of a sealed conversation: the program and the version of the format.
const FORM: &str = "cofferdam-conversation-v1.";

impl Store {
    /// Seals a text so that only this store can open it, and only for this workspace without an
    /// intern, or for this intern of it.
    ///
    /// # Errors
    /// The system's random source failed.
    pub fn seal_conversation(
        &self,
        workspace: WorkspaceId,
        intern: Option<InternId>,
        text: &str,
    ) -> Result<String, getrandom::Error> {
        let sealed = self.0.keys.seal_conversation(workspace, intern, text.as_bytes())?;
        Ok(format!("{FORM}{}", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// The text of a sealed conversation; `None` if another store sealed it, or for another
    /// workspace or intern.
    #[must_use]
    pub fn open_conversation(
        &self,
        workspace: WorkspaceId,
        intern: Option<InternId>,
        sealed: &str,
    ) -> Option<String> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(FORM)?).ok()?;
        String::from_utf8(self.0.keys.open_conversation(workspace, intern, &sealed)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::{InternId, StoreId, WorkspaceId};
    use crate::seal::StoreKeys;

    #[test]
    fn only_the_store_and_the_workspace_that_sealed_a_conversation_open_it() {
        let keys = || StoreKeys::random(StoreId::random().unwrap()).unwrap();
        let (own, other) = (keys(), keys());
        let workspace = WorkspaceId::random().unwrap();
        let sealed = own.seal_conversation(workspace, None, b"what was said").unwrap();
        let opened = own.open_conversation(workspace, None, &sealed);
        assert_eq!(opened.as_deref(), Some(b"what was said".as_slice()));
        assert_eq!(other.open_conversation(workspace, None, &sealed), None);
        assert_eq!(own.open_conversation(WorkspaceId::random().unwrap(), None, &sealed), None);
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(own.open_conversation(workspace, None, &changed), None, "byte {place}");
            assert_eq!(own.open_conversation(workspace, None, &sealed[..place]), None, "cut at {place}");
        }
    }

    #[test]
    fn a_conversation_of_an_intern_is_opened_for_that_intern_only() {
        let keys = StoreKeys::random(StoreId::random().unwrap()).unwrap();
        let workspace = WorkspaceId::random().unwrap();
        let owners = [None, Some(InternId::random().unwrap()), Some(InternId::random().unwrap())];
        for sealed_for in owners {
            let sealed = keys.seal_conversation(workspace, sealed_for, b"what was said").unwrap();
            for opened_for in owners {
                let opened = keys.open_conversation(workspace, opened_for, &sealed);
                assert_eq!(opened.is_some(), opened_for == sealed_for);
            }
        }
    }
}
