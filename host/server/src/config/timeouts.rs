//! `[timeouts]`: time limits of the host.

use std::time::Duration;

use cofferdam_engine::Timeouts;

use super::document::Table;

/// The maximum of every timeout: a day.
pub(super) const LONGEST_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Clone, Copy)]
pub struct TimeoutsConfig {
    /// For opening a connection to a provider.
    pub connect: Duration,
    /// For the attempts of a request, and for the whole response.
    pub response: Timeouts,
    /// Between two reads of a request body.
    pub body_idle: Duration,
    /// For a whole request body.
    pub body_total: Duration,
    /// From the signal to stop until running requests are ended, `unready` included.
    pub drain: Duration,
    /// From the signal to stop until the listener closes.
    pub unready: Duration,
}

pub(super) fn read(table: &Table<'_>) -> TimeoutsConfig {
    let duration = |key| Duration::from_millis(table.integer(key, 1..=LONGEST_MS).unwrap_or(1));
    let drain = duration("drain_ms");
    let unready = Duration::from_millis(table.integer("unready_ms", 0..=LONGEST_MS).unwrap_or(0));
    if unready > drain {
        table.value("unready_ms", ()).reject("must not be more than drain_ms, which includes it");
    }
    TimeoutsConfig {
        connect: duration("connect_ms"),
        response: Timeouts {
            first_event: duration("first_event_ms"),
            idle: duration("idle_ms"),
            total: duration("total_ms"),
        },
        body_idle: duration("body_idle_ms"),
        body_total: duration("body_total_ms"),
        drain,
        unready,
    }
}
