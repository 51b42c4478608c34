//! The search for released secrets in the memory of guests, for tests; see [`cofferdam_store::canaries`]. After each call
//! of a guest the linear memories of all guests are searched: those that run, those that wait for their next call, and
//! what ended ones left in their places of the pool.
//!
//! Wasmtime shows no memory that a component does not export, so the pages are read as the system shows them: the pool
//! reserves one range of addresses, and whatever is mapped in it for writing is the memory of a guest.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cofferdam_store::canaries;
use serde::Serialize;

use crate::recording::json;

const PAGE_BYTES: u64 = 4096;
/// Bits of an entry of `pagemap`: the page is in memory, or swapped out.
const PAGE_IS_THERE: u64 = 3 << 62;

/// The pool's range of addresses, and what was done.
pub(crate) struct GuestMemories {
    pool: Range<u64>,
    memory: File,
    pages: File,
    started: Instant,
    spent_ns: AtomicU64,
    searches: AtomicU64,
    left_out: AtomicU64,
}

/// The mappings of this process.
fn mappings() -> io::Result<Vec<(Range<u64>, bool)>> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    let read = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (begin, end) = range.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        Some((number(begin)?..number(end)?, rest.starts_with("rw")))
    };
    Ok(text.lines().filter_map(read).collect())
}

/// The mappings before a pool is made.
pub(crate) struct BeforePool(Vec<(Range<u64>, bool)>);

impl BeforePool {
    /// None where nothing is searched for.
    pub(crate) fn note() -> Option<Self> {
        canaries::are_wanted().then(|| Self(mappings().unwrap_or_default()))
    }

    /// Finds the pool, which is the largest new range. None where this process may not read its own memory.
    pub(crate) fn find_pool(self) -> Option<GuestMemories> {
        let is_old = |at: u64| self.0.iter().any(|(old, _)| old.contains(&at));
        let fresh = mappings().ok()?.into_iter().map(|(range, _)| range).filter(|range| !is_old(range.start));
        let pool = fresh.max_by_key(|range| range.end - range.start)?;
        let opened =
            File::open("/proc/self/mem").and_then(|memory| Ok((memory, File::open("/proc/self/pagemap")?)));
        let (memory, pages) = opened
            .inspect_err(
                |error| tracing::warn!(%error, "the memory of guests cannot be searched for secrets"),
            )
            .ok()?;
        let (spent_ns, searches, left_out) = Default::default();
        Some(GuestMemories { pool, memory, pages, started: Instant::now(), spent_ns, searches, left_out })
    }
}

impl GuestMemories {
    /// Searches all guests after a call of one. Searches take at most half of the time of a process; calls beyond that
    /// are counted and left out.
    pub(crate) fn search(&self, plugin: &str, function: &str) {
        if canaries::known() == 0 {
            return;
        }
        let spent = Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed));
        if spent > self.started.elapsed() / 2 {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let started = Instant::now();
        let what = format!("the memory of guests after {plugin} {function}");
        for (range, is_written) in mappings().unwrap_or_default() {
            if is_written && self.pool.start <= range.start && range.end <= self.pool.end {
                // A page that another guest gives back in this moment cannot be read.
                drop(self.search_range(&what, range));
            }
        }
        let spent = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent_ns.fetch_add(spent, Ordering::Relaxed);
        self.searches.fetch_add(1, Ordering::Relaxed);
    }

    /// Searches the pages that are there, each run of them as one text.
    fn search_range(&self, what: &str, range: Range<u64>) -> io::Result<()> {
        let count = (range.end - range.start) / PAGE_BYTES;
        let mut entries = vec![0; usize::try_from(count * 8).unwrap_or(0)];
        self.pages.read_exact_at(&mut entries, range.start / PAGE_BYTES * 8)?;
        let is_there =
            |entry: &[u8]| entry.first_chunk().is_some_and(|it| u64::from_ne_bytes(*it) & PAGE_IS_THERE != 0);
        let (mut at, mut from) = (range.start, None);
        for entry in entries.chunks_exact(8) {
            match (from, is_there(entry)) {
                (None, true) => from = Some(at),
                (Some(begin), false) => {
                    self.search_pages(what, begin..at)?;
                    from = None;
                }
                _ => {}
            }
            at += PAGE_BYTES;
        }
        from.map_or(Ok(()), |begin| self.search_pages(what, begin..range.end))
    }

    fn search_pages(&self, what: &str, pages: Range<u64>) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(pages.end - pages.start).unwrap_or(0)];
        self.memory.read_exact_at(&mut bytes, pages.start)?;
        canaries::search(what, &bytes);
        Ok(())
    }
}

impl Drop for GuestMemories {
    fn drop(&mut self) {
        let [searches, left_out] =
            [&self.searches, &self.left_out].map(|count| count.load(Ordering::Relaxed));
        tracing::info!(values = canaries::known(), searches, left_out, "the memory of guests was searched");
    }
}

/// Searches what is handed to a guest.
pub(crate) fn search_handed(what: &'static str, value: &impl Serialize) {
    if canaries::known() > 0 {
        canaries::search(what, json::write(value).get().as_bytes());
    }
}
