//! The question what became of a commit whose connection broke.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::super::connect::DatabaseSession;
use super::super::failure::Failure;
use super::super::place::{ChainEnd, ChainId};
use super::super::transaction::resolve;
use super::{Lane, PAUSE_MAX, Stopped, is_behind, jittered};

/// Time between two warnings that a commit is still in doubt.
const DOUBT_WARNED_EVERY: Duration = Duration::from_secs(30);

impl Lane {
    /// Finds out whether a commit is durable. Asks until the database answers, or until the lane is
    /// closed and has asked often enough.
    pub(super) async fn resolve(
        &mut self,
        chain: ChainId,
        before: ChainEnd,
        after: ChainEnd,
        cause: &Failure,
    ) -> Result<bool, Stopped> {
        tracing::warn!(%cause, seq = after.seq, "a commit is in doubt");
        // The transaction in doubt ends with its connection, if it has not ended yet.
        self.session = None;
        let (mut pause_ms, mut warned) = (5, Instant::now());
        loop {
            let failure = match resolve(&self.database, chain).await {
                Ok((_, end)) if is_behind(end.map(|end| end.seq), before.seq) => {
                    Failure::ChainChanged { found: end.map(|end| end.seq), left: before.seq }
                }
                Ok((session, end)) => return self.resolved(session, chain, end, [before, after]),
                Err(failure) => failure,
            };
            // Otherwise a database that was set back may be replaced by one that has the commits before it.
            if matches!(failure, Failure::ChainChanged { .. }) && self.begin_anew() {
                return Ok(false);
            }
            if warned.elapsed() >= DOUBT_WARNED_EVERY {
                tracing::warn!(%failure, "a commit is still in doubt: the database does not say what became of it");
                warned = Instant::now();
            }
            if self.has_closed_in_vain() {
                return Err(self.stop(&failure));
            }
            sleep(jittered(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(PAUSE_MAX.as_millis() as u64);
        }
    }

    /// Goes on from where the chain ends after a commit that was in doubt.
    fn resolved(
        &mut self,
        session: DatabaseSession,
        chain: ChainId,
        end: Option<ChainEnd>,
        [before, after]: [ChainEnd; 2],
    ) -> Result<bool, Stopped> {
        let is_durable = end == Some(after);
        // What made the first row of a chain may be gone together with the commit that followed it.
        let is_undone = end == Some(before) || (end.is_none() && before == ChainEnd::FIRST);
        if !is_durable && !is_undone {
            let found = end.map(|end| end.seq);
            return Err(self.stop(&Failure::ChainChanged { found, left: after.seq }));
        }
        tracing::warn!(is_durable, seq = after.seq, "a commit is no longer in doubt");
        (self.session, self.chain) = (Some(session), end.map(|end| (chain, end)));
        Ok(is_durable)
    }
}
