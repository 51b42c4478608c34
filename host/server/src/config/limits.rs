//! `[limits]`: how much may happen at once.

use super::document::Table;

/// What the host takes on at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open client connections.
    pub connections: usize,
    /// Running responses.
    pub streams: usize,
}

pub(super) fn read(table: &Table<'_>) -> Limits {
    let count = |key, most| {
        let number = table.integer(key, 1..=most).unwrap_or(1);
        usize::try_from(number).unwrap_or(usize::MAX)
    };
    Limits { connections: count("connections", 1_000_000), streams: count("streams", 100_000) }
}
