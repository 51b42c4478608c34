//! Watches the memory that is left until the limit of the control group. The kernel kills a process
//! that reaches the limit, so before that the host refuses what takes more memory.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_runtime::memory;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::upkeep::give_memory_back;
use crate::app::App;
use crate::memory_limit::MemoryReading;

/// The time between two rounds. A round reads three small files of the kernel, in about 30 µs. In
/// this time a processor can touch some 50 MiB.
const ROUND: Duration = Duration::from_millis(50);
/// One round in this many gives free memory back while memory is short.
const ROUNDS_TO_GIVE_BACK: u32 = 20;
const MIB: u64 = 1024 * 1024;

/// Runs until stopped. Ends at once where there is no limit.
pub(super) async fn run(app: Arc<App>, stop: CancellationToken) {
    let Some(first) = app.memory_limit.read() else { return };
    tracing::info!(limit_mib = first.limit / MIB, reserve_mib = first.reserve() / MIB, "memory is limited");
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // For how many rounds memory has been short.
    let mut short_for = 0_u32;
    loop {
        tokio::select! {
            _ = rounds.tick() => {}
            () = stop.cancelled() => break,
        }
        let Some(now) = app.memory_limit.read() else { continue };
        let is_short = now.is_short(short_for > 0);
        if is_short == (short_for == 0) {
            memory::set_short(is_short);
            tell(now, is_short);
        }
        short_for = if is_short { short_for.saturating_add(1) } else { 0 };
        if short_for % ROUNDS_TO_GIVE_BACK == 1 {
            // What the allocator keeps would keep memory short without any request.
            give_memory_back(true);
        }
    }
}

/// Says in the log that memory has become short, or that it no longer is.
fn tell(now: MemoryReading, is_short: bool) {
    let (free_mib, limit_mib) = (now.free / MIB, now.limit / MIB);
    if is_short {
        tracing::warn!(free_mib, limit_mib, "memory is short: new requests for models are refused");
    } else {
        tracing::info!(free_mib, limit_mib, "memory is no longer short");
    }
}
