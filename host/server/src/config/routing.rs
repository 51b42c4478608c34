//! `[routing]`: how the host reacts when endpoints fail.

use super::document::Table;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routing {
    /// Try endpoints last that fail, are rate-limited or do far worse than the others of their
    /// model.
    pub eject: bool,
    /// Retry a request after all endpoints have failed, if a failure was temporary.
    pub retry: bool,
}

pub(super) fn read(table: &Table<'_>) -> Routing {
    Routing { eject: table.flag("eject"), retry: table.flag("retry") }
}
