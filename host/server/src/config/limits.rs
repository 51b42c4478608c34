//! `[limits]`: connections, concurrency, rates and sizes.

use super::document::Table;

/// The maximum of the limits for which 0 means no limit.
const FIGURE_MAX: u64 = u32::MAX as u64;

/// The maximum of `items_max`. A body of the maximum length has about a million values.
const ITEMS_MAX_MAX: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Open client connections.
    pub connections: usize,
    /// Open connections of one address; 0 means no limit.
    pub connections_per_address: usize,
    pub streams: usize,
    /// Items in the `input` of one request.
    pub items_max: usize,
    /// The rate limits of keys and workspaces.
    pub rates: RateLimits,
}

/// Rate and concurrency limits of keys and workspaces; 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    pub requests_per_minute: u64,
    /// Input and output tokens of one key.
    pub tokens_per_minute: u64,
    pub workspace_requests_per_minute: u64,
    /// Input and output tokens of one workspace.
    pub workspace_tokens_per_minute: u64,
    pub concurrent_per_key: u64,
}

impl RateLimits {
    pub const UNLIMITED: Self = Self {
        requests_per_minute: 0,
        tokens_per_minute: 0,
        workspace_requests_per_minute: 0,
        workspace_tokens_per_minute: 0,
        concurrent_per_key: 0,
    };
}

pub(super) fn read(table: &Table<'_>) -> LimitsConfig {
    let count = |key, most| {
        let number = table.integer(key, 1..=most).unwrap_or(1);
        usize::try_from(number).unwrap_or(usize::MAX)
    };
    let figure = |key| table.integer(key, 0..=FIGURE_MAX).unwrap_or(0);
    LimitsConfig {
        connections: count("connections", 1_000_000),
        connections_per_address: usize::try_from(figure("connections_per_address")).unwrap_or(usize::MAX),
        streams: count("streams", 100_000),
        items_max: count("items_max", ITEMS_MAX_MAX),
        rates: RateLimits {
            requests_per_minute: figure("requests_per_minute"),
            tokens_per_minute: figure("tokens_per_minute"),
            workspace_requests_per_minute: figure("workspace_requests_per_minute"),
            workspace_tokens_per_minute: figure("workspace_tokens_per_minute"),
            concurrent_per_key: figure("concurrent_per_key"),
        },
    }
}
