//! Puts finished pictures in the order of their partial versions. The host gives a finished picture the
//! place of the first one that is not finished, while a server may make several side by side.

/// Stands for a picture that never ended, so that the next one does not get its place.
const UNFINISHED: &str = r#"{"type":"image_generation_call","status":"incomplete","result":null}"#;

#[derive(Default)]
pub(super) struct Pictures {
    /// The items with partial versions whose last version was not passed on, in the order of the host.
    open: Vec<usize>,
    /// The last versions that were not passed on, with their items.
    waiting: Vec<(usize, Vec<u8>)>,
}

impl Pictures {
    /// Records that a partial version of an item is passed on.
    pub(super) fn begin(&mut self, at: usize) {
        if !self.open.contains(&at) {
            self.open.push(at);
        }
    }

    /// Takes the last version of an item.
    pub(super) fn finish(&mut self, at: usize, picture: Vec<u8>) {
        self.waiting.push((at, picture));
    }

    /// The next picture to pass on. At the end of the answer none waits for another one.
    pub(super) fn next(&mut self, at_end: bool) -> Option<Vec<u8>> {
        let first = self.open.first().copied();
        let is_next = |at: usize| first.is_none_or(|first| first == at);
        let picture = match self.waiting.iter().position(|(at, _)| is_next(*at)) {
            Some(place) => self.waiting.remove(place).1,
            None if at_end && !self.waiting.is_empty() => UNFINISHED.into(),
            None => return None,
        };
        self.open.retain(|at| Some(*at) != first);
        Some(picture)
    }
}
