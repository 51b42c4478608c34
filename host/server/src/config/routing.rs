//! `[routing]`: what the host does by itself when endpoints fail.

use super::document::Table;

/// What the host does by itself when endpoints fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routing {
    /// Endpoints that fail, are limited or do far worse than the others of their model are tried last.
    pub eject: bool,
    /// A request that every endpoint failed with something that passes is tried again.
    pub retry: bool,
}

pub(super) fn read(table: &Table<'_>) -> Routing {
    Routing { eject: table.flag("eject"), retry: table.flag("retry") }
}
