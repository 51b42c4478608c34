//! Builds words and lines from positions on a page. PDF states where each character is, not which
//! characters form a word.

use cofferdam_text::Writer;
use hayro_font::hayro_cmap::BfString;

/// The thresholds for the same line, a new paragraph and a space, in font sizes.
const SAME_LINE: f64 = 0.5;
const PARAGRAPH: f64 = 1.9;
const BLANK: f64 = 0.17;
/// A move to the left by more than this starts a new line, in font sizes.
const JUMP_BACK: f64 = 1.0;
/// The least cosine between the directions of two characters of the same text, at about 45 degrees.
/// Characters along a curve turn by less.
const SAME_DIRECTION: f64 = 0.7;

/// A position on the page, in the units of the page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The height of the font at this position.
    pub(crate) size: f64,
    /// The direction in which the text runs, as a unit vector of the page.
    pub(crate) right: (f64, f64),
}

/// The unit vector of a direction. A direction without a length, or one that is not finite, is taken as
/// that of upright text.
pub(crate) fn unit(x: f64, y: f64) -> (f64, f64) {
    let length = x.hypot(y);
    if length.is_normal() { (x / length, y / length) } else { (1.0, 0.0) }
}

/// The text so far.
pub(crate) struct Layout {
    writer: Writer,
    /// Where the next character would be if it belonged to the same word.
    next: Option<Position>,
    cut: bool,
}

impl Layout {
    pub(crate) fn new(chars_max: usize) -> Self {
        Self { writer: Writer::new(chars_max), next: None, cut: false }
    }

    /// Whether the limit of characters is reached, or text was left out.
    pub(crate) fn is_full(&self) -> bool {
        self.cut || self.writer.is_full()
    }

    /// Records that text was left out.
    pub(crate) fn cut(&mut self) {
        self.cut = true;
    }

    pub(crate) fn begin_page(&mut self) {
        self.writer.block();
        self.next = None;
    }

    /// Adds a character at `position`. The next character of the same word would be at `next`.
    pub(crate) fn show(&mut self, text: &BfString, position: Position, next: Position) {
        if let Some(expected) = self.next {
            self.part(expected, position);
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
            // One glyph may stand for several characters; it is never split into words.
            self.writer.word(text);
        }
    }

    fn part(&mut self, expected: Position, position: Position) {
        let size = position.size.max(expected.size).max(f64::MIN_POSITIVE);
        let (right, down) = difference(expected, position);
        let (right, down) = (right / size, down / size);
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

/// How far `position` is from `expected`: along the text and across it. Text may run in any direction on
/// the page.
fn difference(expected: Position, position: Position) -> (f64, f64) {
    let (x, y) = (position.x - expected.x, position.y - expected.y);
    let ((a, b), (next_a, next_b)) = (expected.right, position.right);
    if a * next_a + b * next_b < SAME_DIRECTION {
        // The two have no direction in common, so only the distance counts.
        let distance = x.hypot(y);
        return (distance, distance);
    }
    (x * a + y * b, x * b - y * a)
}

/// The letters of a ligature, which fonts draw as one character.
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
