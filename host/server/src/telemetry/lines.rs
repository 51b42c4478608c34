//! Lines on their way to standard error. Whoever reads it may be slow or stall:
//! requests never wait for that. They append to a bounded buffer under a lock that
//! is never held while something is written; one thread takes what has gathered
//! and writes it at once, so that a busy host pays one write and one wake-up per
//! some milliseconds and not per line. What does not fit is lost, counted, and
//! reported when lines are taken again.

use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long the first line of a batch waits for more.
pub(super) const GATHER: Duration = Duration::from_millis(5);
/// What may wait to be written, in bytes: some twenty thousand lines.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// From here on a batch waits for nothing more.
const HURRY_BYTES: usize = 64 << 10;
/// A buffer that has grown beyond this in a burst is given back.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// How long the end of the program waits for a reader that stalls.
const FAREWELL: Duration = Duration::from_secs(1);
/// Between two tries when standard error takes nothing and says so.
const RETRY: Duration = Duration::from_millis(10);

/// Logging that runs. What waits is written when this is dropped.
pub struct Logging {
    shared: Arc<Shared>,
}

/// Takes lines and never waits.
pub(super) struct Lines {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    /// The writer waits here for lines, and whoever ends it for its end.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    text: Vec<u8>,
    /// Lines that found no room since the last batch.
    lost: u64,
    /// What is in the text should not wait for more.
    hurry: bool,
    writer: Writer,
    stopping: bool,
}

/// What the writing thread is doing, as far as waking it goes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Writer {
    /// It looks at the text before it waits again.
    #[default]
    Awake,
    /// It waits for a first line.
    Idle,
    /// It waits for more lines.
    Gathering,
    /// It has ended.
    Ended,
}

impl Lines {
    /// Starts the thread that writes to `out`. It calls `report` with the number of
    /// lines that were lost once lines can be written again.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        gather: Duration,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, Logging)> {
        let shared = Arc::new(Shared { waiting: Mutex::default(), changed: Condvar::new() });
        let writers = Arc::clone(&shared);
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            writers.write(out, gather, report);
            writers.waiting().writer = Writer::Ended;
            writers.changed.notify_all();
        })?;
        Ok((Self { shared: Arc::clone(&shared) }, Logging { shared }))
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting();
        waiting.stopping = true;
        self.shared.changed.notify_all();
        let end = Instant::now() + FAREWELL;
        while waiting.writer != Writer::Ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            waiting = self.shared.wait(waiting, left);
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that panics is done under the lock, and what is there is whole at any time.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'w>(&self, waiting: MutexGuard<'w, Waiting>, time: Duration) -> MutexGuard<'w, Waiting> {
        self.changed.wait_timeout(waiting, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn append(&self, line: &[u8], urgent: bool) {
        let mut waiting = self.waiting();
        if line.len() > WAITING_BYTES_MAX - waiting.text.len() {
            waiting.lost += 1;
            return;
        }
        waiting.text.extend_from_slice(line);
        waiting.hurry |= urgent || waiting.text.len() >= HURRY_BYTES;
        let wakes = match waiting.writer {
            Writer::Idle => true,
            Writer::Gathering => waiting.hurry,
            Writer::Awake | Writer::Ended => false,
        };
        if wakes {
            // Once per batch: the next line finds it awake.
            waiting.writer = Writer::Awake;
            drop(waiting);
            self.changed.notify_all();
        }
    }

    /// Waits for lines and takes what has gathered into `batch`, and how many were
    /// lost after it. `None` when the end has come and everything was taken.
    fn take(&self, batch: &mut Vec<u8>, gather: Duration) -> Option<u64> {
        let mut waiting = self.waiting();
        while waiting.text.is_empty() {
            if waiting.stopping {
                return None;
            }
            waiting.writer = Writer::Idle;
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let end = Instant::now() + gather;
        while !waiting.hurry && !waiting.stopping {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            waiting.writer = Writer::Gathering;
            waiting = self.wait(waiting, left);
        }
        waiting.writer = Writer::Awake;
        waiting.hurry = false;
        mem::swap(&mut waiting.text, batch);
        Some(mem::take(&mut waiting.lost))
    }

    /// The writing thread.
    fn write(&self, out: impl Write, gather: Duration, report: impl Fn(u64)) {
        let mut out = Out { to: out, torn: false };
        let mut batch = Vec::new();
        let mut lost = 0;
        while let Some(without_room) = self.take(&mut batch, gather) {
            lost += without_room;
            match out.write(&batch) {
                // Only now: a report that is lost itself would cause the next.
                Ok(()) if lost > 0 => report(mem::take(&mut lost)),
                Ok(()) => {}
                Err(Torn(lines)) => lost += lines,
            }
            batch.clear();
            batch.shrink_to(KEPT_BYTES_MAX);
        }
    }
}

/// Where the lines go.
struct Out<W> {
    to: W,
    /// A line was cut off by an error, and the next must not be glued to it.
    torn: bool,
}

/// So many lines of a batch were not written, at least not in full.
struct Torn(u64);

impl<W: Write> Out<W> {
    fn write(&mut self, batch: &[u8]) -> Result<(), Torn> {
        if self.torn && self.write_all(b"\n").is_err() {
            return Err(Torn(lines(batch)));
        }
        let written = self.write_all(batch);
        let rest = match written {
            Ok(()) => &[],
            Err(at) => batch.get(at..).unwrap_or_default(),
        };
        self.torn = !rest.is_empty() && rest.len() < batch.len();
        if rest.is_empty() { Ok(()) } else { Err(Torn(lines(rest))) }
    }

    /// Writes all bytes, or returns how many were written.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match self.to.write(rest) {
                Ok(0) => return Err(at),
                Ok(taken) => at += taken,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Somebody has made our standard error non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park_timeout(RETRY),
                Err(_) => return Err(at),
            }
        }
        Ok(())
    }
}

fn lines(text: &[u8]) -> u64 {
    text.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

impl<'l> MakeWriter<'l> for Lines {
    type Writer = Line<'l>;

    fn make_writer(&'l self) -> Line<'l> {
        Line { shared: &self.shared, urgent: false }
    }

    fn make_writer_for(&'l self, metadata: &Metadata<'_>) -> Line<'l> {
        // What is wrong may be the last thing this program says.
        Line { shared: &self.shared, urgent: *metadata.level() == Level::ERROR }
    }
}

/// Takes one line, which comes in one write.
pub(super) struct Line<'l> {
    shared: &'l Shared,
    urgent: bool,
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.shared.append(line, self.urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
