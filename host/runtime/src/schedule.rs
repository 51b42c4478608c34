//! How the scheduler of the host must be set so that guests which burn all
//! processors hold up nobody else.

/// How many polls pass between two looks at timers and sockets. A guest's slice
/// is one poll of up to a tick, so the default of 61 would mean 120 ms.
const EVENT_INTERVAL: u32 = 5;
/// How many polls pass before a look at work that came from other threads.
const GLOBAL_QUEUE_INTERVAL: u32 = 5;

/// Sets a builder of a multi-threaded scheduler up for running guests.
pub fn tune(builder: &mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder {
    builder.event_interval(EVENT_INTERVAL).global_queue_interval(GLOBAL_QUEUE_INTERVAL)
}
