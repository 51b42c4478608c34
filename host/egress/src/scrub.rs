//! Takes released secrets out of what comes back (R19).
//!
//! An answer is searched for every spelling of every value that went along, and what is found is replaced by
//! `[secret:NAME]`. The result does not depend on how the bytes are cut into pieces, and only bytes that could be
//! the beginning of a value are held back, so an event that is complete goes on at once.
//!
//! Looking is in two steps. The first eight bytes of every spelling, its head, are looked for with a table that
//! tells how far the next one can be. Only where a head has been seen the spelling is written out in full and
//! followed byte by byte (Knuth, Morris and Pratt), in linear time
//! whatever comes. So a search that finds nothing costs little to prepare, as for a key that is released for one
//! request, and its memory does not grow with the length of the values: 2 us for a value of 48 bytes, where an
//! automaton over all its spellings takes 85 us to build, or 800 us if it is to run as fast (`examples/scrub.rs`).
//!
//! This is best effort (R20): a server that transforms a value, say by encrypting it or turning it around, can
//! hand it back unseen. The promise is that a secret goes to its host and nowhere else.

mod follow;
mod heads;
mod spelling;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

use follow::Follower;
use heads::{HEAD_BYTES, Head, Heads};
use spelling::Spelling;

/// Values shorter than this are words of ordinary texts, and none that should be a secret.
const VALUE_BYTES_MIN: usize = 8;
/// Values in one set; each has a bit.
const VALUES_MAX: usize = 64;

/// The values to look for. Clones share them; they are wiped with the last clone.
#[derive(Clone)]
pub struct ScrubSet(Arc<Needles>);

struct Needles {
    values: Vec<Needle>,
    heads: Heads,
}

struct Needle {
    /// What stands in its place.
    label: Box<[u8]>,
    value: Bytes,
}

/// One search through one text that comes in pieces.
pub struct Scrubber {
    set: ScrubSet,
    search: Search,
}

#[derive(Default)]
struct Search {
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
        Self(Arc::new(Needles { values, heads: Heads::new(heads) }))
    }

    /// Is there nothing to look for?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.heads.is_empty()
    }

    /// Begins a search.
    #[must_use]
    pub fn scrubber(&self) -> Scrubber {
        Scrubber { set: self.clone(), search: Search::default() }
    }

    /// A text without the values, and which of them were in it (a bit for each); `None` if there was none.
    #[must_use]
    pub fn scrub(&self, text: &[u8]) -> Option<(Vec<u8>, u64)> {
        if text.len() < HEAD_BYTES {
            return None;
        }
        let mut search = Search::default();
        search.scan(&self.0, text);
        if !search.follower.has_found() {
            return None;
        }
        search.held.extend_from_slice(text);
        let clean = search.give(&self.0, search.seen);
        Some((clean.into(), search.follower.reflected()))
    }

    /// Takes the values out of the headers of an answer; a header with one in its name goes. Says which were there.
    pub(crate) fn scrub_headers(&self, headers: &mut HeaderMap) -> u64 {
        let mut reflected = 0;
        if self.is_empty() {
            return reflected;
        }
        for value in headers.values_mut() {
            if let Some((clean, found)) = self.scrub(value.as_bytes()) {
                *value = HeaderValue::from_bytes(&clean).unwrap_or(HeaderValue::from_static(""));
                reflected |= found;
            }
        }
        let in_name = |name: &HeaderName| match self.in_name(name.as_str()) {
            0 => None,
            found => Some((name.clone(), found)),
        };
        let named: Vec<(HeaderName, u64)> = headers.keys().filter_map(in_name).collect();
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
        let Self { set: ScrubSet(needles), search } = self;
        search.scan(needles, &piece);
        let undecided = search.undecided(needles);
        if search.held.is_empty() && !search.follower.has_found() {
            // Nothing was held, so what is undecided has begun in this piece.
            search.held.extend_from_slice(&piece.split_off(piece.len().saturating_sub(undecided)));
            return piece;
        }
        search.held.extend_from_slice(&piece);
        search.give(needles, search.seen - undecided as u64)
    }

    /// Gives what is still held, at the end of the text. The search can begin anew with another one.
    #[must_use]
    pub fn finish(&mut self) -> Bytes {
        let Self { set: ScrubSet(needles), search } = self;
        let rest = search.give(needles, search.seen);
        search.follower.reset();
        search.window = 0;
        search.seen = 0;
        rest
    }

    /// The values that were found so far: a bit for each, in the order of the set.
    #[must_use]
    pub fn reflected(&self) -> u64 {
        self.search.follower.reflected()
    }

    /// By how many bytes the text has become longer.
    #[must_use]
    pub fn growth(&self) -> u64 {
        u64::try_from(self.search.growth).unwrap_or(0)
    }
}

impl Search {
    fn scan(&mut self, needles: &Needles, piece: &[u8]) {
        let Self { window, seen, follower, .. } = self;
        let mut last = *window;
        let mut shift = needles.heads.shift(last);
        let mut at = 0;
        while at < piece.len() {
            let to = if follower.is_following() { at + 1 } else { needles.heads.next(piece, at, shift) };
            let to = to.min(piece.len());
            last = heads::rolled(last, piece, at, to);
            *seen += (to - at) as u64;
            at = to;
            if follower.is_following() {
                follower.step(last as u8, *seen);
            }
            shift = needles.heads.shift(last);
            if shift == 0 {
                needles.start(last, *seen, follower);
            }
        }
        *window = last;
    }

    /// How many of the last bytes could belong to a value whose end has not come.
    fn undecided(&self, needles: &Needles) -> usize {
        self.follower.undecided().max(needles.heads.begun(self.window, self.seen))
    }

    /// Gives what stands before `cut`: no value that is yet to be found begins there.
    fn give(&mut self, needles: &Needles, cut: u64) -> Bytes {
        let mut out = BytesMut::new();
        let mut over = 0;
        for found in self.follower.found_mut() {
            if found.start >= cut {
                break;
            }
            move_until(found.start, self.seen, &mut self.held, Some(&mut out));
            if !found.is_labelled {
                found.is_labelled = true;
                let label = needles.values.get(found.needle).map_or(&b""[..], |needle| &needle.label);
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
        for (number, head) in self.heads.all(window) {
            let write = || {
                let value = self.values.get(head.needle).map_or(&b""[..], |needle| &needle.value);
                spelling::write(head.spelling, value)
            };
            follower.start(number, head.needle, write, seen);
        }
    }
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
