//! Writes log lines to standard error without blocking requests, even when its reader is slow or
//! stalls. A line is appended to a bounded buffer under a lock that is never held during a write.
//! One thread takes the lines that have gathered and writes them together, so that a busy host
//! needs one write and one wake-up every few milliseconds instead of one per line. Lines that do
//! not fit are dropped and counted; the count is logged when lines can be written again.

use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
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

/// The handle of the running logger. Dropping it writes the lines that are left.
pub struct Logging {
    shared: Arc<LogQueue>,
}

/// Accepts lines and never blocks on the output.
pub(super) struct LogLines {
    shared: Arc<LogQueue>,
}

struct LogQueue {
    waiting: Mutex<WaitingLine>,
    /// Signals lines to the writer thread, and the end of that thread to [`Logging`].
    changed: Condvar,
}

#[derive(Default)]
struct WaitingLine {
    text: Vec<u8>,
    /// Lines dropped since the last batch.
    lost: u64,
    /// The batch must be written at once.
    hurry: bool,
    writer: WriterState,
    stopping: bool,
}

/// The state of the writer thread; it decides whether a new line must wake it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum WriterState {
    /// It will look at the buffer before it waits again.
    #[default]
    Awake,
    /// It waits for a first line.
    Idle,
    /// It waits for more lines of a batch.
    Gathering,
    Ended,
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
        let shared = Arc::new(LogQueue { waiting: Mutex::default(), changed: Condvar::new() });
        let writers = Arc::clone(&shared);
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            writers.write(out, gather, report);
            writers.waiting().writer = WriterState::Ended;
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
        while waiting.writer != WriterState::Ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            waiting = self.shared.wait(waiting, left);
        }
    }
}

impl LogQueue {
    fn waiting(&self) -> MutexGuard<'_, WaitingLine> {
        // The code under the lock does not panic, and the buffer is consistent at any time.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'w>(&self, waiting: MutexGuard<'w, WaitingLine>, time: Duration) -> MutexGuard<'w, WaitingLine> {
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
            WriterState::Idle => true,
            WriterState::Gathering => waiting.hurry,
            WriterState::Awake | WriterState::Ended => false,
        };
        if wakes {
            // Wakes the thread once per batch: the next line finds it awake.
            waiting.writer = WriterState::Awake;
            drop(waiting);
            self.changed.notify_all();
        }
    }

    /// Waits for lines, moves them into `batch` and returns how many lines were dropped since the
    /// last batch. `None` when the logger stops and nothing is left.
    fn take(&self, batch: &mut Vec<u8>, gather: Duration) -> Option<u64> {
        let mut waiting = self.waiting();
        while waiting.text.is_empty() {
            if waiting.stopping {
                return None;
            }
            waiting.writer = WriterState::Idle;
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let end = Instant::now() + gather;
        while !waiting.hurry && !waiting.stopping {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            waiting.writer = WriterState::Gathering;
            waiting = self.wait(waiting, left);
        }
        waiting.writer = WriterState::Awake;
        waiting.hurry = false;
        mem::swap(&mut waiting.text, batch);
        Some(mem::take(&mut waiting.lost))
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
                Err(Torn(lines)) => lost += lines,
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
        LogLine { shared: &self.shared, urgent: false }
    }

    fn make_writer_for(&'l self, metadata: &Metadata<'_>) -> LogLine<'l> {
        // An error may be the last line before the program ends.
        LogLine { shared: &self.shared, urgent: *metadata.level() == Level::ERROR }
    }
}

/// Takes one line, which tracing passes in a single write.
pub(super) struct LogLine<'l> {
    shared: &'l LogQueue,
    urgent: bool,
}

impl Write for LogLine<'_> {
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
