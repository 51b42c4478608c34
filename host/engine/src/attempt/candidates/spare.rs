//! Answers that ended normally without content. After such an answer the next endpoint is asked. If
//! none gives content, the first of these answers is used. All of them are charged, because
//! providers charge for them.

use super::{Answered, AttemptNotes, Won};
use crate::catalog::Endpoint;
use crate::money::ledger::Charged;

/// The first such answer, which is not charged yet.
pub(super) struct Spare<T> {
    won: Won<T>,
    /// Its index among the attempts of the routing trace.
    attempt: usize,
}

impl<T: Answered> Spare<T> {
    /// Keeps the first such answer. For a further one returns what is charged for it.
    pub(super) fn keep(
        spare: &mut Option<Self>,
        won: Won<T>,
        notes: &mut AttemptNotes<'_>,
    ) -> Option<Charged> {
        let is_byok = won.answer.used().is_some_and(|used| used.is_byok);
        if spare.is_some() {
            return notes.entry.passed_over(won.answer.events(), is_byok);
        }
        notes.entry.set_aside(won.answer.events(), is_byok);
        *spare = Some(Self { won, attempt: notes.trace.attempts.len() });
        None
    }

    /// Index of its endpoint in the order.
    pub(super) fn place(&self) -> usize {
        self.won.place
    }

    /// Uses it as the answer of the request.
    pub(super) fn take(self, endpoint: &Endpoint, notes: &mut AttemptNotes<'_>) -> Won<T> {
        let Self { won, attempt } = self;
        notes.entry.take_up(endpoint);
        notes.trace.answered_after_all(attempt, won.place, won.answer.used());
        won
    }

    /// Another endpoint gave content: the answer that was kept is not used, but charged.
    pub(super) fn pass_over(spare: &mut Option<Self>, notes: &mut AttemptNotes<'_>) {
        if let Some(Self { attempt, .. }) = spare.take() {
            let charged = notes.entry.charge_aside();
            notes.trace.charged_at(attempt, charged);
        }
    }
}
