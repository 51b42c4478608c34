//! Takes released secrets out of what comes back (R19).
//!
//! An answer is searched for every spelling of every value that went along, and what is found is replaced by
//! `[secret:NAME]`. The result does not depend on how the bytes are cut into pieces, and only bytes that could be
//! the beginning of a value are held back, so an event that is complete goes on at once.
//!
//! Looking is in two steps. The first eight bytes of every spelling, its head, are compared with the last eight
//! bytes that came: a shift, a multiplication and one look into a table for each byte. Only where a head has been
//! seen the spelling is written out in full and followed byte by byte (Knuth, Morris and Pratt), in linear time
//! whatever comes. So a search that finds nothing costs little to prepare, as for a key that is released for one
//! request, and its memory does not grow with the length of the values: 2 us for a value of 48 bytes, where an
//! automaton over all its spellings takes 85 us to build, or 800 us if it is to run as fast (`examples/scrub.rs`).
//!
//! This is best effort (R20): a server that transforms a value, say by encrypting it or turning it around, can
//! hand it back unseen. The promise is that a secret goes to its host and nowhere else.

mod follow;
mod spelling;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

use follow::Follower;
use spelling::Spelling;

/// Values shorter than this are words of ordinary texts, and none that should be a secret.
const VALUE_BYTES_MIN: usize = 8;
/// The part of a spelling that is looked for first.
const HEAD_BYTES: usize = 8;
/// Values in one set; each has a bit.
const VALUES_MAX: usize = 64;

/// The values to look for. Clones share them; they are wiped with the last clone.
#[derive(Clone)]
pub struct ScrubSet(Arc<Needles>);

struct Needles {
    values: Vec<Needle>,
    /// In the order of their bytes.
    heads: Zeroizing<Vec<Head>>,
    /// A bit for each hash of the second half of a head.
    filter: Filter,
    /// A bit for each byte that a head begins with.
    first_bytes: [u64; 4],
}

struct Needle {
    /// What stands in its place.
    label: Box<[u8]>,
    value: Bytes,
}

/// The beginning of one spelling of one value.
#[derive(Clone, Copy)]
struct Head {
    bytes: u64,
    needle: usize,
    spelling: Spelling,
}

impl zeroize::Zeroize for Head {
    fn zeroize(&mut self) {
        self.bytes.zeroize();
    }
}

/// One search through one text that comes in pieces.
pub struct Scrubber {
    set: ScrubSet,
    /// The last bytes that came, the newest lowest.
    window: u64,
    /// How many bytes came.
    seen: u64,
    follower: Follower,
    /// The last bytes that came and were not given on. A value may begin in them.
    held: BytesMut,
    /// Bytes that labels have more than what they stand for.
    growth: i64,
}

impl ScrubSet {
    /// A set of values, each with the name that is shown in its place. Values of less than 8 bytes are left out:
    /// they would be found in texts that have nothing to do with them. At most 64 are taken.
    #[must_use]
    pub fn new<'a>(values: impl IntoIterator<Item = (&'a str, Bytes)>) -> Self {
        let labelled = |(name, value): (&str, Bytes)| Needle { label: label(name), value };
        let values: Vec<Needle> = values.into_iter().take(VALUES_MAX).map(labelled).collect();
        let mut heads = Zeroizing::new(Vec::with_capacity(Spelling::ALL_MAX * values.len()));
        for (needle, Needle { value, .. }) in values.iter().enumerate() {
            if value.len() >= VALUE_BYTES_MIN {
                spelling::each_head(value, |spelling, bytes| heads.push(Head { bytes, needle, spelling }));
            }
        }
        heads.sort_unstable_by_key(|head| head.bytes);
        let mut filter = Filter::default();
        let mut first_bytes = [0; 4];
        for head in heads.iter() {
            filter.insert(head.bytes);
            insert(&mut first_bytes, head.bytes >> 56);
        }
        Self(Arc::new(Needles { values, heads, filter, first_bytes }))
    }

    /// Is there nothing to look for?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.heads.is_empty()
    }

    /// Begins a search.
    #[must_use]
    pub fn scrubber(&self) -> Scrubber {
        Scrubber {
            set: self.clone(),
            window: 0,
            seen: 0,
            follower: Follower::default(),
            held: BytesMut::new(),
            growth: 0,
        }
    }

    /// A text without the values, and which of them were in it (a bit for each); `None` if there was none.
    #[must_use]
    pub fn scrub(&self, text: &[u8]) -> Option<(Vec<u8>, u64)> {
        let mut scrubber = self.scrubber();
        scrubber.scan(text);
        if !scrubber.follower.has_found() {
            return None;
        }
        scrubber.held.extend_from_slice(text);
        let clean = scrubber.give(scrubber.seen);
        Some((clean.into(), scrubber.follower.reflected()))
    }

    /// Takes the values out of the headers of an answer; a header with one in its name goes. Says which were there.
    pub(crate) fn scrub_headers(&self, headers: &mut HeaderMap) -> u64 {
        let mut reflected = 0;
        for value in headers.values_mut() {
            if let Some((clean, found)) = self.scrub(value.as_bytes()) {
                *value = HeaderValue::from_bytes(&clean).unwrap_or(HeaderValue::from_static(""));
                reflected |= found;
            }
        }
        let named: Vec<(HeaderName, u64)> = headers
            .keys()
            .map(|name| (name.clone(), self.in_name(name.as_str())))
            .filter(|(_, found)| *found != 0)
            .collect();
        for (name, found) in named {
            headers.remove(name);
            reflected |= found;
        }
        reflected
    }

    /// The values in the name of a header, in which upper case has become lower case.
    fn in_name(&self, name: &str) -> u64 {
        let is_in = |value: &Bytes| {
            value.len() >= VALUE_BYTES_MIN
                && name.as_bytes().windows(value.len()).any(|part| part.eq_ignore_ascii_case(value))
        };
        let values = self.0.values.iter().enumerate();
        let plain =
            values.filter(|(_, needle)| is_in(&needle.value)).fold(0, |found, (bit, _)| found | 1 << bit);
        plain | self.scrub(name.as_bytes()).map_or(0, |(_, found)| found)
    }
}

/// `[secret:NAME]`, or `[secret]` for one without a name.
fn label(name: &str) -> Box<[u8]> {
    let text = if name.is_empty() { "[secret]".to_owned() } else { format!("[secret:{name}]") };
    text.into_bytes().into()
}

impl Scrubber {
    /// Takes the next piece and gives what is certain, perhaps nothing. A piece without anything suspicious comes
    /// back as it is.
    #[must_use]
    pub fn push(&mut self, mut piece: Bytes) -> Bytes {
        self.scan(&piece);
        let undecided = self.undecided();
        if self.held.is_empty() && !self.follower.has_found() {
            // Nothing was held, so what is undecided has begun in this piece.
            self.held.extend_from_slice(&piece.split_off(piece.len().saturating_sub(undecided)));
            return piece;
        }
        self.held.extend_from_slice(&piece);
        self.give(self.seen - undecided as u64)
    }

    /// Gives what is still held, at the end of the text. The search can begin anew with another one.
    #[must_use]
    pub fn finish(&mut self) -> Bytes {
        let rest = self.give(self.seen);
        self.follower.reset();
        self.window = 0;
        self.seen = 0;
        rest
    }

    /// The values that were found so far: a bit for each, in the order of the set.
    #[must_use]
    pub fn reflected(&self) -> u64 {
        self.follower.reflected()
    }

    /// By how many bytes the text has become longer.
    #[must_use]
    pub fn growth(&self) -> u64 {
        u64::try_from(self.growth).unwrap_or(0)
    }

    fn scan(&mut self, piece: &[u8]) {
        let Self { set: ScrubSet(needles), window, seen, follower, .. } = self;
        let mut last = *window;
        for byte in piece {
            last = last << 8 | u64::from(*byte);
            *seen += 1;
            if follower.is_following() {
                follower.step(*byte, *seen);
            }
            if needles.filter.contains(last) {
                needles.start(last, *seen, follower);
            }
        }
        *window = last;
    }

    /// How many of the last bytes could belong to a value whose end has not come.
    fn undecided(&self) -> usize {
        self.follower.undecided().max(self.set.0.begun(self.window, self.seen))
    }

    /// Gives what stands before `cut`: no value that is yet to be found begins there.
    fn give(&mut self, cut: u64) -> Bytes {
        let mut out = BytesMut::new();
        let mut over = 0;
        for found in self.follower.found_mut() {
            if found.start >= cut {
                break;
            }
            move_until(found.start, self.seen, &mut self.held, Some(&mut out));
            if !found.is_labelled {
                found.is_labelled = true;
                let label = self.set.0.values.get(found.needle).map_or(&b""[..], |needle| &needle.label);
                out.extend_from_slice(label);
                self.growth += label.len() as i64;
            }
            self.growth -= move_until(found.end, self.seen, &mut self.held, None) as i64;
            if found.end > cut {
                // Another value may overlap it. What was found need not be kept for that.
                break;
            }
            over += 1;
        }
        self.follower.forget(over);
        move_until(cut, self.seen, &mut self.held, Some(&mut out));
        out.freeze()
    }
}

/// Takes what stands before `until` away from the front of `held`, which ends at `end`. Gives how much.
fn move_until(until: u64, end: u64, held: &mut BytesMut, out: Option<&mut BytesMut>) -> usize {
    let begin = end - held.len() as u64;
    let length = usize::try_from(until.saturating_sub(begin)).unwrap_or(usize::MAX).min(held.len());
    if let (Some(out), Some(part)) = (out, held.get(..length)) {
        out.extend_from_slice(part);
    }
    held.advance(length);
    length
}

impl Needles {
    /// Follows every spelling that has this head.
    #[cold]
    fn start(&self, window: u64, seen: u64, follower: &mut Follower) {
        if seen < HEAD_BYTES as u64 {
            return;
        }
        let from = self.heads.partition_point(|head| head.bytes < window);
        let same = self.heads.iter().enumerate().skip(from).take_while(|(_, head)| head.bytes == window);
        for (number, head) in same {
            let write = || {
                let value = self.values.get(head.needle).map_or(&b""[..], |needle| &needle.value);
                spelling::write(head.spelling, value)
            };
            follower.start(number, head.needle, write, seen);
        }
    }

    /// How many of the last bytes are the beginning of a head: at most 7, since a whole one is followed.
    fn begun(&self, window: u64, seen: u64) -> usize {
        let most = seen.min(HEAD_BYTES as u64 - 1) as u32;
        for count in (1..=most).rev() {
            if !contains(&self.first_bytes, window >> (8 * (count - 1)) & 0xff) {
                continue;
            }
            let shift = 64 - 8 * count;
            let wanted = window << shift;
            let at = self.heads.partition_point(|head| head.bytes < wanted);
            if self.heads.get(at).is_some_and(|head| head.bytes >> shift == wanted >> shift) {
                return count as usize;
            }
        }
        0
    }
}

/// Which windows are worth a second look.
#[derive(Default)]
struct Filter([[u64; 8]; 8]);

impl Filter {
    /// Of the younger half of the window: what it is made of varies more than the beginnings of values do.
    fn place(window: u64) -> (usize, usize, u32) {
        let hash = (window as u32).wrapping_mul(0x9e37_79b1) >> 20;
        ((hash >> 9) as usize & 7, (hash >> 6) as usize & 7, hash & 63)
    }

    fn insert(&mut self, window: u64) {
        let (row, word, bit) = Self::place(window);
        if let Some(word) = self.0.get_mut(row).and_then(|row| row.get_mut(word)) {
            *word |= 1 << bit;
        }
    }

    #[inline]
    fn contains(&self, window: u64) -> bool {
        let (row, word, bit) = Self::place(window);
        self.0.get(row).and_then(|row| row.get(word)).is_some_and(|word| word >> bit & 1 == 1)
    }
}

fn insert(set: &mut [u64; 4], byte: u64) {
    if let Some(word) = set.get_mut((byte >> 6 & 3) as usize) {
        *word |= 1 << (byte & 63);
    }
}

fn contains(set: &[u64; 4], byte: u64) -> bool {
    set.get((byte >> 6 & 3) as usize).is_some_and(|word| word >> (byte & 63) & 1 == 1)
}

impl fmt::Debug for ScrubSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ScrubSet").finish_non_exhaustive()
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Scrubber").finish_non_exhaustive()
    }
}
