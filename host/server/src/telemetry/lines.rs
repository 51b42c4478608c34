//! Writes log lines to standard error without blocking requests, even when its reader is slow or
//! stalls. A line is appended to a bounded buffer under a lock that is never held during a write.
//! One thread takes the lines that have gathered and writes them together, so that a busy host
//! needs one write and one wake-up every few milliseconds instead of one per line. Lines that do
//! not fit are dropped and counted; the count is logged when lines can be written again.

use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long the first line of a batch waits for more lines.
pub(super) const GATHER: Duration = Duration::from_millis(5);
/// The maximum size of the buffer, in bytes: about twenty thousand lines.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// A batch of this size is written at once.
const HURRY_BYTES: usize = 64 << 10;
/// A buffer that grew beyond this size in a burst is shrunk.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// How long the exit of the program waits for a reader that stalls.
const FAREWELL: Duration = Duration::from_secs(1);
/// The pause between tries while a non-blocking standard error is full.
const RETRY: Duration = Duration::from_millis(10);

/// Lines lost since the start of the process, which has one logger.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines lost since the start of the process.
pub(crate) fn lines_lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The handle of the running logger. Dropping it writes the lines that are left.
pub struct Logging {
    queue: Arc<LogQueue>,
    writer: Thread,
    /// Disconnected when the writer thread ends.
    ended: Receiver<()>,
}

/// Accepts lines and never blocks on the output.
pub(super) struct LogLines {
    queue: Arc<LogQueue>,
    writer: Thread,
}

#[derive(Default)]
struct LogQueue(Mutex<WaitingLines>);

#[derive(Default)]
struct WaitingLines {
    text: Vec<u8>,
    /// Lines dropped since the last batch.
    lost: u64,
    /// The batch must be written at once.
    hurry: bool,
    stopping: bool,
}

impl LogLines {
    /// Starts the thread that writes to `out`. It calls `report` with the number of lost lines once
    /// lines can be written again.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        gather: Duration,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, Logging)> {
        let queue = Arc::<LogQueue>::default();
        let writers = Arc::clone(&queue);
        let (running, ended) = sync_channel(0);
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || {
            writers.write(out, gather, report);
            drop(running);
        })?;
        let writer = thread.thread().clone();
        Ok((Self { queue: Arc::clone(&queue), writer: writer.clone() }, Logging { queue, writer, ended }))
    }

    fn append(&self, line: &[u8], urgent: bool) {
        #[cfg(debug_assertions)]
        cofferdam_store::canaries::search("a line of the log", line);
        let mut waiting = self.queue.lock();
        if line.len() > WAITING_BYTES_MAX - waiting.text.len() {
            waiting.lost += 1;
            LOST.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let is_first = waiting.text.is_empty();
        waiting.text.extend_from_slice(line);
        let hurries = !waiting.hurry && (urgent || waiting.text.len() >= HURRY_BYTES);
        waiting.hurry |= hurries;
        drop(waiting);
        // The thread waits for the first line of a batch, then for the end of a time or for a hurry.
        if is_first || hurries {
            self.writer.unpark();
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.queue.lock().stopping = true;
        self.writer.unpark();
        // Nothing is ever sent: this waits for the end of the thread.
        self.ended.recv_timeout(FAREWELL).unwrap_or_default();
    }
}

impl LogQueue {
    fn lock(&self) -> MutexGuard<'_, WaitingLines> {
        // The code under the lock does not panic, and the buffer is consistent at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for lines, moves them into `batch` and returns how many lines were dropped since the
    /// last batch. `None` when the logger stops and nothing is left. Runs on the writer thread: a
    /// line that comes between a look at the buffer and `park` makes `park` return at once.
    fn take(&self, batch: &mut Vec<u8>, gather: Duration) -> Option<u64> {
        let mut end = None;
        loop {
            let mut waiting = self.lock();
            if waiting.text.is_empty() && waiting.stopping {
                return None;
            }
            if waiting.text.is_empty() {
                drop(waiting);
                thread::park();
                continue;
            }
            let end = *end.get_or_insert_with(|| Instant::now() + gather);
            let left = end.saturating_duration_since(Instant::now());
            if waiting.hurry || waiting.stopping || left.is_zero() {
                waiting.hurry = false;
                mem::swap(&mut waiting.text, batch);
                return Some(mem::take(&mut waiting.lost));
            }
            drop(waiting);
            thread::park_timeout(left);
        }
    }

    /// Runs on the writer thread.
    fn write(&self, out: impl Write, gather: Duration, report: impl Fn(u64)) {
        let mut out = Out { to: out, torn: false };
        let mut batch = Vec::new();
        let mut lost = 0;
        while let Some(without_room) = self.take(&mut batch, gather) {
            lost += without_room;
            match out.write(&batch) {
                // Reported only after a successful write: a report that was lost itself would cause
                // another report.
                Ok(()) if lost > 0 => report(mem::take(&mut lost)),
                Ok(()) => {}
                Err(Torn(lines)) => {
                    lost += lines;
                    LOST.fetch_add(lines, Ordering::Relaxed);
                }
            }
            batch.clear();
            batch.shrink_to(KEPT_BYTES_MAX);
        }
    }
}

struct Out<W> {
    to: W,
    /// The last line was cut off by an error. A line break must come before the next line.
    torn: bool,
}

/// The number of lines that were not written completely.
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

    /// Writes all bytes. The error is the number of bytes that were written.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match self.to.write(rest) {
                Ok(0) => return Err(at),
                Ok(taken) => at += taken,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Standard error is non-blocking if another process that shares it has set that
                // flag.
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

impl<'l> MakeWriter<'l> for LogLines {
    type Writer = LogLine<'l>;

    fn make_writer(&'l self) -> LogLine<'l> {
        LogLine { lines: self, urgent: false }
    }

    fn make_writer_for(&'l self, metadata: &Metadata<'_>) -> LogLine<'l> {
        // An error may be the last line before the program ends.
        LogLine { lines: self, urgent: *metadata.level() == Level::ERROR }
    }
}

/// Takes one line, which tracing passes in a single write.
pub(super) struct LogLine<'l> {
    lines: &'l LogLines,
    urgent: bool,
}

impl Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.append(line, self.urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
