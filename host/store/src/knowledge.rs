//! What a host that shares its store may go by after it has lost contact with the database.

/// How new what this process knows is: of keys, records and secrets, which other hosts may change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Knowledge {
    /// This process has contact with the database, or the store alone.
    Current,
    /// Contact has ended, and not longer ago than `store.stale_ms`. Requests of models may still go by it,
    /// where they spend nothing that is limited and use no secret of a workspace.
    Stale,
    /// Nothing may go by it.
    Outdated,
}

/// What a request asks for. It decides what the request may go by on a host that has lost contact with the
/// database of the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestPurpose {
    /// A model, or the list of models. For `store.stale_ms` after the end of the contact it goes by what is
    /// known.
    Model,
    /// Anything else. It always goes by what is current.
    Other,
}

impl RequestPurpose {
    /// Whether a request may go by what this host knows.
    pub(crate) fn allows(self, knowledge: Knowledge) -> bool {
        match knowledge {
            Knowledge::Current => true,
            Knowledge::Stale => self == RequestPurpose::Model,
            Knowledge::Outdated => false,
        }
    }
}
