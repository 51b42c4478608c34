//! Seats: how many requests a host may run for a key at the same time, out of what hosts share.
//!
//! A host writes down how many it holds, as a whole, so that a table that was emptied is filled again by the
//! next write. What it returns is free for others with the next write.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::InTurn;

/// What a host asks of the seats of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SeatAsk {
    /// Seats that are taken at once, as far as there are so many.
    pub units: u64,
    /// The most seats that all hosts together hold.
    pub most: u64,
}

/// The seats of this host.
#[derive(Default)]
pub(crate) struct Seats(Mutex<InTurn<KeySeats>>);

/// The seats of one key.
#[derive(Debug, Default)]
struct KeySeats {
    held: u64,
    /// Whether the database has another number.
    is_changed: bool,
    /// The last question.
    ask: Option<SeatAsk>,
    askers: Vec<oneshot::Sender<()>>,
    /// The first so many of them are part of what is being written.
    asked: usize,
}

/// What is written for one key: the seats held, and those that are taken if they are free.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SeatWrite {
    pub(crate) held: u64,
    pub(crate) units: u64,
    pub(crate) most: u64,
}

impl Seats {
    /// The seats of a key that this host holds.
    pub(super) fn held(&self, key: &str) -> u64 {
        self.lock().by_name.get(key).map_or(0, |seats| seats.held)
    }

    /// Waits for more seats. `None` if too many keys wait.
    pub(super) fn ask(&self, key: String, ask: SeatAsk, keys_max: usize) -> Option<oneshot::Receiver<()>> {
        let all = &mut self.lock().by_name;
        if all.len() >= keys_max && !all.contains_key(&key) {
            return None;
        }
        let (asker, answer) = oneshot::channel();
        let seats = all.entry(key).or_default();
        if seats.asked == 0 {
            seats.askers.retain(|asker| !asker.is_closed());
        }
        seats.askers.push(asker);
        seats.ask = Some(ask);
        Some(answer)
    }

    /// Holds at most so many seats of a key from now on. Returns whether that is less.
    pub(super) fn lower(&self, key: &str, to: u64) -> bool {
        let all = &mut self.lock().by_name;
        let Some(seats) = all.get_mut(key).filter(|seats| seats.held > to) else { return false };
        seats.held = to;
        seats.is_changed = true;
        true
    }

    /// What is to be written, for at most so many keys. Those that were left the last time come first.
    pub(crate) fn writes(&self, most: usize) -> BTreeMap<String, SeatWrite> {
        let mut all = self.lock();
        let keys = all.next(most, KeySeats::is_due);
        let write = |key: String| {
            let seats = all.by_name.get_mut(&key)?;
            let SeatAsk { units, most } = seats.ask.unwrap_or(SeatAsk { units: 0, most: 0 });
            seats.asked = seats.askers.len();
            Some((key, SeatWrite { held: seats.held, units: units.max(seats.asked as u64), most }))
        };
        keys.into_iter().filter_map(write).collect()
    }

    /// Whether anything is to be written.
    pub(crate) fn is_any_due(&self) -> bool {
        self.lock().by_name.values().any(KeySeats::is_due)
    }

    /// Takes over what was written: `taken` seats in the place of those of `write`.
    pub(crate) fn written(&self, key: &str, write: SeatWrite, taken: u64) {
        let all = &mut self.lock().by_name;
        let Some(seats) = all.get_mut(key) else { return };
        // Some may have been returned meanwhile.
        seats.is_changed = seats.held != write.held;
        let asked = std::mem::take(&mut seats.asked).min(seats.askers.len());
        let told = seats.askers.drain(..asked).filter_map(|asker| asker.send(()).ok()).count();
        let granted = taken.saturating_sub(write.held);
        if told > 0 {
            seats.held += granted;
        } else if granted > 0 {
            // All who asked have given up.
            seats.is_changed = true;
        }
        if seats.askers.is_empty() {
            seats.ask = None;
        }
        if seats.held == 0 && !seats.is_due() {
            all.remove(key);
        }
    }

    /// Writes down all seats again: the database may have lost them.
    pub(crate) fn write_again(&self) {
        self.lock().by_name.values_mut().for_each(|seats| seats.is_changed = true);
    }

    /// Tells those who wait that there is no answer.
    pub(super) fn give_up(&self) {
        self.lock().by_name.values_mut().for_each(|seats| {
            seats.ask = None;
            seats.askers.clear();
            seats.asked = 0;
        });
    }

    fn lock(&self) -> MutexGuard<'_, InTurn<KeySeats>> {
        // The numbers are usable even if another thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeySeats {
    fn is_due(&self) -> bool {
        self.is_changed || self.ask.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SeatAsk = SeatAsk { units: 1, most: 9 };

    fn only(seats: &Seats) -> SeatWrite {
        seats.writes(9)["k"]
    }

    #[test]
    fn those_who_wait_together_ask_for_a_seat_each() {
        let seats = Seats::default();
        let answers = [0; 3].map(|_| seats.ask("k".to_owned(), ONE, 9).unwrap());
        let write = only(&seats);
        assert_eq!(write, SeatWrite { held: 0, units: 3, most: 9 });
        seats.written("k", write, 2);
        assert_eq!((seats.held("k"), seats.is_any_due()), (2, false));
        for mut answer in answers {
            assert_eq!(answer.try_recv(), Ok(()));
        }
    }

    #[test]
    fn a_seat_that_is_returned_while_more_are_taken_is_written_next() {
        let seats = Seats::default();
        let _first = seats.ask("k".to_owned(), ONE, 9).unwrap();
        seats.written("k", only(&seats), 1);
        let _second = seats.ask("k".to_owned(), ONE, 9).unwrap();
        let write = only(&seats);
        assert!(seats.lower("k", 0));
        seats.written("k", write, 2);
        assert_eq!(seats.held("k"), 1);
        assert_eq!(only(&seats), SeatWrite { held: 1, units: 0, most: 0 });
        assert!(seats.lower("k", 0) && !seats.lower("k", 0));
        seats.written("k", only(&seats), 0);
        assert!(seats.writes(9).is_empty() && seats.lock().by_name.is_empty());
    }

    #[test]
    fn who_asks_while_an_answer_is_on_its_way_is_part_of_the_next_question() {
        let seats = Seats::default();
        let _first = seats.ask("k".to_owned(), ONE, 9).unwrap();
        let write = only(&seats);
        let mut second = seats.ask("k".to_owned(), ONE, 9).unwrap();
        seats.written("k", write, 1);
        assert!(second.try_recv().is_err());
        let write = only(&seats);
        assert_eq!(write, SeatWrite { held: 1, units: 1, most: 9 });
        seats.written("k", write, 2);
        assert_eq!((second.try_recv(), seats.held("k")), (Ok(()), 2));
    }

    #[test]
    fn keys_that_were_left_are_written_first_the_next_time() {
        let seats = Seats::default();
        let _answers = ["a", "b", "c"].map(|key| seats.ask(key.to_owned(), ONE, 9).unwrap());
        let write = |most| {
            let writes = seats.writes(most);
            writes.iter().for_each(|(key, write)| seats.written(key, *write, 1));
            seats.write_again();
            writes.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(write(2), ["a", "b"]);
        assert_eq!(write(2), ["a", "c"]);
        assert_eq!(write(9), ["a", "b", "c"]);
    }

    #[test]
    fn seats_of_those_who_gave_up_are_returned() {
        let seats = Seats::default();
        drop(seats.ask("k".to_owned(), ONE, 9).unwrap());
        seats.written("k", only(&seats), 1);
        assert_eq!((seats.held("k"), only(&seats).units), (0, 0));
        seats.written("k", only(&seats), 0);
        assert!(seats.lock().by_name.is_empty());
    }

    #[test]
    fn seats_are_written_again_and_waiting_is_bounded() {
        let seats = Seats::default();
        let answer = seats.ask("k".to_owned(), ONE, 1).unwrap();
        assert!(seats.ask("other".to_owned(), ONE, 1).is_none());
        seats.give_up();
        assert!(answer.blocking_recv().is_err() && !seats.is_any_due());
        let _again = seats.ask("k".to_owned(), ONE, 1).unwrap();
        seats.written("k", only(&seats), 1);
        assert!(!seats.is_any_due());
        seats.write_again();
        assert_eq!(only(&seats), SeatWrite { held: 1, units: 0, most: 0 });
    }
}
