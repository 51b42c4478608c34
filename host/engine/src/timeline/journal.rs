//! What happened in one request, as bytes: entries one after the other, in the order in which they became known. A usual
//! request takes 700 bytes, and noting something is a short copy behind what was noted just before. Entries are read only
//! when an operator looks.
//!
//! An entry is a byte for its kind and then its members in their order; numbers have their lowest byte first.

use super::step::{Fact, FactName, FactValue, StepType};
use std::mem::take;

/// The most steps of one request. Further ones are counted only.
pub(super) const STEPS_MAX: u16 = 256;
/// The most facts of one request.
const FACTS_MAX: u16 = 1024;
/// The most ends of steps. A step has one, and a second one does not count.
const ENDS_MAX: u16 = 2 * STEPS_MAX;
/// The most bytes of all names of the steps and facts of one request.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// The most bytes of one name of a step or fact.
const NAME_BYTES_MAX: usize = 128;
/// The most bytes of one text of the request itself: its id and its models.
const HEAD_TEXT_BYTES_MAX: usize = 512;
/// Room for the entries of a usual request.
const USUAL_BYTES: usize = 1 << 10;

/// The kinds of entries, each with its members. Steps have two bytes and times [`TIME_BYTES`].
mod kind {
    /// A text of the request itself: its length in two bytes, the text.
    pub(super) const HEAD_TEXT: u8 = 0;
    /// A step begins: its type, the step that it is a part of, the time, the length of its name, the name.
    pub(super) const BEGIN: u8 = 1;
    /// A step ends: its number, the time, the length of the outcome, the outcome. No length: `ok`.
    pub(super) const END: u8 = 2;
    /// The call of a guest ends: as above, with the processor time after the time.
    pub(super) const END_CALL: u8 = 3;
    /// A fact about a step: the name of the fact, the step, the number in four bytes.
    pub(super) const NUMBER: u8 = 4;
    /// The same with a number that needs eight bytes.
    pub(super) const LARGE: u8 = 5;
    /// The same with a text: its length, the text.
    pub(super) const TEXT: u8 = 6;
}

/// What is written when all is well.
const OK: &str = "ok";

/// The bytes of a number of microseconds: enough for twelve days. A request may take one.
const TIME_BYTES: usize = 5;

/// One entry that is about a step. Times are in microseconds since the request began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Entry<'a> {
    /// Steps are numbered from 1 in the order of these entries. `parent` is the number of the step that this one is a part
    /// of; 0 is the request itself.
    Begin { step_type: StepType, parent: u16, at_us: u64, name: &'a str },
    /// Of two ends of a step the first one counts.
    End { step: u16, end: StepEnd<'a> },
    /// Of two facts of a step with the same name the later one counts.
    Fact { step: u16, fact: Fact<'a> },
}

impl Entry<'_> {
    /// The step that it is about, unless it begins one.
    pub(super) fn step(&self) -> Option<u16> {
        match self {
            Self::Begin { .. } => None,
            Self::End { step, .. } | Self::Fact { step, .. } => Some(*step),
        }
    }
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepEnd<'a> {
    pub(super) at_us: u64,
    /// Processor time of the guest, where it is measured.
    pub(super) busy_us: Option<u64>,
    /// `ok`, or a fixed word for what went wrong.
    pub(super) outcome: &'a str,
}

/// Where a text of the request itself is in the bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadText {
    start: u32,
    length: u16,
}

/// The entries of one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    bytes: Vec<u8>,
    /// The bytes of all names of steps and facts.
    text_bytes: usize,
    steps: u16,
    facts: u16,
    ends: u16,
}

impl Journal {
    /// A journal of these bytes, to read it.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// The same memory without entries.
    pub(super) fn emptied(&mut self) -> Self {
        let mut bytes = take(&mut self.bytes);
        bytes.clear();
        bytes.reserve(USUAL_BYTES);
        Self::of(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether it takes no more memory than a few usual requests.
    pub(super) fn is_small(&self) -> bool {
        self.bytes.capacity() <= 4 * USUAL_BYTES
    }

    /// Adds a text of the request itself.
    pub(super) fn add_head(&mut self, text: &str) -> HeadText {
        let text = cut(text, HEAD_TEXT_BYTES_MAX);
        let length = text.len() as u16;
        let [low, high] = length.to_le_bytes();
        self.bytes.extend_from_slice(&[kind::HEAD_TEXT, low, high]);
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        HeadText { start, length }
    }

    /// A text of the request itself.
    pub(super) fn head(&self, text: HeadText) -> &str {
        let start = text.start as usize;
        let bytes = self.bytes.get(start..start + usize::from(text.length));
        bytes.and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Begins a step whose name consists of `parts`. Returns its number; `None` where there is no room for it.
    pub(super) fn begin(
        &mut self,
        parent: u16,
        step_type: StepType,
        parts: &[&str],
        at_us: u64,
    ) -> Option<u16> {
        if self.steps >= STEPS_MAX {
            return None;
        }
        self.steps += 1;
        let ([low, high], [a, b, c, d, e]) = (parent.to_le_bytes(), time(at_us));
        self.bytes.extend_from_slice(&[kind::BEGIN, step_type as u8, low, high, a, b, c, d, e, 0]);
        self.put_name(parts);
        Some(self.steps)
    }

    /// Ends a step.
    pub(super) fn end(&mut self, step: u16, end: StepEnd<'_>) {
        if self.ends >= ENDS_MAX {
            return;
        }
        self.ends += 1;
        let StepEnd { at_us, busy_us, outcome } = end;
        let outcome = if outcome == OK { "" } else { cut(outcome, NAME_BYTES_MAX) };
        let length = outcome.len() as u8;
        let ([low, high], [a, b, c, d, e]) = (step.to_le_bytes(), time(at_us));
        match busy_us.map(time) {
            None => self.bytes.extend_from_slice(&[kind::END, low, high, a, b, c, d, e, length]),
            Some([f, g, h, i, j]) => {
                let entry = [kind::END_CALL, low, high, a, b, c, d, e, f, g, h, i, j, length];
                self.bytes.extend_from_slice(&entry);
            }
        }
        if length > 0 {
            self.bytes.extend_from_slice(outcome.as_bytes());
        }
    }

    /// Adds a fact to a step.
    pub(super) fn add(&mut self, step: u16, fact: &Fact<'_>) {
        if self.facts >= FACTS_MAX {
            return;
        }
        self.facts += 1;
        let (name, [low, high]) = (fact.name as u8, step.to_le_bytes());
        match fact.value {
            FactValue::Text(text) => {
                self.bytes.extend_from_slice(&[kind::TEXT, name, low, high, 0]);
                self.put_name(&[text]);
            }
            FactValue::Number(number) => match u32::try_from(number).map(u32::to_le_bytes) {
                Ok([a, b, c, d]) => {
                    self.bytes.extend_from_slice(&[kind::NUMBER, name, low, high, a, b, c, d]);
                }
                Err(_) => {
                    self.bytes.extend_from_slice(&[kind::LARGE, name, low, high]);
                    self.bytes.extend_from_slice(&number.to_le_bytes());
                }
            },
        }
    }

    /// The entries that are about steps, in the order in which they were added.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut unread = Unread(&self.bytes);
        std::iter::from_fn(move || unread.entry())
    }

    /// Puts in as much of a name as there is room for, and its length into the byte before it. Its parts are separated by
    /// spaces.
    fn put_name(&mut self, parts: &[&str]) {
        let start = self.bytes.len();
        for (n, part) in parts.iter().enumerate() {
            if n > 0 {
                self.bytes.push(b' ');
            }
            self.bytes.extend_from_slice(part.as_bytes());
        }
        let room = NAME_BYTES_MAX.min(TEXT_BYTES_MAX - self.text_bytes);
        if self.bytes.len() - start > room {
            self.shorten(start, room);
        }
        let length = self.bytes.len() - start;
        self.text_bytes += length;
        if let Some(before) = self.bytes.get_mut(start - 1) {
            *before = length as u8;
        }
    }

    /// Cuts off what follows these bytes of the text that begins at `start`.
    #[cold]
    fn shorten(&mut self, start: usize, bytes: usize) {
        let text = self.bytes.get(start..).and_then(|text| str::from_utf8(text).ok());
        let length = text.map_or(0, |text| cut(text, bytes).len());
        self.bytes.truncate(start + length);
    }
}

/// The bytes that are not read yet.
struct Unread<'a>(&'a [u8]);

impl<'a> Unread<'a> {
    /// The next entry that is about a step; `None` at the end.
    fn entry(&mut self) -> Option<Entry<'a>> {
        loop {
            let [kind] = self.take()?;
            return match kind {
                kind::HEAD_TEXT => {
                    let length = u16::from_le_bytes(self.take()?);
                    self.text(length.into())?;
                    continue;
                }
                kind::BEGIN => self.begin(),
                kind::END | kind::END_CALL => self.end(kind == kind::END_CALL),
                _ => self.fact(kind),
            };
        }
    }

    fn begin(&mut self) -> Option<Entry<'a>> {
        let [step_type] = self.take()?;
        let (parent, at_us) = (u16::from_le_bytes(self.take()?), self.time()?);
        Some(Entry::Begin { step_type: StepType::of_number(step_type)?, parent, at_us, name: self.name()? })
    }

    fn end(&mut self, is_call: bool) -> Option<Entry<'a>> {
        let (step, at_us) = (u16::from_le_bytes(self.take()?), self.time()?);
        let busy_us = if is_call { Some(self.time()?) } else { None };
        let outcome = Some(self.name()?).filter(|outcome| !outcome.is_empty()).unwrap_or(OK);
        Some(Entry::End { step, end: StepEnd { at_us, busy_us, outcome } })
    }

    fn fact(&mut self, kind: u8) -> Option<Entry<'a>> {
        let ([name], step) = (self.take()?, u16::from_le_bytes(self.take()?));
        let value = match kind {
            kind::NUMBER => FactValue::Number(u32::from_le_bytes(self.take()?).into()),
            kind::LARGE => FactValue::Number(u64::from_le_bytes(self.take()?)),
            _ => FactValue::Text(self.name()?),
        };
        Some(Entry::Fact { step, fact: Fact { name: FactName::of_number(name)?, value } })
    }

    fn time(&mut self) -> Option<u64> {
        let [a, b, c, d, e] = self.take::<TIME_BYTES>()?;
        Some(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
    }

    fn name(&mut self) -> Option<&'a str> {
        let [length] = self.take()?;
        self.text(length.into())
    }

    fn text(&mut self, length: usize) -> Option<&'a str> {
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        str::from_utf8(text).ok()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
}

/// A number of microseconds as bytes. A greater one than they can hold becomes the greatest.
fn time(us: u64) -> [u8; TIME_BYTES] {
    let [a, b, c, d, e, ..] = us.min((1 << (8 * TIME_BYTES)) - 1).to_le_bytes();
    [a, b, c, d, e]
}

/// The beginning of a text, at most so many bytes of it.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}
