//! Settings of the Tokio scheduler with which guests that use all processors do not delay other
//! tasks.

/// Number of polls between two checks of timers and sockets. A guest's slice is one poll of up to a
/// tick (2 ms), so Tokio's default of 61 would mean 120 ms.
const EVENT_INTERVAL: u32 = 5;
/// Number of polls between two checks of the global queue, which has work from other threads.
const GLOBAL_QUEUE_INTERVAL: u32 = 5;

/// Prepares the builder of a multi-threaded Tokio runtime for running guests.
pub fn tune(builder: &mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder {
    builder.event_interval(EVENT_INTERVAL).global_queue_interval(GLOBAL_QUEUE_INTERVAL)
}
