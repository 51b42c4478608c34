//! The key that a request was authenticated with, and the scope it acts for.

use crate::limits::allowance::Allowance;
use cofferdam_store::{InternId, KeyId, ReleaseScope, Workspace};
use std::sync::Arc;

/// The identity of the client of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The workspace the key belongs to.
    pub workspace: Arc<Workspace>,
    /// The intern, if the key is one of an intern.
    pub intern: Option<InternId>,
    /// The key that authenticated the request.
    pub key: KeyId,
    /// What the request may use of the limits of its key and its workspace.
    pub allowance: Allowance,
}

impl Caller {
    /// Whose secrets are released for it: the effective ones of the intern, else the workspace's.
    pub(crate) fn release_scope(&self) -> ReleaseScope {
        match self.intern {
            Some(intern) => ReleaseScope::Intern(intern),
            None => ReleaseScope::Workspace(self.workspace.id),
        }
    }
}
