//! The order of the attempts within one round: the router's, with one exception. An endpoint whose
//! breaker is not closed may be probed once a second. If another request has used that probe since
//! the router ordered the endpoints, the endpoint waits until the healthy ones have been tried.

use std::collections::VecDeque;
use std::vec;

/// The indexes that are left of a round.
pub(super) struct RemainingCandidates {
    left: vec::IntoIter<usize>,
    put_off: VecDeque<usize>,
}

impl RemainingCandidates {
    /// All indexes of a round, in the router's order.
    pub(super) fn new(indexes: Vec<usize>) -> Self {
        Self { left: indexes.into_iter(), put_off: VecDeque::new() }
    }

    /// The indexes that are left.
    pub(super) fn rest(&self) -> impl Iterator<Item = usize> {
        self.left.as_slice().iter().chain(&self.put_off).copied()
    }

    /// The next index that `allow` accepts, and the result of `begin` for it. `None` as the result
    /// means that the breaker does not admit the attempt, which is made nevertheless because no
    /// healthy endpoint (`is_well`) is left.
    pub(super) fn next<T>(
        &mut self,
        allow: impl Fn(usize) -> bool,
        is_well: impl Fn(usize) -> bool,
        begin: impl Fn(usize) -> Option<T>,
    ) -> Option<(usize, Option<T>)> {
        while let Some(index) = self.left.next() {
            if !allow(index) {
                continue;
            }
            let begun = begin(index);
            let mut others = self.left.as_slice().iter();
            if begun.is_some() || !others.any(|other| allow(*other) && is_well(*other)) {
                return Some((index, begun));
            }
            self.put_off.push_back(index);
        }
        while let Some(index) = self.put_off.pop_front() {
            if allow(index) {
                return Some((index, begin(index)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which four endpoints are tried when the probes of those in `taken` are used up
    /// and those in `ill` are not healthy.
    fn tried(allowed: &[usize], ill: &[usize], taken: &[usize]) -> Vec<(usize, bool)> {
        let mut indexes = RemainingCandidates::new(vec![0, 1, 2, 3]);
        let (allow, is_well) = (|index| allowed.contains(&index), |index| !ill.contains(&index));
        let begin = |index| (!taken.contains(&index)).then_some(());
        let next = || indexes.next(allow, is_well, begin).map(|(index, begun)| (index, begun.is_some()));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn an_endpoint_probed_by_another_request_is_tried_after_the_healthy_ones() {
        let all = [0, 1, 2, 3];
        assert_eq!(tried(&all, &[], &[]), [(0, true), (1, true), (2, true), (3, true)]);
        assert_eq!(tried(&all, &[0], &[]), [(0, true), (1, true), (2, true), (3, true)], "its own turn");
        assert_eq!(tried(&all, &[0], &[0]), [(1, true), (2, true), (3, true), (0, false)]);
        // Endpoints that are not healthy either are not tried before it.
        assert_eq!(tried(&all, &[1, 2, 3], &[1, 2, 3]), [(0, true), (1, false), (2, false), (3, false)]);
        assert_eq!(tried(&all, &all, &all), [(0, false), (1, false), (2, false), (3, false)]);
        assert_eq!(tried(&[0, 2], &[0], &[0]), [(2, true), (0, false)], "what may not be tried is not");
        assert_eq!(tried(&[0], &[0], &[0]), [(0, false)]);
    }
}
