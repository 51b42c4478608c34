//! Whether answers to requests that ran side by side are those of some order of the requests, one after the other, in
//! which none comes before one that was answered before it was sent.
//!
//! The search is that of Wing and Gong, with Lowe's memory of what was tried: a set of requests that are done and the
//! state after them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub const NAMES: usize = 4;
/// The most beginnings of orders that are looked at.
const TRIES_MAX: usize = 3_000_000;

/// What names have: 0 for nothing, else the number of the put.
pub type Vault = [usize; NAMES];

/// The workspace's vault and that of the intern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    pub own: Vault,
    pub copied: Vault,
}

/// A request with what its answer said.
#[derive(Clone, Debug)]
pub enum Act {
    Put {
        name: usize,
        number: usize,
    },
    /// Whether there was something; `None`: that was not told.
    Delete {
        name: usize,
        was_there: Option<bool>,
    },
    /// The names that are copied to the intern together; refused where one of them has nothing.
    Copy {
        names: Vec<usize>,
        is_done: Option<bool>,
    },
    List {
        found: Vault,
    },
    ListCopied {
        found: Vault,
    },
}

#[derive(Clone, Debug)]
pub struct Request {
    pub act: Act,
    pub sent: Instant,
    /// `None`: it may have happened at any time since, or not at all.
    pub answered: Option<Instant>,
}

impl Act {
    /// The state after this, if its answer fits the state before.
    fn apply(&self, before: &State) -> Option<State> {
        let mut state = *before;
        let fits = match self {
            Act::Put { name, number } => {
                state.own[*name] = *number;
                true
            }
            Act::Delete { name, was_there } => {
                let was = std::mem::take(&mut state.own[*name]) != 0;
                was_there.is_none_or(|told| told == was)
            }
            Act::Copy { names, is_done } => {
                let can = names.iter().all(|name| before.own[*name] != 0);
                for name in names.iter().filter(|_| can) {
                    state.copied[*name] = before.own[*name];
                }
                is_done.is_none_or(|told| told == can)
            }
            Act::List { found } => *found == before.own,
            Act::ListCopied { found } => *found == before.copied,
        };
        fits.then_some(state)
    }

    /// Whether this never changes anything, so that it can as well be done at once wherever its answer fits.
    fn is_idle(&self) -> bool {
        match self {
            Act::Put { .. } => false,
            Act::Delete { was_there: told, .. } | Act::Copy { is_done: told, .. } => *told == Some(false),
            Act::List { .. } | Act::ListCopied { .. } => true,
        }
    }

    /// Whether this list can still find what it found: what was put and is gone does not come back.
    fn is_possible(&self, state: &State, is_put: impl Fn(usize) -> bool) -> bool {
        let (found, vaults) = match self {
            Act::List { found } => (found, [&state.own, &state.own]),
            Act::ListCopied { found } => (found, [&state.own, &state.copied]),
            _ => return true,
        };
        (0..NAMES).all(|name| {
            let wanted = found[name];
            wanted == 0 || vaults.iter().any(|vault| vault[name] == wanted) || !is_put(wanted)
        })
    }
}

/// A set of requests.
type Done = Vec<u64>;

fn has(done: &Done, at: usize) -> bool {
    done[at / 64] >> (at % 64) & 1 == 1
}

fn add(done: &mut Done, at: usize) {
    done[at / 64] |= 1 << (at % 64);
}

/// The requests that may be next: none that is left was answered before they were sent. Those that were answered first
/// are last, because they are tried from the end. `None`: only such are left as need not have happened.
fn possible(requests: &[Request], done: &Done) -> Option<Vec<usize>> {
    let left = || (0..requests.len()).filter(|at| !has(done, *at));
    let first_answer = left().filter_map(|at| requests[at].answered).min()?;
    let mut next: Vec<usize> = left().take_while(|at| requests[*at].sent <= first_answer).collect();
    next.sort_by_key(|at| {
        Reverse(requests[*at].answered.map_or((true, requests[*at].sent), |it| (false, it)))
    });
    Some(next)
}

/// Whether there is such an order. `requests` are in the order in which they were sent.
///
/// # Panics
/// It is not found out with [`TRIES_MAX`].
pub fn is_linear(requests: &[Request]) -> bool {
    let none = vec![0; requests.len().div_ceil(64)];
    let put = |(at, request): (usize, &Request)| match request.act {
        Act::Put { number, .. } => Some((number, at)),
        _ => None,
    };
    let puts: BTreeMap<usize, usize> = requests.iter().enumerate().filter_map(put).collect();
    let is_possible = |done: &Done, state: &State| {
        let is_put = |number: usize| puts.get(&number).is_none_or(|at| has(done, *at));
        (0..requests.len()).all(|at| has(done, at) || requests[at].act.is_possible(state, is_put))
    };
    let mut tried: BTreeSet<(Done, State)> = BTreeSet::new();
    let mut open = vec![(none, State::default())];
    while let Some((mut done, state)) = open.pop() {
        let Some(next) = possible(requests, &done) else { return true };
        let fits_idle = |at: &usize| requests[*at].act.is_idle() && requests[*at].act.apply(&state).is_some();
        let idle: Vec<usize> = next.iter().copied().filter(fits_idle).collect();
        if !idle.is_empty() {
            idle.into_iter().for_each(|at| add(&mut done, at));
            open.extend(tried.insert((done.clone(), state)).then_some((done, state)));
            continue;
        }
        for at in next {
            let Some(after) = requests[at].act.apply(&state) else { continue };
            let mut with = done.clone();
            add(&mut with, at);
            if is_possible(&with, &after) && tried.insert((with.clone(), after)) {
                open.push((with, after));
            }
        }
        assert!(tried.len() < TRIES_MAX, "too many orders of {} requests", requests.len());
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Act, Request, is_linear};
    use std::time::{Duration, Instant};

    /// Requests as letters of a time line: each has an act, when it was sent and when it was answered.
    fn check(requests: &[(Act, u64, Option<u64>)]) -> bool {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let request = |(act, sent, answered): &(Act, u64, Option<u64>)| Request {
            act: act.clone(),
            sent: at(*sent),
            answered: answered.map(at),
        };
        is_linear(&requests.iter().map(request).collect::<Vec<_>>())
    }

    fn put(number: usize) -> Act {
        Act::Put { name: 0, number }
    }

    fn list(number: usize) -> Act {
        Act::List { found: [number, 0, 0, 0] }
    }

    #[test]
    fn orders_are_found_where_there_is_one_and_only_there() {
        // One after the other.
        assert!(check(&[(put(1), 0, Some(1)), (list(1), 2, Some(3))]));
        assert!(!check(&[(put(1), 0, Some(1)), (list(0), 2, Some(3))]), "an acknowledged put is lost");
        // Side by side.
        assert!(check(&[(put(1), 0, Some(9)), (list(0), 1, Some(2)), (list(1), 3, Some(4))]));
        assert!(
            !check(&[(put(1), 0, Some(9)), (list(1), 1, Some(2)), (list(0), 3, Some(4))]),
            "back in time"
        );
        // In doubt: at any time, or never, and once.
        assert!(check(&[(put(1), 0, None), (list(0), 1, Some(2)), (list(1), 3, Some(4))]));
        assert!(check(&[(put(1), 0, None), (list(0), 1, Some(2))]));
        let again = [(put(1), 0, None), (put(2), 1, Some(2)), (list(1), 3, Some(4)), (list(2), 5, Some(6))];
        assert!(!check(&again), "a put in doubt was made, and the put before it came back");
        // Copies are made of what is there, and of all names or none.
        let copy = |names: &[usize], told| Act::Copy { names: names.to_vec(), is_done: Some(told) };
        let copied = |found| Act::ListCopied { found };
        assert!(check(&[
            (put(1), 0, Some(1)),
            (copy(&[0], true), 2, Some(3)),
            (copied([1, 0, 0, 0]), 4, Some(5))
        ]));
        assert!(
            !check(&[(put(1), 0, Some(1)), (copy(&[0, 1], true), 2, Some(3))]),
            "there was nothing to copy"
        );
        assert!(!check(&[
            (put(1), 0, Some(1)),
            (copy(&[0, 1], false), 2, Some(3)),
            (copied([1, 0, 0, 0]), 4, Some(5))
        ]));
        let deleted = |was_there| Act::Delete { name: 0, was_there: Some(was_there) };
        assert!(!check(&[(put(1), 0, Some(1)), (deleted(true), 2, Some(3)), (deleted(true), 4, Some(5))]));
    }
}
