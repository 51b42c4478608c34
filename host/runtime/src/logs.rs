//! Lines from guests into the operator's log: through `log`, and through the
//! standard output and error of WASI. Bounded per call, control characters
//! escaped so that a guest cannot forge lines or drive a terminal.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::bindings::cofferdam::plugin::log::Level;
use crate::plugin::Profile;

/// Lines per call; more are counted and dropped.
pub(crate) const LOG_LINES_MAX: u32 = 64;
/// Bytes per line as the guest wrote it; longer ones are cut.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 4096;

/// Lines of a call that are kept in case it breaks.
const LAST_WORDS_MAX: usize = 4;
/// Bytes kept of each.
const LAST_WORDS_BYTES_MAX: usize = 300;

/// The log of one instance.
#[derive(Clone)]
pub(crate) struct GuestLog {
    plugin: Arc<Profile>,
    page: Arc<Mutex<Page>>,
}

/// What lines are written under now.
struct Page {
    plugin: Arc<Profile>,
    /// The id of the response or embedding that is made.
    generation: Arc<str>,
    lines_left: u32,
    lines_dropped: u32,
    /// The beginnings of the newest warnings and errors of this call, as the guest wrote them.
    last_words: VecDeque<Vec<u8>>,
}

impl Page {
    /// Tells how many lines were dropped since this was last told.
    fn tell_dropped(&mut self) {
        let lines = std::mem::take(&mut self.lines_dropped);
        if lines > 0 {
            let (plugin, generation) = (self.plugin.name(), &*self.generation);
            tracing::warn!(target: "cofferdam::guest", plugin, generation, lines, most = LOG_LINES_MAX, "log lines of this plugin were dropped: it wrote more than a call may");
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.tell_dropped();
    }
}

impl GuestLog {
    pub(crate) fn new(plugin: Arc<Profile>, request_id: Arc<str>) -> Self {
        let page = Page {
            plugin: Arc::clone(&plugin),
            generation: request_id,
            lines_left: LOG_LINES_MAX,
            lines_dropped: 0,
            last_words: VecDeque::new(),
        };
        Self { plugin, page: Arc::new(Mutex::new(page)) }
    }

    /// Gives the next call its full quota.
    pub(crate) fn renew(&self) {
        let mut page = self.page();
        page.tell_dropped();
        page.lines_left = LOG_LINES_MAX;
        page.last_words.clear();
    }

    /// Ends a call: tells how many of its lines were dropped.
    pub(crate) fn end(&self) {
        self.page().tell_dropped();
    }

    /// Writes under another request from now on.
    pub(crate) fn turn_to(&self, request_id: Arc<str>) {
        self.page().generation = request_id;
    }

    /// What the guest said last in this call.
    pub(crate) fn last_words(&self) -> String {
        let page = self.page();
        let words: Vec<String> = page.last_words.iter().map(|words| printable(words)).collect();
        words.join(" | ")
    }

    fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self, level: Level, message: &[u8]) {
        let Some(generation) = self.take_line(level, message) else {
            self.plugin.counters.dropped_line();
            return;
        };
        self.plugin.counters.logged();
        let line = printable(message);
        // The id of the request is added by the log itself.
        let (plugin, generation) = (self.plugin.name(), &*generation);
        match level {
            Level::Debug => tracing::debug!(target: "cofferdam::guest", plugin, generation, "{line}"),
            Level::Info => tracing::info!(target: "cofferdam::guest", plugin, generation, "{line}"),
            Level::Warn => tracing::warn!(target: "cofferdam::guest", plugin, generation, "{line}"),
            Level::Error => tracing::error!(target: "cofferdam::guest", plugin, generation, "{line}"),
        }
    }

    /// Takes one line of the quota; the request to write it under.
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

/// Cuts, replaces what is not UTF-8, escapes what is not printable.
fn printable(message: &[u8]) -> String {
    let cut = message.get(..LOG_LINE_BYTES_MAX).unwrap_or(message);
    let mut line = String::with_capacity(cut.len());
    for character in String::from_utf8_lossy(cut).chars() {
        if character.is_control() || is_invisible(character) {
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

/// Line and paragraph separators, and marks that reorder text on a terminal.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
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
        // Only the streams of WASI 0.3 ask for this form, and those are not linked.
        Box::new(tokio::io::sink())
    }
}

/// Collects bytes until a line is whole.
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

impl OutputStream for LineStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        for byte in bytes {
            if byte == b'\n' {
                self.end_line();
            } else if self.line.len() <= LOG_LINE_BYTES_MAX {
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
    fn lines_cannot_be_forged_and_terminals_not_driven() {
        assert_eq!(printable(b"a\nINFO fake\x1b[2J\x07\0"), "a\\u{a}INFO fake\\u{1b}[2J\\u{7}\\u{0}");
        assert_eq!(printable("x\u{2028}y\u{202e}z\u{85}".as_bytes()), "x\\u{2028}y\\u{202e}z\\u{85}");
        assert_eq!(printable(&[b'o', 0xff, b'k']), "o\u{fffd}k");
    }

    #[test]
    fn long_lines_are_cut() {
        let line = printable(&vec![b'x'; LOG_LINE_BYTES_MAX * 3]);
        assert_eq!(line.len(), LOG_LINE_BYTES_MAX + " [cut]".len());
    }
}
