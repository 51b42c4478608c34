//! Counts over strings without resolving their escapes.
//!
//! Prompts are most of a body, so every count is a pass of which the compiler makes instructions for
//! many bytes at once, or a search with `memchr`.

use memchr::memchr_iter;

/// Counts over one text. Characters are exact; the other counts are estimates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct TextCounts {
    /// Unicode scalar values.
    pub(in super::super) chars: u64,
    /// Digits and mathematical signs.
    pub(in super::super) math: u64,
    /// Code fences of three backticks.
    pub(in super::super) fences: u64,
    /// Question marks.
    pub(in super::super) questions: u64,
}

impl TextCounts {
    /// Counts over a string, given its source text and whether it has escapes.
    pub(super) fn of(text: &str, escaped: bool) -> Self {
        let bytes = text.as_bytes();
        let ByteCounts { math: ascii, questions: plain, chars: written } = ByteCounts::of(bytes);
        let chars = resolved(written, bytes, escaped);
        // A text with as many characters as bytes is ASCII only.
        let (signs, wide) = if chars < bytes.len() {
            (math_signs(bytes), occurrences(bytes, "？".as_bytes()))
        } else {
            (0, 0)
        };
        Self {
            chars: chars as u64,
            math: (ascii + signs) as u64,
            fences: occurrences(bytes, b"```") as u64,
            questions: (plain + wide) as u64,
        }
    }

    /// Adds another text.
    pub(in super::super) fn add(&mut self, other: Self) {
        self.chars += other.chars;
        self.math += other.math;
        self.fences += other.fences;
        self.questions += other.questions;
    }
}

/// Counts occurrences without overlap. The first byte of the needle should be rare.
fn occurrences(bytes: &[u8], needle: &[u8]) -> usize {
    let Some(&first) = needle.first() else { return 0 };
    let mut from = 0;
    let found = memchr_iter(first, bytes).filter(|&at| {
        let hit = at >= from && bytes.get(at..).is_some_and(|rest| rest.starts_with(needle));
        if hit {
            from = at + needle.len();
        }
        hit
    });
    found.count()
}

/// Counts of single bytes.
#[derive(Default)]
struct ByteCounts {
    math: usize,
    questions: usize,
    /// Characters of the source text: bytes that do not continue one.
    chars: usize,
}

/// Length of a block in bytes: its counts fit into a byte, so that a vector holds many of them.
const BLOCK: usize = 240;

impl ByteCounts {
    fn of(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        for block in bytes.chunks(BLOCK) {
            let (mut math, mut questions, mut chars) = (0_u8, 0_u8, 0_u8);
            for &byte in block {
                math += u8::from(is_math(byte));
                questions += u8::from(byte == b'?');
                chars += u8::from(byte & 0xC0 != 0x80);
            }
            all.math += usize::from(math);
            all.questions += usize::from(questions);
            all.chars += usize::from(chars);
        }
        all
    }
}

/// Hyphens, asterisks and slashes do not count: in prose they are punctuation, list marks and
/// paths. Comparisons without branches; `<`, `=` and `>` follow each other.
const fn is_math(byte: u8) -> bool {
    byte.is_ascii_digit() | (byte.wrapping_sub(b'<') < 3) | (byte == b'+') | (byte == b'^') | (byte == b'%')
}

/// ± × ÷ and the block of mathematical operators, U+2200 to U+22FF.
fn math_signs(bytes: &[u8]) -> usize {
    let follows = |at: usize| bytes.get(at + 1).copied().unwrap_or_default();
    memchr::memchr3_iter(0xE2, 0xC2, 0xC3, bytes)
        .filter(|&at| match bytes.get(at) {
            Some(0xE2) => (0x88..=0x8B).contains(&follows(at)),
            Some(0xC2) => follows(at) == 0xB1,
            _ => matches!(follows(at), 0x97 | 0xB7),
        })
        .count()
}

/// Unicode scalar values of a string, given its source text.
pub(super) fn chars(text: &str, escaped: bool) -> usize {
    resolved(text.chars().count(), text.as_bytes(), escaped)
}

/// The characters that a source text of `written` characters represents.
fn resolved(written: usize, bytes: &[u8], escaped: bool) -> usize {
    if escaped { written.saturating_sub(surplus(bytes)) } else { written }
}

/// By how many characters the escapes in the source text exceed the characters that they represent.
fn surplus(bytes: &[u8]) -> usize {
    let mut surplus = 0;
    let mut skip_to = 0;
    for at in memchr_iter(b'\\', bytes) {
        if at < skip_to {
            continue;
        }
        // A surrogate pair takes 12 bytes, `\uXXXX` takes 6 and all other escapes take 2.
        let length = match bytes.get(at + 1..at + 4) {
            Some([b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B']) => 12,
            Some([b'u', ..]) => 6,
            _ => 2,
        };
        surplus += length - 1;
        skip_to = at + length;
    }
    surplus
}
