//! Writes text up to a limit, with white space between lines and blocks.

use crate::clip;

/// The deepest nesting of quotations and lists that is shown.
const DEPTH_MAX: usize = 8;

/// The white space between the last word and the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Space,
    Line,
    Blank,
}

/// Writes words, lines and blocks. Characters beyond the limit are dropped.
#[derive(Debug)]
pub struct Writer {
    text: String,
    chars_left: usize,
    full: bool,
    gap: Gap,
    /// Written once at the start of the next line: the mark of a list item or heading.
    mark: String,
    /// The number of quotations around the next line.
    pub quotes: usize,
    /// The number of lists around the next line.
    pub lists: usize,
}

impl Writer {
    /// An empty text with a limit of `chars_max` Unicode scalar values.
    #[must_use]
    pub fn new(chars_max: usize) -> Self {
        Self {
            text: String::new(),
            chars_left: chars_max,
            full: false,
            gap: Gap::None,
            mark: String::new(),
            quotes: 0,
            lists: 0,
        }
    }

    /// Whether something did not fit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// The text without white space at its end.
    #[must_use]
    pub fn into_text(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text
    }

    /// The next word starts a new line.
    pub fn line(&mut self) {
        self.gap = self.gap.max(Gap::Line);
    }

    /// The next word starts a new block. A mark without a word yet is kept.
    pub fn block(&mut self) {
        self.gap = Gap::Blank;
    }

    /// Drops the mark if no word has followed it.
    pub fn unmark(&mut self) {
        self.mark.clear();
    }

    /// The next word starts a new line or block with this mark.
    pub fn marked_line(&mut self, mark: &str) {
        self.line();
        mark.clone_into(&mut self.mark);
    }

    /// The next word is separated from the last one.
    pub fn space(&mut self) {
        self.gap = self.gap.max(Gap::Space);
    }

    /// Writes running text. White space is folded.
    pub fn flow(&mut self, text: &str) {
        if text.starts_with(char::is_whitespace) {
            self.space();
        }
        let mut words = text.split_whitespace();
        if let Some(first) = words.next() {
            self.word(first);
        }
        for word in words {
            self.space();
            self.word(word);
        }
        if text.ends_with(char::is_whitespace) {
            self.space();
        }
    }

    /// Writes a text that is not split, after the pending white space.
    pub fn word(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        self.settle();
        self.push(word);
    }

    /// Writes a text whose white space is kept.
    pub fn verbatim(&mut self, text: &str) {
        self.settle();
        self.push(text);
    }

    /// Appends a text to the last word.
    pub fn suffix(&mut self, text: &str) {
        self.push(text);
    }

    fn settle(&mut self) {
        let gap = std::mem::replace(&mut self.gap, Gap::None);
        let at_start = self.text.is_empty();
        match gap {
            Gap::None if !at_start => return,
            Gap::Space if !at_start => return self.push(" "),
            Gap::Line if !at_start => self.push("\n"),
            Gap::Blank if !at_start => self.push("\n\n"),
            _ => {}
        }
        let indent = self.lists.saturating_sub(1).min(DEPTH_MAX);
        let start = format!(
            "{}{}{}",
            "> ".repeat(self.quotes.min(DEPTH_MAX)),
            "  ".repeat(indent),
            std::mem::take(&mut self.mark)
        );
        self.push(&start);
    }

    fn push(&mut self, text: &str) {
        if self.full {
            return;
        }
        let clipped = clip(text, self.chars_left);
        self.full = clipped.cut;
        self.chars_left -= clipped.text.chars().count();
        self.text.push_str(clipped.text);
    }
}
