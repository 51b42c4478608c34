//! Periodic tasks of a host: it writes refused tokens to the audit log, compares the endpoints of
//! each model, gives free memory back, and deletes retired vault keys, old usage totals and old
//! revoked keys. Due times are checked against the injected clock once per round.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_store::{Clock, RefusedTokens, Store, UsageDay, VaultError};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// The time between two rounds. A round reads a clock and a few numbers.
const ROUND: Duration = Duration::from_secs(1);
/// How long to wait after deleting vault keys before trying again.
const AGAIN_MS: u64 = 60 * 60 * 1000;
/// How long the clock has to show the same day before what is too old by it is deleted.
const STEADY_MS: u64 = 60 * 60 * 1000;

/// Runs until stopped, then writes the remaining refused tokens.
pub(crate) async fn run(app: Arc<App>, clock: Clock, stop: CancellationToken) {
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut not_before_ms, mut kept) = (0, KeptDays::default());
    loop {
        tokio::select! {
            _ = rounds.tick() => {}
            () = stop.cancelled() => break,
        }
        record(&app.store, app.refusals.take_due());
        app.live().engine.compare_endpoints();
        let (requests, failures) = app.metrics.answered();
        app.traffic.note(clock.now_ms(), requests, failures);
        give_memory_back(false);
        if app.store.has_due_vault_keys() && clock.monotonic_ms() >= not_before_ms {
            not_before_ms = clock.monotonic_ms().saturating_add(AGAIN_MS);
            delete_due_keys(app.store.clone(), stop.clone()).await;
        }
        if kept.is_due(app.store.first_usage_day(), clock.monotonic_ms()) {
            drop_what_is_old(app.store.clone()).await;
        }
    }
    record(&app.store, app.refusals.take());
}

/// Gives memory back to the system that has been free for a second. The allocator itself does this
/// only when something large is allocated or freed, so a host that gets no more requests would keep
/// what the last ones took. With `at_once` what became free just now is given back, too.
pub(super) fn give_memory_back(at_once: bool) {
    #[expect(unsafe_code, reason = "a function of C that any thread may call at any time")]
    // SAFETY: It has no requirements; it frees only what no allocation uses.
    unsafe {
        libmimalloc_sys::mi_collect(at_once);
    }
}

fn record(store: &Store, refused: Vec<RefusedTokens>) {
    let lost = refused.into_iter().filter(|refused| store.record_refused_tokens(refused.clone()).is_err());
    let lost = lost.count();
    if lost > 0 {
        tracing::warn!(records = lost, "the audit log takes no more records; refused tokens are not in it");
    }
}

/// The first day whose totals are kept, by the machine's clock. A clock can be wrong after the start
/// of a machine, until it is set from the network. So totals are only deleted after the clock has
/// shown the same day for [`STEADY_MS`].
#[derive(Debug, Default)]
struct KeptDays {
    first: Option<UsageDay>,
    /// Since when the clock shows it, in monotonic milliseconds; `None` after the deletion.
    since_ms: Option<u64>,
}

impl KeptDays {
    /// Whether what is older than `first` is to be deleted now; once for each day.
    fn is_due(&mut self, first: UsageDay, now_ms: u64) -> bool {
        if self.first != Some(first) {
            *self = Self { first: Some(first), since_ms: Some(now_ms) };
        }
        self.since_ms.take_if(|since| now_ms.saturating_sub(*since) >= STEADY_MS).is_some()
    }
}

/// Runs an hour after a start and then once a day.
async fn drop_what_is_old(store: Store) {
    let drop = move || store.drop_old_totals().and_then(|()| store.drop_old_keys());
    match tokio::task::spawn_blocking(drop).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "old sums of usage or revoked keys could not be removed"),
        Err(error) => tracing::error!(%error, "removing old sums of usage and keys ended unexpectedly"),
    }
}

async fn delete_due_keys(store: Store, stop: CancellationToken) {
    let delete = move || {
        let go_on = || if stop.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        store.delete_due_vault_keys(&mut |_, _, _| go_on())
    };
    match tokio::task::spawn_blocking(delete).await {
        // Continued in a later round or after the next start.
        Ok(Ok(()) | Err(VaultError::Stopped | VaultError::Busy)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "retired keys of vaults could not be deleted"),
        Err(error) => tracing::error!(%error, "deleting retired keys of vaults ended unexpectedly"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_ahead_for_less_than_an_hour_deletes_nothing() {
        let day = |text: &str| text.parse::<UsageDay>().unwrap();
        let (now, ahead) = (day("2026-05-01"), day("2036-05-01"));
        let mut kept = KeptDays::default();
        assert!(!kept.is_due(ahead, 0));
        assert!(!kept.is_due(ahead, STEADY_MS - 1));
        assert!(!kept.is_due(now, STEADY_MS), "the clock was set");
        assert!(!kept.is_due(now, 2 * STEADY_MS - 1));
        assert!(kept.is_due(now, 2 * STEADY_MS));
        assert!(!kept.is_due(now, 3 * STEADY_MS), "once a day");
        assert!(!kept.is_due(day("2026-05-02"), 24 * STEADY_MS));
        assert!(kept.is_due(day("2026-05-02"), 25 * STEADY_MS));
    }
}
