//! Answers that ended normally without content. After such an answer the next endpoint is asked. If
//! none gives content, the first of these answers is used. All of them are charged, because
//! providers charge for them.

use super::{Answering, Run};
use crate::memory::meters::AttemptOutcome;
use crate::money::ledger::Charged;

/// The first such answer. Its cost counts, and is not yet an answer's or a lost attempt's.
pub(super) struct Spare<T> {
    answering: Answering<T>,
    /// Its index among the attempts of the routing trace.
    attempt: usize,
}

impl<T> Spare<T> {
    /// Keeps the first such answer. For a further one returns what is charged for it.
    pub(super) fn keep(spare: &mut Option<Self>, answering: Answering<T>, run: &mut Run) -> Option<Charged> {
        let (events, is_byok) = (&answering.begun.events, answering.is_byok());
        if spare.is_some() {
            return run.entry.passed_over(events, is_byok);
        }
        run.entry.set_aside(events, is_byok);
        *spare = Some(Self { answering, attempt: run.trace.attempts.len() });
        None
    }

    /// Uses it as the answer of the request.
    pub(super) fn take(self, run: &mut Run) -> Answering<T> {
        let Self { mut answering, attempt } = self;
        answering.watch.counts_as(AttemptOutcome::Answered);
        run.entry.take_up(&answering.endpoint);
        run.trace.answered_after_all(attempt, answering.index, answering.begun.used.as_ref());
        answering
    }

    /// Another endpoint gave content: the answer that was kept is not used, but charged.
    pub(super) fn pass_over(spare: &mut Option<Self>, run: &mut Run) {
        if let Some(Self { attempt, .. }) = spare.take() {
            let charged = run.entry.charge_aside();
            run.trace.charged_at(attempt, charged);
        }
    }
}
