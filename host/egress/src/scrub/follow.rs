//! Matches spellings whose head has occurred, and keeps the matches.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::heads::HEAD_BYTES;

/// The spellings that are being matched, and the matches.
#[derive(Default)]
pub(super) struct Follower {
    tracks: Vec<Track>,
    /// Index into `tracks` by the number of the head. `None` for a spelling equal to another one.
    by_head: BTreeMap<usize, Option<usize>>,
    /// Indexes of the tracks that match at least a head at the end of the text so far.
    active: Vec<usize>,
    /// The matches in text order, without overlaps.
    found: Vec<Reflected>,
    reflected: u64,
}

/// A range of the text that one value, or several overlapping ones, occupied.
pub(super) struct Reflected {
    /// Position of its first byte in the text.
    pub(super) start: u64,
    /// Position after its last byte.
    pub(super) end: u64,
    /// The value that starts first; among several the longest.
    pub(super) needle: usize,
    /// Position after the last byte of that value alone.
    needle_end: u64,
    /// Its label has been returned, so no later match may start before it.
    pub(super) is_labelled: bool,
}

/// One spelling in full, and how much of it matches the end of the text.
struct Track {
    needle: usize,
    text: Zeroizing<Vec<u8>>,
    /// For each prefix of `text`: the length of its longest proper prefix that is also its suffix
    /// (the failure function of Knuth, Morris and Pratt).
    borders: Vec<u32>,
    /// Length of the longest prefix of `text` that the searched text ends with.
    length: usize,
}

impl Follower {
    #[inline]
    pub(super) fn is_following(&self) -> bool {
        !self.active.is_empty()
    }

    pub(super) fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    pub(super) fn found_mut(&mut self) -> impl Iterator<Item = &mut Reflected> {
        self.found.iter_mut()
    }

    /// Drops the first `count` matches.
    pub(super) fn forget(&mut self, count: usize) {
        self.found.drain(..count.min(self.found.len()));
    }

    pub(super) fn reflected(&self) -> u64 {
        self.reflected
    }

    /// Prepares for another text.
    pub(super) fn reset(&mut self) {
        self.active.clear();
        self.found.clear();
        for track in &mut self.tracks {
            track.length = 0;
        }
    }

    /// The head of this number ends at position `end`: start matching its spelling.
    pub(super) fn start(
        &mut self,
        head: usize,
        needle: usize,
        write: impl FnOnce() -> Zeroizing<Vec<u8>>,
        end: u64,
    ) {
        let tracks = &mut self.tracks;
        let number = *self.by_head.entry(head).or_insert_with(|| {
            let text = write();
            if tracks.iter().any(|track| track.needle == needle && *track.text == *text) {
                return None;
            }
            tracks.push(Track::new(needle, text));
            Some(tracks.len() - 1)
        });
        let Some((number, track)) = number.and_then(|number| Some((number, tracks.get_mut(number)?))) else {
            return;
        };
        if track.length >= HEAD_BYTES {
            // Already being matched; a match that starts at this head is found with it.
            return;
        }
        track.length = HEAD_BYTES;
        self.active.push(number);
        if track.length == track.text.len() {
            let start = end - track.text.len() as u64;
            self.add(start, end, needle);
        }
    }

    /// Takes the next byte, after which the text ends at position `end`.
    pub(super) fn step(&mut self, byte: u8, end: u64) {
        let mut turn = 0;
        while let Some(number) = self.active.get(turn).copied() {
            let Some(track) = self.tracks.get_mut(number) else { return };
            track.step(byte);
            let length = track.length;
            let matched = (length == track.text.len()).then_some(track.needle);
            if length < HEAD_BYTES {
                track.length = 0;
                self.active.swap_remove(turn);
            } else {
                turn += 1;
            }
            if let Some(needle) = matched {
                self.add(end - length as u64, end, needle);
            }
        }
    }

    /// How many of the last bytes could belong to a value that is not complete yet.
    pub(super) fn undecided(&self) -> usize {
        let tracks = self.active.iter().filter_map(|number| self.tracks.get(*number));
        tracks.map(Track::undecided).max().unwrap_or(0)
    }

    fn add(&mut self, start: u64, end: u64, needle: usize) {
        self.reflected |= 1 << needle;
        // Merge with earlier matches that overlap. The merged match is labelled with the value that
        // starts first.
        let mut new = Reflected { start, end, needle, needle_end: end, is_labelled: false };
        while let Some(last) = self.found.pop_if(|last| last.end > start) {
            if (last.start, std::cmp::Reverse(last.needle_end), last.needle)
                <= (new.start, std::cmp::Reverse(new.needle_end), new.needle)
            {
                (new.start, new.needle, new.needle_end) = (last.start, last.needle, last.needle_end);
            }
            new.is_labelled |= last.is_labelled;
            new.end = new.end.max(last.end);
        }
        self.found.push(new);
    }
}

impl Track {
    fn new(needle: usize, text: Zeroizing<Vec<u8>>) -> Self {
        let mut track = Self { needle, borders: Vec::with_capacity(text.len()), text, length: 0 };
        // Compute the failure function by matching the spelling against itself.
        track.borders.push(0);
        for at in 1..track.text.len() {
            let byte = track.text.get(at).copied().unwrap_or_default();
            track.step(byte);
            track.borders.push(u32::try_from(track.length).unwrap_or(0));
        }
        track.length = 0;
        track
    }

    fn step(&mut self, byte: u8) {
        loop {
            if self.text.get(self.length) == Some(&byte) {
                self.length += 1;
                return;
            }
            if self.length == 0 {
                return;
            }
            self.length = self.border();
        }
    }

    /// Length of the longest proper prefix of the match so far that is also its suffix.
    fn border(&self) -> usize {
        let border = self.length.checked_sub(1).and_then(|last| self.borders.get(last));
        border.map_or(0, |border| *border as usize)
    }

    fn undecided(&self) -> usize {
        if self.length == self.text.len() { self.border() } else { self.length }
    }
}
