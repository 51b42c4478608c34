//! The places of one round in the order in which they are tried: the router's, except that an endpoint whose breaker
//! is not closed, and whose one turn of this second another request has taken since the router was told, waits
//! until those that are well have been tried.

use std::collections::VecDeque;
use std::vec;

/// What is left of a round.
pub(super) struct Places {
    left: vec::IntoIter<usize>,
    put_off: VecDeque<usize>,
}

impl Places {
    /// All of a round, in the router's order.
    pub(super) fn new(places: Vec<usize>) -> Self {
        Self { left: places.into_iter(), put_off: VecDeque::new() }
    }

    /// The next of those that `allow` lets through, with what `begin` gave: nothing where its breaker lets it
    /// through as a last resort only. `is_well` says of which it does not.
    pub(super) fn next<T>(
        &mut self,
        allow: impl Fn(usize) -> bool,
        is_well: impl Fn(usize) -> bool,
        begin: impl Fn(usize) -> Option<T>,
    ) -> Option<(usize, Option<T>)> {
        while let Some(place) = self.left.next() {
            if !allow(place) {
                continue;
            }
            let begun = begin(place);
            let mut others = self.left.as_slice().iter();
            if begun.is_some() || !others.any(|other| allow(*other) && is_well(*other)) {
                return Some((place, begun));
            }
            self.put_off.push_back(place);
        }
        while let Some(place) = self.put_off.pop_front() {
            if allow(place) {
                return Some((place, begin(place)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In which order four places are tried when the turns of `taken` are taken and those of `ill` are not well.
    fn tried(allowed: &[usize], ill: &[usize], taken: &[usize]) -> Vec<(usize, bool)> {
        let mut places = Places::new(vec![0, 1, 2, 3]);
        let (allow, is_well) = (|place| allowed.contains(&place), |place| !ill.contains(&place));
        let begin = |place| (!taken.contains(&place)).then_some(());
        let next = || places.next(allow, is_well, begin).map(|(place, begun)| (place, begun.is_some()));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn an_endpoint_that_another_request_probes_waits_for_those_that_are_well() {
        let all = [0, 1, 2, 3];
        assert_eq!(tried(&all, &[], &[]), [(0, true), (1, true), (2, true), (3, true)]);
        assert_eq!(tried(&all, &[0], &[]), [(0, true), (1, true), (2, true), (3, true)], "its own turn");
        assert_eq!(tried(&all, &[0], &[0]), [(1, true), (2, true), (3, true), (0, false)]);
        // Those that are no better are not tried before it.
        assert_eq!(tried(&all, &[1, 2, 3], &[1, 2, 3]), [(0, true), (1, false), (2, false), (3, false)]);
        assert_eq!(tried(&all, &all, &all), [(0, false), (1, false), (2, false), (3, false)]);
        assert_eq!(tried(&[0, 2], &[0], &[0]), [(2, true), (0, false)], "what may not be tried is not");
        assert_eq!(tried(&[0], &[0], &[0]), [(0, false)]);
    }
}
