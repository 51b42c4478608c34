//! How much one exchange may take.

use std::time::Duration;

/// Bounds of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeLimits {
    /// Time limit from the call until the head of the answer has arrived, connecting included.
    pub head: Duration,
    /// Time limit for one wait for the next chunk of the body.
    pub idle: Duration,
    /// Length limit of the body, in bytes.
    pub body_bytes_max: u64,
}

impl Default for ExchangeLimits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            body_bytes_max: 64 * 1024 * 1024,
        }
    }
}
