//! Moves over JSON text: tokens, strings, numbers and whole values that are not read.

use super::JsonError;

/// Powers of ten for numbers with this many digits after the point.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];
/// So many digits fit into 64 bits whatever they are.
const DIGITS_MAX: usize = 19;
/// Bytes that are searched at once.
const BLOCK: usize = 16;
/// Bytes of long strings that are searched at once.
const GROUP: usize = 4 * BLOCK;
/// Digits that are read at once.
const DIGITS_BLOCK: usize = 8;
const TEN_TO: [u64; DIGITS_BLOCK + 1] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// A number as far as it was read.
pub(super) enum Number<'de> {
    /// Without fraction and exponent.
    Whole {
        negative: bool,
        digits: u64,
    },
    Fraction(f64),
    /// A number with an exponent or with many digits.
    Other(&'de str),
}

pub(super) struct Scanner<'de> {
    text: &'de str,
    at: usize,
}

impl<'de> Scanner<'de> {
    pub(super) fn new(text: &'de str) -> Self {
        Self { text, at: 0 }
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space. Returns the byte after it without moving past it.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = self.byte()?;
            if byte > b' ' || !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Like [`Self::peek`], and moves past the byte.
    #[inline]
    pub(super) fn next_token(&mut self) -> Result<u8, JsonError> {
        let byte = self.peek().ok_or(JsonError)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn skip_byte(&mut self) {
        self.at += 1;
    }

    #[inline]
    pub(super) fn word(&mut self, word: &[u8]) -> Result<(), JsonError> {
        let end = self.at + word.len();
        if self.text.as_bytes().get(self.at..end) != Some(word) {
            return Err(JsonError);
        }
        self.at = end;
        Ok(())
    }

    #[inline]
    fn rest(&self) -> &'de [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    #[inline]
    fn since(&self, start: usize) -> Result<&'de str, JsonError> {
        self.text.get(start..self.at).ok_or(JsonError)
    }

    /// Reads a string after its opening quote: what is between the quotes, and whether it has escapes.
    #[inline]
    pub(super) fn string(&mut self) -> Result<(&'de str, bool), JsonError> {
        let start = self.at;
        let has_escapes = self.skip_string()?;
        let text = self.text.get(start..self.at - 1).ok_or(JsonError)?;
        Ok((text, has_escapes))
    }

    /// Skips a string after its opening quote. Returns whether it has escapes.
    #[inline]
    fn skip_string(&mut self) -> Result<bool, JsonError> {
        // Names and most other strings end within one block.
        if let Some(block) = self.rest().first_chunk::<BLOCK>() {
            let plain = plain_bytes(block);
            self.at += plain;
            if block.get(plain) == Some(&b'"') {
                self.at += 1;
                return Ok(false);
            }
        }
        self.skip_long_string()
    }

    #[inline(never)]
    fn skip_long_string(&mut self) -> Result<bool, JsonError> {
        let mut has_escapes = false;
        loop {
            self.at += count_plain(self.rest());
            let byte = self.byte().ok_or(JsonError)?;
            self.at += 1;
            match byte {
                b'"' => return Ok(has_escapes),
                b'\\' => {
                    self.skip_escape()?;
                    has_escapes = true;
                }
                // A control character.
                _ => return Err(JsonError),
            }
        }
    }

    fn skip_escape(&mut self) -> Result<(), JsonError> {
        let byte = self.byte().ok_or(JsonError)?;
        self.at += 1;
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let end = self.at + 4;
                let digits = self.text.as_bytes().get(self.at..end).ok_or(JsonError)?;
                self.at = end;
                if digits.iter().all(u8::is_ascii_hexdigit) { Ok(()) } else { Err(JsonError) }
            }
            _ => Err(JsonError),
        }
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<Number<'de>, JsonError> {
        let start = self.at;
        let text = self.rest();
        let (negative, text) = match text {
            [b'-', text @ ..] => (true, text),
            text => (false, text),
        };
        let leading_zero = text.first() == Some(&b'0');
        let (whole, mut digits, mut rest) = read_digits(text, 0);
        if whole == 0 || (leading_zero && whole > 1) {
            return Err(JsonError);
        }
        let (mut fraction, mut significant) = (0, whole);
        if let [b'.', decimals @ ..] = rest {
            (fraction, digits, rest) = read_digits(decimals, digits);
            if fraction == 0 {
                return Err(JsonError);
            }
            significant += fraction;
            if leading_zero && significant > DIGITS_MAX {
                // Most numbers of an embedding begin with zeros.
                let zeros = decimals.iter().take_while(|digit| **digit == b'0').count();
                significant = fraction - zeros.min(fraction);
            }
        }
        self.at = self.text.len() - rest.len();
        let is_exact = significant <= DIGITS_MAX && fraction < POWERS_OF_TEN.len();
        if !is_exact || matches!(rest.first(), Some(b'e' | b'E')) {
            self.skip_exponent()?;
            return self.since(start).map(Number::Other);
        }
        if fraction == 0 {
            return Ok(Number::Whole { negative, digits });
        }
        let power = POWERS_OF_TEN.get(fraction).ok_or(JsonError)?;
        let number = digits as f64 / power;
        Ok(Number::Fraction(if negative { -number } else { number }))
    }

    #[inline(never)]
    fn skip_exponent(&mut self) -> Result<(), JsonError> {
        if !matches!(self.byte(), Some(b'e' | b'E')) {
            return Ok(());
        }
        self.at += 1;
        if matches!(self.byte(), Some(b'+' | b'-')) {
            self.at += 1;
        }
        let (count, _, rest) = read_digits(self.rest(), 0);
        self.at = self.text.len() - rest.len();
        if count == 0 { Err(JsonError) } else { Ok(()) }
    }

    #[inline(never)]
    fn skip_number(&mut self) -> Result<(), JsonError> {
        self.number().map(|_| ())
    }

    /// Skips a name and the colon after it.
    fn skip_name(&mut self) -> Result<(), JsonError> {
        if self.next_token()? != b'"' {
            return Err(JsonError);
        }
        self.skip_string()?;
        if self.next_token()? == b':' { Ok(()) } else { Err(JsonError) }
    }

    /// The text of the next value.
    #[inline]
    pub(super) fn raw_value(&mut self) -> Result<&'de str, JsonError> {
        self.peek();
        let start = self.at;
        self.skip_value()?;
        self.since(start)
    }

    /// Skips the next value.
    #[inline]
    pub(super) fn skip_value(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{' | b'[') => self.skip_list_or_object(),
            _ => self.skip_scalar(),
        }
    }

    /// Skips a value without brackets, before which white space is already skipped.
    #[inline]
    fn skip_scalar(&mut self) -> Result<(), JsonError> {
        match self.byte() {
            Some(b'"') => {
                self.at += 1;
                self.skip_string().map(|_| ())
            }
            Some(b'n') => self.word(b"null"),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'-' | b'0'..=b'9') => self.skip_number(),
            _ => Err(JsonError),
        }
    }

    #[inline(never)]
    fn skip_list_or_object(&mut self) -> Result<(), JsonError> {
        let mut open = Brackets::default();
        loop {
            let is_inside = match self.peek() {
                Some(bracket @ (b'{' | b'[')) => self.enter(bracket, &mut open)?,
                _ => self.skip_scalar().map(|()| false)?,
            };
            if !is_inside && self.leave(&mut open)? {
                return Ok(());
            }
        }
    }

    /// Moves behind an opening bracket, to the first value in it. False if there is none.
    #[inline]
    fn enter(&mut self, bracket: u8, open: &mut Brackets) -> Result<bool, JsonError> {
        self.at += 1;
        let is_object = bracket == b'{';
        open.push(is_object);
        if self.peek() == Some(if is_object { b'}' } else { b']' }) {
            return Ok(false);
        }
        if is_object {
            self.skip_name()?;
        }
        Ok(true)
    }

    /// After a value: moves to the next one and leaves the brackets that close before it. Returns whether all are
    /// closed.
    #[inline]
    fn leave(&mut self, open: &mut Brackets) -> Result<bool, JsonError> {
        while let Some(is_object) = open.innermost() {
            match (self.next_token()?, is_object) {
                (b'}', true) | (b']', false) => open.pop(),
                (b',', true) => return self.skip_name().map(|()| false),
                (b',', false) => return Ok(false),
                _ => return Err(JsonError),
            }
        }
        Ok(true)
    }
}

/// The open brackets around a skipped value, one bit each, so that usual nesting needs no memory.
#[derive(Default)]
struct Brackets {
    depth: u32,
    /// The innermost 64 at most; the lowest bit is the innermost bracket. A bit is set for an object.
    objects: u64,
    outer: Vec<u64>,
}

impl Brackets {
    #[inline]
    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(u64::BITS) {
            self.outer.push(self.objects);
        }
        self.objects = self.objects << 1 | u64::from(is_object);
        self.depth += 1;
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
        self.objects = match self.depth {
            depth if depth > 0 && depth.is_multiple_of(u64::BITS) => self.outer.pop().unwrap_or_default(),
            _ => self.objects >> 1,
        };
    }

    #[inline]
    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.objects & 1 == 1)
    }
}

/// Appends the decimal digits at the start of `text` to a number. Returns how many they are, the number, and the text
/// after them.
#[inline]
fn read_digits(text: &[u8], mut number: u64) -> (usize, u64, &[u8]) {
    let mut rest = text;
    while let Some((block, after)) = rest.split_first_chunk::<DIGITS_BLOCK>() {
        let (count, value) = leading_digits(*block);
        number = number.wrapping_mul(TEN_TO.get(count).copied().unwrap_or_default()).wrapping_add(value);
        if count < DIGITS_BLOCK {
            rest = rest.get(count..).unwrap_or_default();
            return (text.len() - rest.len(), number, rest);
        }
        rest = after;
    }
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        rest = after;
    }
    (text.len() - rest.len(), number, rest)
}

/// How many digits the block starts with, and the number that they are.
#[inline]
fn leading_digits(block: [u8; DIGITS_BLOCK]) -> (usize, u64) {
    let digits = u64::from_le_bytes(block) ^ 0x3030_3030_3030_3030;
    // The highest bit of each byte that is no digit.
    let others = (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080;
    let bits = others.trailing_zeros() & !7;
    // Zeros stand before the digits. Each step joins neighbours: digits, pairs, fours.
    let digits = digits.checked_shl(u64::BITS - bits).unwrap_or_default();
    let pairs = (digits & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(10 << 8 | 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul(100 << 16 | 1) >> 16;
    let number = (fours & 0x0000_ffff_0000_ffff).wrapping_mul(10_000 << 32 | 1) >> 32;
    ((bits / 8) as usize, number)
}

/// How many bytes at the start of `text` stand for themselves.
fn count_plain(text: &[u8]) -> usize {
    let groups = text.as_chunks::<GROUP>().0;
    let mut count = groups.iter().take_while(|group| is_all_plain(group)).count() * GROUP;
    let (blocks, tail) = text.get(count..).unwrap_or_default().as_chunks::<BLOCK>();
    for block in blocks {
        let plain = plain_bytes(block);
        count += plain;
        if plain < BLOCK {
            return count;
        }
    }
    count + tail.iter().take_while(|byte| is_plain(**byte)).count()
}

/// Whether a byte of a string stands for itself.
#[inline]
fn is_plain(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

#[cfg(target_feature = "simd128")]
use wide::{is_all_plain, plain_bytes};

/// The search in blocks of 16 bytes.
#[cfg(target_feature = "simd128")]
mod wide {
    use std::arch::wasm32::{
        u8x16, u8x16_bitmask, u8x16_eq, u8x16_min, u8x16_splat, v128, v128_any_true, v128_or,
    };

    use super::{BLOCK, GROUP};

    /// How many bytes at the start of a block stand for themselves.
    #[inline]
    pub(super) fn plain_bytes(block: &[u8; BLOCK]) -> usize {
        let special = u32::from(u8x16_bitmask(special(block)));
        (special | 1 << BLOCK).trailing_zeros() as usize
    }

    /// Whether all bytes of a group stand for themselves.
    #[inline]
    pub(super) fn is_all_plain(group: &[u8; GROUP]) -> bool {
        let [a, b, c, d] = group.as_chunks::<BLOCK>().0 else { return false };
        !v128_any_true(v128_or(v128_or(special(a), special(b)), v128_or(special(c), special(d))))
    }

    /// Has all bits of those bytes set that do not stand for themselves.
    #[inline]
    fn special(block: &[u8; BLOCK]) -> v128 {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *block;
        let block = u8x16(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
        let quote = u8x16_eq(block, u8x16_splat(b'"'));
        let backslash = u8x16_eq(block, u8x16_splat(b'\\'));
        let control = u8x16_eq(u8x16_min(block, u8x16_splat(0x1f)), block);
        v128_or(v128_or(quote, backslash), control)
    }
}

/// How many bytes at the start of a block stand for themselves.
#[cfg(not(target_feature = "simd128"))]
#[inline]
fn plain_bytes(block: &[u8; BLOCK]) -> usize {
    block.iter().take_while(|byte| is_plain(**byte)).count()
}

/// Whether all bytes of a group stand for themselves.
#[cfg(not(target_feature = "simd128"))]
#[inline]
fn is_all_plain(group: &[u8; GROUP]) -> bool {
    group.iter().all(|byte| is_plain(*byte))
}
