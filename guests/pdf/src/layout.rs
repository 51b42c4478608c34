//! Words and lines from places on a page: the format says where each character
//! stands, not which belong together.

use cofferdam_text::Writer;
use hayro_font::hayro_cmap::BfString;

/// What counts as the same line, a new paragraph, and a blank, in font sizes.
const SAME_LINE: f64 = 0.5;
const PARAGRAPH: f64 = 1.9;
const BLANK: f64 = 0.17;
/// A jump back by more than this begins a line.
const JUMP_BACK: f64 = 1.0;

/// A place on the page, in its units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Height of the font there.
    pub(crate) size: f64,
}

/// The text so far.
pub(crate) struct Layout {
    writer: Writer,
    /// Where the next character would stand if it belonged to the same word.
    next: Option<Place>,
    cut: bool,
}

impl Layout {
    pub(crate) fn new(chars_max: usize) -> Self {
        Self { writer: Writer::new(chars_max), next: None, cut: false }
    }

    /// Whether there is as much text as may be, or more was left out.
    pub(crate) fn is_full(&self) -> bool {
        self.cut || self.writer.is_full()
    }

    /// Says that text was left out.
    pub(crate) fn cut(&mut self) {
        self.cut = true;
    }

    pub(crate) fn begin_page(&mut self) {
        self.writer.block();
        self.next = None;
    }

    /// A character at `place`; the next one of the word would stand at `next`.
    pub(crate) fn show(&mut self, text: &BfString, place: Place, next: Place) {
        if let Some(expected) = self.next {
            self.part(expected, place);
        }
        self.next = Some(next);
        let mut buffer = [0; 4];
        let text: &str = match text {
            BfString::Char(char) => letters(*char).unwrap_or_else(|| char.encode_utf8(&mut buffer)),
            BfString::String(text) => text,
        };
        if text.chars().all(|char| char.is_whitespace() || char.is_control()) {
            self.writer.space();
        } else {
            // A glyph of several characters is one word, whatever is in it.
            self.writer.word(text);
        }
    }

    fn part(&mut self, expected: Place, place: Place) {
        let size = place.size.max(expected.size).max(f64::MIN_POSITIVE);
        let (right, down) = ((place.x - expected.x) / size, (expected.y - place.y) / size);
        if down.abs() > PARAGRAPH {
            self.writer.block();
        } else if down.abs() > SAME_LINE || right < -JUMP_BACK {
            self.writer.line();
        } else if right > BLANK {
            self.writer.space();
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.writer.into_text()
    }
}

/// The letters of a ligature: fonts draw them as one, readers write them as two.
fn letters(ligature: char) -> Option<&'static str> {
    Some(match ligature {
        '\u{fb00}' => "ff",
        '\u{fb01}' => "fi",
        '\u{fb02}' => "fl",
        '\u{fb03}' => "ffi",
        '\u{fb04}' => "ffl",
        '\u{fb05}' | '\u{fb06}' => "st",
        _ => return None,
    })
}
