//! Answers that wait until every host has seen a change.
//!
//! The lane has committed and goes on; what waits is the answer to the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::contact::Hosts;
use super::host::{HostId, ThisHost};
use super::place::ChainId;
use crate::changes::AnswerAfter;
use crate::queue::{Ended, Job};

/// How long an answer waits for other hosts at most. A host that has not reported by then has lost contact,
/// which lasts 4.5 s, and refuses requests itself.
const ALL_HOSTS_MAX: Duration = Duration::from_millis(4750);
/// The same for a change that only adds something.
const SHORT_WAIT_MAX: Duration = Duration::from_millis(250);
/// The most answers that wait. Further ones tell that the outcome is not known.
const WAITING_MAX: usize = 4096;

/// Counts the answers that wait.
#[derive(Default)]
pub(super) struct Waiting {
    count: AtomicUsize,
    begun: Notify,
}

impl Waiting {
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Waits until one more group of answers waits.
    pub(super) async fn until_begun(&self) {
        self.begun.notified().await;
    }
}

/// Where lanes hand over answers that wait for other hosts.
#[derive(Clone)]
pub(super) struct Barrier {
    runtime: Handle,
    host: Arc<ThisHost>,
    hosts: watch::Receiver<Hosts>,
    waiting: Arc<Waiting>,
    /// Dropped with the last answer that waits.
    open: mpsc::Sender<()>,
}

/// Waits until nothing is handed over any more and nothing waits.
pub(super) struct Drained(mpsc::Receiver<()>);

impl Drained {
    /// Longest time until nothing waits, once the last lane has ended.
    pub(super) const PATIENCE: Duration = ALL_HOSTS_MAX.saturating_add(Duration::from_secs(1));

    pub(super) async fn wait(mut self) {
        while self.0.recv().await.is_some() {}
    }
}

impl Barrier {
    pub(super) fn new(
        runtime: Handle,
        host: Arc<ThisHost>,
        hosts: watch::Receiver<Hosts>,
        waiting: Arc<Waiting>,
    ) -> (Barrier, Drained) {
        let (open, drained) = mpsc::channel(1);
        (Barrier { runtime, host, hosts, waiting, open }, Drained(drained))
    }

    /// Answers these jobs of a durable commit once every other host has seen it, or when the longest wait
    /// is over.
    pub(super) fn hold(&self, jobs: Vec<Box<dyn Job>>, answer_after: AnswerAfter, chain: ChainId, seq: u64) {
        let patience = match answer_after {
            AnswerAfter::AllHosts => ALL_HOSTS_MAX,
            AnswerAfter::ShortWait => SHORT_WAIT_MAX,
        };
        let count = jobs.len();
        if self.waiting.count.fetch_add(count, Ordering::AcqRel) + count > WAITING_MAX {
            self.waiting.count.fetch_sub(count, Ordering::AcqRel);
            tracing::warn!(count, "too many answers wait for other hosts");
            jobs.into_iter().for_each(|job| job.answer(Ended::Unseen));
            return;
        }
        let committed = Instant::now();
        let Barrier { host, mut hosts, waiting, open, .. } = self.clone();
        self.runtime.spawn(async move {
            let is_seen = |hosts: &Hosts| is_seen(hosts, host.id(), committed, chain, seq);
            let end = committed + patience;
            match timeout_at(end, hosts.wait_for(is_seen)).await.map(|seen| seen.is_ok()) {
                Ok(true) => {}
                // The task that reads the other hosts has ended, so that nothing more becomes known of them.
                Ok(false) => sleep_until(end).await,
                Err(_) if answer_after == AnswerAfter::AllHosts => {
                    tracing::warn!("another host has not reported a change in time; it has lost contact");
                }
                Err(_) => {}
            }
            jobs.into_iter().for_each(|job| job.answer(Ended::Durable));
            waiting.count.fetch_sub(count, Ordering::AcqRel);
            drop(open);
        });
        self.waiting.begun.notify_one();
    }
}

/// Whether every other host has seen a commit, or has lost contact. `committed` is a time after the commit.
fn is_seen(hosts: &Hosts, own: HostId, committed: Instant, chain: ChainId, seq: u64) -> bool {
    // A host that is not listed yet reads the directory after it is, so it reads this commit.
    let is_new = hosts.asked.is_some_and(|asked| asked >= committed);
    let has_seen =
        |seen: Option<&i64>| seen.is_some_and(|seen| u64::try_from(*seen).is_ok_and(|seen| seen >= seq));
    let mut others = hosts.rows.iter().filter(|it| it.row.id != own);
    // The beat of the last contact was sent before it was seen here. A later one brings contact only with a
    // look at the changes, which finds this one.
    is_new && others.all(|it| has_seen(it.row.seen.get(&chain)) || it.since.elapsed() >= ALL_HOSTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::contact::KnownHost;
    use super::super::host::HostRow;
    use super::*;

    const OWN: HostId = HostId([1; 16]);
    const CHAIN: ChainId = ChainId([7; 16]);

    fn host(id: u8, seen: Option<i64>, stands_for: Duration) -> KnownHost {
        let seen = seen.map(|seq| (CHAIN, seq)).into_iter().collect();
        KnownHost {
            row: HostRow { id: HostId([id; 16]), beat: 1, seen, serves: true },
            since: Instant::now() - stands_for,
        }
    }

    #[test]
    fn a_commit_is_seen_when_every_other_host_has_reported_it_or_has_lost_contact() {
        let committed = Instant::now();
        let now = Duration::ZERO;
        let long = ALL_HOSTS_MAX + Duration::from_secs(1);
        let seen = |rows: Vec<KnownHost>| {
            let hosts = Hosts { asked: Some(Instant::now()), rows };
            is_seen(&hosts, OWN, committed, CHAIN, 5)
        };
        assert!(seen(Vec::new()));
        assert!(seen(vec![host(1, None, now)]), "this host itself is not waited for");
        assert!(seen(vec![host(1, None, now), host(2, Some(5), now), host(3, Some(9), now)]));
        assert!(!seen(vec![host(2, Some(5), now), host(3, Some(4), now)]));
        assert!(!seen(vec![host(2, None, now)]));
        assert!(seen(vec![host(2, None, long)]));
    }

    #[test]
    fn hosts_that_were_listed_before_a_commit_say_nothing_about_it() {
        let before = Hosts { asked: Some(Instant::now()), rows: Vec::new() };
        let committed = Instant::now() + Duration::from_millis(1);
        assert!(!is_seen(&before, OWN, committed, CHAIN, 5));
        assert!(!is_seen(&Hosts::default(), OWN, committed, CHAIN, 5));
    }
}
