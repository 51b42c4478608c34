//! Answers that came to a normal end without content. The next endpoint is asked; where none has content, the first of
//! them is the answer. All of them were made, and are charged.

use super::{Answered, Notes, Won};
use crate::catalog::Endpoint;
use crate::money::ledger::Charged;

/// The first such answer, not charged yet.
pub(super) struct Spare<T> {
    won: Won<T>,
    /// Its place among the attempts.
    attempt: usize,
}

impl<T: Answered> Spare<T> {
    /// Keeps the first of them. Of a further one, tells what is charged for it.
    pub(super) fn keep(spare: &mut Option<Self>, won: Won<T>, notes: &mut Notes<'_>) -> Option<Charged> {
        let is_byok = won.answer.used().is_some_and(|used| used.is_byok);
        if spare.is_some() {
            return notes.entry.passed_over(won.answer.events(), is_byok);
        }
        notes.entry.set_aside(won.answer.events(), is_byok);
        *spare = Some(Self { won, attempt: notes.trail.attempts.len() });
        None
    }

    /// The place of its endpoint in the order.
    pub(super) fn place(&self) -> usize {
        self.won.place
    }

    /// Makes it the answer.
    pub(super) fn take(self, endpoint: &Endpoint, notes: &mut Notes<'_>) -> Won<T> {
        let Self { won, attempt } = self;
        notes.entry.take_up(endpoint);
        notes.trail.answered_after_all(attempt, won.place, won.answer.used());
        won
    }

    /// Another endpoint has content: the answer that was kept is charged all the same.
    pub(super) fn pass_over(spare: &mut Option<Self>, notes: &mut Notes<'_>) {
        if let Some(Self { attempt, .. }) = spare.take() {
            let charged = notes.entry.charge_aside();
            notes.trail.charged_at(attempt, charged);
        }
    }
}
