//! `[limits]`: how much may happen at once.

use super::document::Table;

/// The most that a limit of keys and workspaces can be.
const FIGURE_MAX: u64 = u32::MAX as u64;

/// The most items that an operator can allow: a body holds about a million values and keys.
const ITEMS_MAX_MAX: u64 = 100_000;

/// What the host takes on at the same time, and in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open client connections.
    pub connections: usize,
    /// Open connections of one address; 0 is no limit.
    pub connections_per_address: usize,
    /// Running responses.
    pub streams: usize,
    /// Items of one request's `input`.
    pub items_max: usize,
    /// What one key and one workspace may ask for.
    pub pace: Pace,
}

/// What one key and one workspace may ask for; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Requests of one key in a minute.
    pub requests_per_minute: u64,
    /// Tokens of one key in a minute, input and output.
    pub tokens_per_minute: u64,
    /// Requests of one workspace in a minute.
    pub workspace_requests_per_minute: u64,
    /// Tokens of one workspace in a minute, input and output.
    pub workspace_tokens_per_minute: u64,
    /// Requests of one key at the same time.
    pub concurrent_per_key: u64,
}

impl Pace {
    /// No limit at all.
    pub const UNLIMITED: Self = Self {
        requests_per_minute: 0,
        tokens_per_minute: 0,
        workspace_requests_per_minute: 0,
        workspace_tokens_per_minute: 0,
        concurrent_per_key: 0,
    };
}

pub(super) fn read(table: &Table<'_>) -> Limits {
    let count = |key, most| {
        let number = table.integer(key, 1..=most).unwrap_or(1);
        usize::try_from(number).unwrap_or(usize::MAX)
    };
    let figure = |key| table.integer(key, 0..=FIGURE_MAX).unwrap_or(0);
    Limits {
        connections: count("connections", 1_000_000),
        connections_per_address: usize::try_from(figure("connections_per_address")).unwrap_or(usize::MAX),
        streams: count("streams", 100_000),
        items_max: count("items_max", ITEMS_MAX_MAX),
        pace: Pace {
            requests_per_minute: figure("requests_per_minute"),
            tokens_per_minute: figure("tokens_per_minute"),
            workspace_requests_per_minute: figure("workspace_requests_per_minute"),
            workspace_tokens_per_minute: figure("workspace_tokens_per_minute"),
            concurrent_per_key: figure("concurrent_per_key"),
        },
    }
}
