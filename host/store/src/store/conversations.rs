//! Compacted conversations: sealed and given to the client, which sends them back later. The store
//! keeps none of them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Store;
use crate::ids::WorkspaceId;

/// Prefix of a sealed conversation: the program and the version of the format.
const FORM: &str = "cofferdam-conversation-v1.";

impl Store {
    /// Seals a text so that only this store can open it, and only for this workspace.
    ///
    /// # Errors
    /// The system's random source failed.
    pub fn seal_conversation(&self, workspace: WorkspaceId, text: &str) -> Result<String, getrandom::Error> {
        let sealed = self.0.keys.seal_conversation(workspace, text.as_bytes())?;
        Ok(format!("{FORM}{}", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// The text of a sealed conversation; `None` if another store sealed it, or for another
    /// workspace.
    #[must_use]
    pub fn open_conversation(&self, workspace: WorkspaceId, sealed: &str) -> Option<String> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(FORM)?).ok()?;
        String::from_utf8(self.0.keys.open_conversation(workspace, &sealed)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::{StoreId, WorkspaceId};
    use crate::seal::StoreKeys;

    #[test]
    fn only_the_store_and_the_workspace_that_sealed_a_conversation_open_it() {
        let keys = || StoreKeys::random(StoreId::random().unwrap()).unwrap();
        let (own, other) = (keys(), keys());
        let workspace = WorkspaceId::random().unwrap();
        let sealed = own.seal_conversation(workspace, b"what was said").unwrap();
        assert_eq!(own.open_conversation(workspace, &sealed).as_deref(), Some(b"what was said".as_slice()));
        assert_eq!(other.open_conversation(workspace, &sealed), None);
        assert_eq!(own.open_conversation(WorkspaceId::random().unwrap(), &sealed), None);
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(own.open_conversation(workspace, &changed), None, "byte {place}");
            assert_eq!(own.open_conversation(workspace, &sealed[..place]), None, "cut at {place}");
        }
    }
}
