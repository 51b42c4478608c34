//! The key that a request was authenticated with, and the scope it acts for.

use crate::limits::allowance::Allowance;
use cofferdam_store::{InternId, KeyId, ReleaseScope, WorkspaceId};

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The workspace the key belongs to.
    pub workspace: WorkspaceId,
    /// The intern it is confined to.
    pub intern: Option<InternId>,
    /// The key.
    pub key: KeyId,
    /// What the request may use of what the key and the workspace may use.
    pub allowance: Allowance,
}

impl Caller {
    /// Whose secrets are released for it: an intern's effective ones, else the workspace's.
    pub(crate) fn release_scope(&self) -> ReleaseScope {
        match self.intern {
            Some(intern) => ReleaseScope::Intern(intern),
            None => ReleaseScope::Workspace(self.workspace),
        }
    }
}
