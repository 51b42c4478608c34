//! Ids of approval requests. A client sends the approval request back together with its answer, and
//! this host stores neither: the id itself proves that this host asked about exactly this call.

use crate::caller::Caller;
use cofferdam_store::{APPROVAL_PROOF_DIGITS, InternId, Store, WorkspaceId};
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt;

/// Makes and checks the ids for one workspace, or for one intern of it.
#[derive(Clone)]
pub(crate) struct Approvals {
    store: Store,
    workspace: WorkspaceId,
    intern: Option<InternId>,
}

/// Makes and checks the ids for one MCP server.
#[derive(Clone)]
pub(crate) struct Binding {
    approvals: Approvals,
    label: String,
    url: String,
}

impl Approvals {
    pub(crate) fn new(store: &Store, caller: &Caller) -> Self {
        Self { store: store.clone(), workspace: caller.workspace.id, intern: caller.intern }
    }

    /// For the server that a tool with these settings connects to.
    pub(crate) fn bind(&self, settings: &[u8]) -> Binding {
        #[derive(Default, Deserialize)]
        struct Server<'a> {
            #[serde(borrow)]
            server_label: Option<Cow<'a, str>>,
            #[serde(borrow)]
            server_url: Option<Cow<'a, str>>,
        }
        // Settings of another form belong to tools without a server.
        let Server { server_label, server_url } = serde_json::from_slice(settings).unwrap_or_default();
        Binding {
            approvals: self.clone(),
            label: server_label.unwrap_or_default().into_owned(),
            url: server_url.unwrap_or_default().into_owned(),
        }
    }
}

impl Binding {
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The id of the approval request for this call. `begin` must be different for each.
    pub(crate) fn id(&self, begin: &str, name: &str, arguments: &str) -> String {
        let proof = self.asked(begin, name, arguments, |store, asked| store.prove_approval(asked));
        format!("{begin}{proof}")
    }

    /// Whether this is the id of an approval request for this call.
    pub(crate) fn has_made(&self, id: &str, name: &str, arguments: &str) -> bool {
        let Some((begin, proof)) =
            id.len().checked_sub(APPROVAL_PROOF_DIGITS).and_then(|at| id.split_at_checked(at))
        else {
            return false;
        };
        self.asked(begin, name, arguments, |store, asked| store.is_approval_proof(asked, proof))
    }

    fn asked<T>(&self, begin: &str, name: &str, arguments: &str, then: impl Fn(&Store, &[&[u8]]) -> T) -> T {
        let Approvals { store, workspace, intern } = &self.approvals;
        let intern = intern.as_ref().map_or(&[][..], |intern| intern.as_bytes());
        let texts = [self.label.as_str(), &self.url, begin, name, arguments].map(str::as_bytes);
        then(store, &[&[workspace.as_bytes().as_slice(), intern], texts.as_slice()].concat())
    }
}

impl PartialEq for Binding {
    fn eq(&self, other: &Self) -> bool {
        let account = |binding: &Self| (binding.approvals.workspace, binding.approvals.intern);
        (account(self), &self.label, &self.url) == (account(other), &other.label, &other.url)
    }
}

impl Eq for Binding {}

impl fmt::Debug for Binding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Binding").field("label", &self.label).finish_non_exhaustive()
    }
}
