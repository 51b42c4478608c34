//! Watches whether the store still writes. After a failed write the state of the disk is unknown,
//! and a write that hangs may never return. In both cases the process ends, so that its supervisor
//! starts it again with the durable state.

use std::time::Duration;

use cofferdam_store::Store;
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::Failure;

/// The time between two checks.
const ROUND: Duration = Duration::from_millis(250);
/// How long one commit may take.
pub(super) const COMMIT_MAX: Duration = Duration::from_secs(60);

/// Returns when the store has stopped writing, with the reason.
pub(crate) async fn until_lost(store: &Store) -> Failure {
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = StallWatch::default();
    loop {
        rounds.tick().await;
        let status = store.status();
        if let Some(failure) = watch.look(status.failed, status.stalled_for_ms) {
            return failure;
        }
    }
}

/// Remembers whether a stall was logged, so that it is logged once.
#[derive(Default)]
struct StallWatch {
    stalled: bool,
}

impl StallWatch {
    /// `stalled_for_ms` is how long the current commit takes already, by the store's own clock.
    fn look(&mut self, failed: bool, stalled_for_ms: Option<u64>) -> Option<Failure> {
        if failed {
            return Some(Failure::StoreFailed);
        }
        if let (Some(stalled_for_ms), false) = (stalled_for_ms, self.stalled) {
            tracing::error!(stalled_for_ms, "a commit of the store takes too long; the host is not ready");
        }
        self.stalled = stalled_for_ms.is_some();
        stalled_for_ms
            .filter(|for_ms| Duration::from_millis(*for_ms) >= COMMIT_MAX)
            .map(|_| Failure::StoreHangs)
    }
}

#[cfg(test)]
mod tests {
    use super::StallWatch;
    use crate::failure::Failure;

    #[test]
    fn a_failed_write_ends_the_process_at_once() {
        let mut watch = StallWatch::default();
        assert!(watch.look(false, None).is_none());
        let failure = watch.look(true, None).unwrap();
        assert!(matches!(failure, Failure::StoreFailed));
        assert_eq!(failure.exit_code(), 1);
    }

    #[test]
    fn a_commit_that_hangs_ends_the_process_after_a_minute() {
        let mut watch = StallWatch::default();
        assert!(watch.look(false, Some(10_000)).is_none());
        assert!(watch.look(false, Some(59_999)).is_none());
        assert!(watch.look(false, None).is_none());
        assert!(matches!(watch.look(false, Some(60_000)), Some(Failure::StoreHangs)));
    }
}
