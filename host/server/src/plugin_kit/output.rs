//! What long work shows: a line of the terminal with the seconds so far, and the output of the
//! programs that it runs, which is bounded.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use clap::builder::styling::{AnsiColor, Style};

use crate::start::ask;

/// How much output of one process is kept from its begin, and as much from its end.
const KEPT_BYTES: usize = 128 * 1024;
/// How much output of one process is printed.
const PRINTED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A line of the terminal that says what runs and for how long. Erased when dropped. Nothing is
/// shown where standard error is not a terminal.
pub(super) struct Elapsed {
    title: String,
    wanted: bool,
    started: Instant,
    /// The seconds that the line shows; zero without a line.
    shown: u64,
    /// Whether the output above the line ends with a line end.
    is_free: bool,
}

impl Elapsed {
    pub(super) fn new(title: &str) -> Self {
        let wanted = !title.is_empty() && std::io::stderr().is_terminal();
        Self { title: title.to_owned(), wanted, started: Instant::now(), shown: 0, is_free: true }
    }

    /// Writes the line once a second. Nothing is shown for what ends within a second.
    pub(super) fn show(&mut self) {
        let seconds = self.started.elapsed().as_secs();
        if self.wanted && self.is_free && seconds > self.shown {
            self.shown = seconds;
            ask(&format!("\r{}, {seconds} s\x1b[K", self.title));
        }
    }

    fn erase(&mut self) {
        if self.shown > 0 {
            self.shown = 0;
            ask("\r\x1b[K");
        }
    }
}

impl Drop for Elapsed {
    fn drop(&mut self) {
        self.erase();
    }
}

/// The output of one process on standard error.
#[derive(Default)]
pub(super) struct ScreenOutput {
    printed: usize,
}

impl ScreenOutput {
    /// Prints a piece of output above the line of the terminal.
    pub(super) fn write(&mut self, line: &mut Elapsed, bytes: &[u8]) {
        if self.printed >= PRINTED_BYTES_MAX {
            return;
        }
        line.erase();
        let shown = bytes.get(..PRINTED_BYTES_MAX - self.printed).unwrap_or(bytes);
        self.printed += shown.len();
        let mut screen = std::io::stderr().lock();
        // A failure to print does not end the work.
        drop(screen.write_all(shown).and_then(|()| screen.flush()));
        drop(screen);
        line.is_free = shown.ends_with(b"\n");
        if self.printed >= PRINTED_BYTES_MAX {
            ask(&format!("\n[more than {} MiB of output: the rest is not shown]\n", PRINTED_BYTES_MAX >> 20));
            line.is_free = true;
        }
    }
}

/// The output of one process as a text: its begin and its end, if it is long.
#[derive(Default)]
pub(super) struct OutputText {
    begin: Vec<u8>,
    end: VecDeque<u8>,
    left_out: usize,
}

impl OutputText {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = KEPT_BYTES - self.begin.len();
        let (first, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.begin.extend_from_slice(first);
        self.end.extend(rest);
        let over = self.end.len().saturating_sub(KEPT_BYTES);
        self.end.drain(..over);
        self.left_out += over;
    }

    pub(super) fn into_text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.begin).into_owned();
        if self.left_out > 0 {
            text.push_str(&format!("\n[{} bytes are left out]\n", self.left_out));
        }
        let end: Vec<u8> = self.end.into();
        text.push_str(&String::from_utf8_lossy(&end));
        text
    }
}

/// How the lines of `plugin dev` are marked. Empty styles print nothing.
pub(super) struct Marks {
    pub(super) good: Style,
    pub(super) bad: Style,
}

impl Marks {
    /// Colours if standard output is a terminal, unless `NO_COLOR` has a value.
    pub(super) fn of_this_output() -> Self {
        let has_value = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if !std::io::stdout().is_terminal() || has_value("NO_COLOR") || is_dumb {
            return Self { good: Style::new(), bad: Style::new() };
        }
        Self { good: AnsiColor::Green.on_default(), bad: AnsiColor::Red.on_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_BYTES, OutputText};

    #[test]
    fn long_output_keeps_its_begin_and_its_end() {
        let mut output = OutputText::default();
        output.push(b"first\n");
        for _ in 0..KEPT_BYTES {
            output.push(b"some ");
        }
        output.push(b"\nlast");
        let text = output.into_text();
        assert!(text.starts_with("first\nsome "), "{}", &text[..40]);
        assert!(text.ends_with(" \nlast"));
        assert!(text.contains("\n[393227 bytes are left out]\n"), "{}", text.len());
        assert!(text.len() < 2 * KEPT_BYTES + 100);
    }

    #[test]
    fn short_output_is_kept_whole() {
        let mut output = OutputText::default();
        output.push(b"one\n");
        output.push(b"two\n");
        assert_eq!(output.into_text(), "one\ntwo\n");
    }
}
