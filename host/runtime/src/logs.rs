//! Guests' lines in the operator's log, through the import `log` and through WASI's standard output
//! and error. Lines are limited per call, and control characters are escaped, so that a guest can
//! neither forge lines nor control a terminal.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::bindings::cofferdam::plugin::log::Level;
use crate::profile::Profile;
use crate::services::HttpAccess;
use crate::tape::Tape;
use crate::text::is_shown;

/// Lines per call. Further lines are counted and dropped.
pub(crate) const LOG_LINES_MAX: u32 = 64;
/// Length limit of a line in bytes, before escaping. Longer lines are cut.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 4096;

/// The bytes of a line that are searched for secrets. A secret may begin in what is logged and end behind it.
const SEARCHED_BYTES_MAX: usize = LOG_LINE_BYTES_MAX + 64 * 1024;

/// Warnings and errors of a call that are kept for the log entry of a trap.
const LAST_WORDS_MAX: usize = 4;
/// Bytes that are kept of each.
const LAST_WORDS_BYTES_MAX: usize = 300;

/// Stands for a line with the value of a secret, which the guest has decoded from an answer.
const REMOVED: &[u8] = b"[removed: the line held a secret that was sent for this plugin]";

/// The log of one instance.
#[derive(Clone)]
pub(crate) struct GuestLog {
    plugin: Arc<Profile>,
    page: Arc<Mutex<LogContext>>,
    tape: Option<Arc<Tape>>,
}

/// The state of the current call.
struct LogContext {
    plugin: Arc<Profile>,
    /// Knows the secrets that were sent for the guest, if it may send any.
    http: Option<Arc<dyn HttpAccess>>,
    /// The id of the response or embedding that is being made.
    generation: Arc<str>,
    lines_left: u32,
    lines_dropped: u32,
    /// The latest warnings and errors of this call, cut, as the guest wrote them.
    last_words: VecDeque<Vec<u8>>,
}

impl LogContext {
    /// Logs how many lines were dropped since the last time.
    fn tell_dropped(&mut self) {
        let lines = std::mem::take(&mut self.lines_dropped);
        if lines > 0 {
            let (plugin, generation) = (self.plugin.name(), &*self.generation);
            tracing::warn!(target: "cofferdam::guest", plugin, generation, lines, most = LOG_LINES_MAX, "log lines of this plugin were dropped: it wrote more than a call may");
        }
    }
}

impl Drop for LogContext {
    fn drop(&mut self) {
        self.tell_dropped();
    }
}

impl GuestLog {
    pub(crate) fn new(
        plugin: Arc<Profile>,
        request_id: Arc<str>,
        http: Option<Arc<dyn HttpAccess>>,
        tape: Option<Arc<Tape>>,
    ) -> Self {
        let page = LogContext {
            plugin: Arc::clone(&plugin),
            http,
            generation: request_id,
            lines_left: LOG_LINES_MAX,
            lines_dropped: 0,
            last_words: VecDeque::new(),
        };
        Self { plugin, page: Arc::new(Mutex::new(page)), tape }
    }

    /// Starts a call with a full quota.
    pub(crate) fn renew(&self) {
        let mut page = self.page();
        page.tell_dropped();
        page.lines_left = LOG_LINES_MAX;
        page.last_words.clear();
    }

    /// Ends a call: logs how many of its lines were dropped.
    pub(crate) fn end(&self) {
        self.page().tell_dropped();
    }

    /// Sets the request under which lines are written from now on. The guest sends nothing in it.
    pub(crate) fn turn_to(&self, request_id: Arc<str>) {
        let mut page = self.page();
        (page.generation, page.http) = (request_id, None);
    }

    /// The latest warnings and errors of this call, in one line.
    pub(crate) fn last_words(&self) -> String {
        let page = self.page();
        let words: Vec<String> = page.last_words.iter().map(|words| printable(words)).collect();
        words.join(" | ")
    }

    fn page(&self) -> MutexGuard<'_, LogContext> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a line has the value of a secret that was sent for the guest.
    fn has_secret(&self, message: &[u8]) -> bool {
        let http = self.page().http.clone();
        let search = http.and_then(|http| http.sent_for(self.plugin.name()));
        search.is_some_and(|search| search.finds(&String::from_utf8_lossy(message)))
    }

    pub(crate) fn write(&self, level: Level, message: &[u8]) {
        // A search takes time by the length, and is not interrupted.
        let message = message.get(..SEARCHED_BYTES_MAX).unwrap_or(message);
        let message = if self.has_secret(message) { REMOVED } else { message };
        let Some(generation) = self.take_line(level, message) else {
            self.plugin.counters.dropped_line();
            return;
        };
        self.plugin.counters.logged();
        let line = printable(message);
        if let Some(tape) = &self.tape {
            tape.log(name_of(level), line.clone());
        }
        // The id of the HTTP request is added by the log's span.
        let (plugin, generation) = (self.plugin.name(), &*generation);
        match level {
            Level::Debug => tracing::debug!(target: "cofferdam::guest", plugin, generation, "{line}"),
            Level::Info => tracing::info!(target: "cofferdam::guest", plugin, generation, "{line}"),
            Level::Warn => tracing::warn!(target: "cofferdam::guest", plugin, generation, "{line}"),
            Level::Error => tracing::error!(target: "cofferdam::guest", plugin, generation, "{line}"),
        }
    }

    /// Takes one line of the quota. Returns the request to write it under, or `None` if the quota
    /// is spent.
    fn take_line(&self, level: Level, message: &[u8]) -> Option<Arc<str>> {
        let mut page = self.page();
        if matches!(level, Level::Warn | Level::Error) {
            if page.last_words.len() >= LAST_WORDS_MAX {
                page.last_words.pop_front();
            }
            page.last_words.push_back(message.get(..LAST_WORDS_BYTES_MAX).unwrap_or(message).to_vec());
        }
        let Some(left) = page.lines_left.checked_sub(1) else {
            page.lines_dropped = page.lines_dropped.saturating_add(1);
            return None;
        };
        page.lines_left = left;
        Some(Arc::clone(&page.generation))
    }
}

fn name_of(level: Level) -> &'static str {
    match level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    }
}

/// Cuts a line, replaces bytes that are not UTF-8 and escapes characters that are not printable.
fn printable(message: &[u8]) -> String {
    let cut = message.get(..LOG_LINE_BYTES_MAX).unwrap_or(message);
    let mut line = String::with_capacity(cut.len());
    for character in String::from_utf8_lossy(cut).chars() {
        if !is_shown(character) {
            line.extend(character.escape_unicode());
        } else {
            line.push(character);
        }
    }
    if cut.len() < message.len() {
        line.push_str(" [cut]");
    }
    line
}

/// One of a guest's standard streams.
pub(crate) struct GuestOutput {
    pub(crate) log: GuestLog,
    pub(crate) level: Level,
}

impl IsTerminal for GuestOutput {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestOutput {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(LineStream { log: self.log.clone(), level: self.level, line: Vec::new() })
    }

    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Only WASI 0.3 uses this form, which is not linked.
        Box::new(tokio::io::sink())
    }
}

/// Collects bytes until a line is complete.
struct LineStream {
    log: GuestLog,
    level: Level,
    line: Vec<u8>,
}

impl LineStream {
    fn end_line(&mut self) {
        if !self.line.is_empty() {
            self.log.write(self.level, &self.line);
            self.line.clear();
        }
    }
}

/// Traps on a write that is longer than [`LineStream::check_write`] permits. A guest may try that, and
/// epochs do not interrupt the host while it splits what it gets into lines.
fn check_length(bytes: &[u8]) -> StreamResult<()> {
    match bytes.len() {
        0..=LOG_LINE_BYTES_MAX => Ok(()),
        _ => Err(StreamError::trap("a write is longer than its stream permitted")),
    }
}

impl OutputStream for LineStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        check_length(&bytes)?;
        for byte in bytes {
            if byte == b'\n' {
                self.end_line();
            } else if self.line.len() < SEARCHED_BYTES_MAX {
                self.line.push(byte);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(LOG_LINE_BYTES_MAX)
    }
}

impl Drop for LineStream {
    fn drop(&mut self) {
        self.end_line();
    }
}

#[async_trait]
impl Pollable for LineStream {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_cannot_forge_lines_or_control_terminals() {
        assert_eq!(printable(b"a\nINFO fake\x1b[2J\x07\0"), "a\\u{a}INFO fake\\u{1b}[2J\\u{7}\\u{0}");
        assert_eq!(printable("x\u{2028}y\u{202e}z\u{85}".as_bytes()), "x\\u{2028}y\\u{202e}z\\u{85}");
        assert_eq!(printable(&[b'o', 0xff, b'k']), "o\u{fffd}k");
    }

    #[test]
    fn a_write_that_is_longer_than_permitted_traps() {
        assert!(check_length(&[b'\n'; LOG_LINE_BYTES_MAX]).is_ok());
        assert!(matches!(check_length(&[b'\n'; LOG_LINE_BYTES_MAX + 1]), Err(StreamError::Trap(_))));
    }

    #[test]
    fn long_lines_are_cut() {
        let line = printable(&vec![b'x'; LOG_LINE_BYTES_MAX * 3]);
        assert_eq!(line.len(), LOG_LINE_BYTES_MAX + " [cut]".len());
    }
}
