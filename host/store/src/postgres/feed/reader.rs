//! What the feed knows, as other tasks see it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, watch};

use crate::postgres::host::HostId;
use crate::postgres::place::{ChainId, ServerId};

/// How far the commits of each chain are in the directory.
pub(crate) type Seen = BTreeMap<ChainId, i64>;

/// How far a directory was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectoryPoint {
    /// Where it was read; `None` if nothing was read.
    pub(in crate::postgres) server: Option<ServerId>,
    pub(in crate::postgres) seen: Seen,
}

/// The last look at the changes of other hosts.
#[derive(Clone)]
pub(super) struct Look {
    /// Whether it came to the end of the changes.
    pub(super) is_whole: bool,
    /// Grows with each look that found something, and when the directory was read anew.
    pub(super) news: u64,
    pub(super) point: Arc<DirectoryPoint>,
    /// This host, and the last sign of life of it that the look could see.
    pub(super) beat: Option<(HostId, i64)>,
}

/// What the feed knows, for the task that reports it.
pub(in crate::postgres) struct FeedReader {
    pub(super) looks: watch::Receiver<Look>,
    pub(super) wanted: Arc<Notify>,
    /// The directory has to be read anew.
    pub(super) has_gap: Arc<AtomicBool>,
}

impl FeedReader {
    /// How often something new was found.
    pub(in crate::postgres) fn news(&self) -> u64 {
        self.looks.borrow().news
    }

    /// How often something new was found, and how far the directory was read.
    pub(in crate::postgres) fn point(&self) -> (u64, Arc<DirectoryPoint>) {
        let look = self.looks.borrow();
        (look.news, Arc::clone(&look.point))
    }

    /// Waits until there may be news.
    pub(in crate::postgres) async fn until_news(&mut self) {
        if self.looks.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Has the whole directory read before the next look at changes: some of them may be deleted.
    pub(in crate::postgres) fn read_anew(&self) {
        self.has_gap.store(true, Ordering::Release);
    }

    /// Waits until all changes that were committed before this sign of life of this host are in the
    /// directory. A server that does not have the sign of life is not the primary, whatever it answers; it may
    /// have another one with the same number, which was never acknowledged.
    pub(in crate::postgres) async fn until_whole(&mut self, host: HostId, beat: i64, server: ServerId) {
        self.wanted.notify_one();
        let is_whole = |look: &Look| {
            look.is_whole
                && look.point.server == Some(server)
                && look.beat.is_some_and(|(of, seen)| of == host && seen >= beat)
        };
        if self.looks.wait_for(is_whole).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
