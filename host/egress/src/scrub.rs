//! Removes released secrets from answers (egress rule R19).
//!
//! An answer is searched for every spelling of every value that was sent with the request. Each
//! occurrence is replaced by `[secret:NAME]`. The result does not depend on how the bytes are split
//! into chunks. Only bytes that could be the start of a value are held back, so a complete event is
//! passed on at once.
//!
//! The search has two steps. The first eight bytes of every spelling, its head, are searched for
//! with a table of distances to the next possible head (Wu and Manber). Only where a head occurs,
//! the spelling is written out in full and matched byte by byte (Knuth, Morris and Pratt), so the
//! time is linear in the length of any text. A search that finds nothing is cheap to prepare, which
//! matters because a key is released for a single request, and its memory does not depend on the
//! length of the values. Preparing takes 2 us for a value of 48 bytes. An automaton over all its
//! spellings takes 85 us to build, or 800 us for one that searches as fast (`examples/scrub.rs`).
//!
//! This is best effort (egress rule R20): a server that transforms a value, for example by
//! encrypting or reversing it, can return it undetected. The promise is that a secret is sent to
//! its hosts only.

mod follow;
mod heads;
mod spelling;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use zeroize::{Zeroize, Zeroizing};

use follow::Follower;
use heads::{HEAD_BYTES, Heads, SpellingHead};
use spelling::Spelling;

/// Shorter values are not searched for: they occur in ordinary text and are too short for a secret.
const VALUE_BYTES_MIN: usize = 8;
/// Number of values in one set: each has a bit in a `u64`.
const VALUES_MAX: usize = 64;

/// The values to search for. Clones share them; they are wiped with the last clone.
#[derive(Clone)]
pub struct ScrubSet(Arc<Needles>);

struct Needles {
    values: Vec<Needle>,
    heads: Heads,
}

struct Needle {
    /// The text that replaces the value.
    label: Box<[u8]>,
    value: Bytes,
}

/// A search through one text that arrives in chunks.
pub struct Scrubber {
    set: ScrubSet,
    search: NeedleSearch,
}

#[derive(Default)]
struct NeedleSearch {
    /// The last eight bytes, the newest in the lowest byte.
    window: u64,
    /// Number of bytes so far.
    seen: u64,
    follower: Follower,
    /// The last bytes, not yet returned because a value may start in them.
    held: BytesMut,
    /// How many bytes longer the labels are than the text that they replaced.
    growth: i64,
}

impl ScrubSet {
    /// A set of values, each with the name for its label. Values shorter than 8 bytes are left out:
    /// they would be found in unrelated text. Values after the 64th are left out too.
    #[must_use]
    pub fn new<'a>(values: impl IntoIterator<Item = (&'a str, Bytes)>) -> Self {
        let labelled = |(name, value): (&str, Bytes)| Needle { label: label(name), value };
        let values: Vec<Needle> = values.into_iter().take(VALUES_MAX).map(labelled).collect();
        let mut heads = Zeroizing::new(Vec::with_capacity(Spelling::ALL_MAX * values.len()));
        let long = values.iter().enumerate().filter(|(_, needle)| needle.value.len() >= VALUE_BYTES_MIN);
        for (needle, Needle { value, .. }) in long {
            spelling::each_head(value, |spelling, bytes| {
                heads.push(SpellingHead { bytes, needle, spelling });
            });
        }
        Self(Arc::new(Needles { values, heads: Heads::new(heads) }))
    }

    /// The values, also those that are too short to be searched for.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.0.values.iter().map(|needle| needle.value.as_ref())
    }

    /// Returns whether there is nothing to search for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.heads.is_empty()
    }

    /// Starts a search through a new text.
    #[must_use]
    pub fn scrubber(&self) -> Scrubber {
        Scrubber { set: self.clone(), search: NeedleSearch::default() }
    }

    /// Replaces the values in a complete text. Returns the new text and a bit for each value that
    /// occurred, or `None` if none did.
    #[must_use]
    pub fn scrub(&self, text: &[u8]) -> Option<(Vec<u8>, u64)> {
        if text.len() < HEAD_BYTES {
            return None;
        }
        let mut search = NeedleSearch::default();
        search.scan(&self.0, text);
        if !search.follower.has_found() {
            return None;
        }
        search.hold(text);
        let clean = search.give(&self.0, search.seen);
        Some((clean.into(), search.follower.reflected()))
    }

    /// Whether one of the values occurs in a complete text.
    #[must_use]
    pub fn occurs_in(&self, text: &[u8]) -> bool {
        self.scrub(text).is_some()
    }

    /// Replaces the values in the headers of an answer and removes headers with a value in their
    /// name. Returns a bit for each value that occurred.
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

    /// The values that occur in the name of a header. Compared without regard to case, because the
    /// HTTP library turns names into lower case.
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

/// All spellings of a value that the search knows.
#[cfg(any(test, fuzzing))]
pub(crate) fn spellings(value: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    spelling::each_head(value, |spelling, head| {
        let text = spelling::write(spelling, value);
        assert_eq!(text.first_chunk(), Some(&head.to_be_bytes()), "{spelling:?}");
        all.push(text.to_vec());
    });
    all
}

/// `[secret:NAME]`, or `[secret]` if the name is empty.
fn label(name: &str) -> Box<[u8]> {
    let text = if name.is_empty() { "[secret]".to_owned() } else { format!("[secret:{name}]") };
    text.into_bytes().into()
}

impl Scrubber {
    /// Takes the next chunk and returns the bytes that are decided, which can be none. A chunk
    /// without a possible match is returned as it is, not copied.
    #[must_use]
    pub fn push(&mut self, mut piece: Bytes) -> Bytes {
        let Self { set: ScrubSet(needles), search } = self;
        search.scan(needles, &piece);
        let undecided = search.undecided(needles);
        if search.held.is_empty() && !search.follower.has_found() {
            // Nothing was held back before, so all undecided bytes belong to this chunk.
            search.hold(&piece.split_off(piece.len().saturating_sub(undecided)));
            return piece;
        }
        search.hold(&piece);
        search.give(needles, search.seen - undecided as u64)
    }

    /// Returns the bytes that are still held, at the end of the text. Afterwards the search can
    /// start again with another text.
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

    /// By how many bytes the replacements have made the text longer.
    #[must_use]
    pub fn growth(&self) -> u64 {
        u64::try_from(self.search.growth).unwrap_or(0)
    }
}

impl NeedleSearch {
    fn scan(&mut self, needles: &Needles, piece: &[u8]) {
        let Self { window, seen, follower, .. } = self;
        let mut last = *window;
        let mut shift = needles.heads.shift(last);
        let mut at = 0;
        while at < piece.len() {
            // Byte by byte while a spelling is being matched; otherwise skip to where the next head
            // can end.
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

    /// Adds to the bytes that are held. A buffer that becomes too small is wiped, because a value may be in it.
    fn hold(&mut self, bytes: &[u8]) {
        if self.held.capacity() - self.held.len() < bytes.len() {
            let mut larger = BytesMut::with_capacity(self.held.len() + bytes.len());
            larger.extend_from_slice(&self.held);
            self.held.as_mut().zeroize();
            self.held = larger;
        }
        self.held.extend_from_slice(bytes);
    }

    /// How many of the last bytes could belong to a value that is not complete yet.
    fn undecided(&self, needles: &Needles) -> usize {
        self.follower.undecided().max(needles.heads.begun(self.window, self.seen))
    }

    /// Returns the text before `cut`, with labels. No value that is still to be found starts before
    /// `cut`.
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
                // Another value may overlap this one, so the entry stays. Its bytes need not be
                // held any longer.
                break;
            }
            over += 1;
        }
        self.follower.forget(over);
        move_until(cut, self.seen, &mut self.held, Some(&mut out));
        out.freeze()
    }
}

impl Drop for NeedleSearch {
    fn drop(&mut self) {
        self.held.as_mut().zeroize();
    }
}

/// Removes the bytes before position `until` from the front of `held`, which ends at position
/// `end`, and appends them to `out`, or wipes them. Returns their number.
fn move_until(until: u64, end: u64, held: &mut BytesMut, out: Option<&mut BytesMut>) -> usize {
    let begin = end - held.len() as u64;
    let length = usize::try_from(until.saturating_sub(begin)).unwrap_or(usize::MAX).min(held.len());
    match (out, held.get_mut(..length)) {
        (Some(out), Some(part)) => out.extend_from_slice(part),
        (None, Some(value)) => value.zeroize(),
        (_, None) => {}
    }
    held.advance(length);
    length
}

impl Needles {
    /// Starts matching every spelling that has this head.
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
