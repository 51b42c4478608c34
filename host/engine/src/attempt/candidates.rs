//! Tries the endpoints of a request in their order until one answers. Responses and embeddings both
//! use it, and no other code goes from one attempt to the next. Health, sessions, retry budget,
//! ledger and routing trace are updated here.

mod places;
mod spare;

use crate::attempt::fallback::Failures;
use crate::authentication::UsedCredential;
use crate::catalog::Endpoint;
use crate::failure::blame::Blame;
use crate::failure::{AttemptFailure, Cause};
use crate::lifecycle::deadline::Deadline;
use crate::memory::Memory;
use crate::memory::health::AttemptProbe;
use crate::memory::retry::{Retries, Round};
use crate::memory::session::Session;
use crate::money::credit::TurnTokens;
use crate::money::ledger::{Charged, LedgerEntry};
use crate::trace::RoutingTrace;
use cofferdam_runtime::wire::Event;
use places::RemainingCandidates;
use spare::Spare;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use tokio::time::sleep;

/// What is tried at one endpoint after another.
pub(crate) trait Trial: Sync {
    /// What a successful attempt returns.
    type Answer: Answered + Send;

    /// Tries one endpoint, up to the first content of a stream or to the end of an answer that is
    /// not streamed.
    fn run(
        &self,
        endpoint: &Endpoint,
        deadline: &mut Deadline,
    ) -> impl Future<Output = Result<Self::Answer, AttemptFailure>> + Send;
}

/// What an answer says about its attempt.
pub(crate) trait Answered {
    /// The provider's status; `None` for a guest that answers without a provider.
    fn status(&self) -> Option<u16>;
    /// The credential that was sent.
    fn used(&self) -> Option<&UsedCredential>;
    /// The events so far, for answers that are made of events.
    fn events(&self) -> &[Event];
    /// Whether the answer ended normally without content.
    fn is_empty(&self) -> bool;
}

/// The endpoints of one request, and how it may use them.
pub(crate) struct Candidates<'a> {
    /// In the router's order.
    pub(crate) order: &'a [Arc<Endpoint>],
    /// Index in `order` of the endpoint that is tried before the others.
    pub(crate) preferred: Option<usize>,
    /// Whether endpoints may be tried again when all have failed.
    pub(crate) may_retry: bool,
    /// Whether endpoints in trouble are tried last.
    pub(crate) eject: bool,
    /// The conversation that the request belongs to.
    pub(crate) session: Option<Session>,
    /// A rough count of the request's input tokens, for the ledger.
    pub(crate) input_tokens: u64,
    /// The most tokens that the turn can have.
    pub(crate) tokens: TurnTokens,
    /// Whether a normal end without content is accepted at once, before the other endpoints are
    /// asked.
    pub(crate) may_be_empty: bool,
    pub(crate) memory: &'a Memory,
}

/// The endpoint that answers, and its answer.
pub(crate) struct Won<T> {
    /// Index of the endpoint in the order.
    pub(crate) place: usize,
    pub(crate) answer: T,
    /// Gets the end of the answer, for the endpoint's health.
    pub(crate) watch: AttemptProbe,
}

/// Where attempts are recorded: the ledger and the routing trace.
pub(crate) struct AttemptNotes<'a> {
    pub(crate) entry: &'a mut LedgerEntry,
    pub(crate) trace: &'a mut RoutingTrace,
}

/// What has failed so far.
struct RoundFailures<T> {
    failures: Failures,
    retries: Retries,
    /// The first answer without content. It is used if no endpoint gives content.
    spare: Option<Spare<T>>,
}

impl Candidates<'_> {
    /// Tries one endpoint after another until one answers.
    ///
    /// # Errors
    /// All failures, when no endpoint is left to be tried.
    pub(crate) async fn try_in_order<T: Trial>(
        &self,
        trial: &T,
        notes: &mut AttemptNotes<'_>,
        deadline: &mut Deadline,
    ) -> Result<Won<T::Answer>, Failures> {
        deadline.note_dispatch();
        self.memory.retries.earn();
        let mut failed =
            RoundFailures { failures: Failures::default(), retries: Retries::default(), spare: None };
        let others = (0..self.order.len()).filter(|place| Some(*place) != self.preferred);
        let mut places = self.preferred.into_iter().chain(others).collect();
        loop {
            match self.round(places, trial, &mut failed, notes, deadline).await {
                ControlFlow::Break(Some(won)) => return Ok(won),
                ControlFlow::Break(None) => break,
                ControlFlow::Continue(()) => {}
            }
            match self.wait(&mut failed.retries, deadline).await {
                Some(again) => places = again,
                None => break,
            }
        }
        self.wordless(failed.spare, notes).ok_or(failed.failures)
    }

    /// Uses the answer without content when nothing else is left: it is better than an error.
    fn wordless<T: Answered>(&self, spare: Option<Spare<T>>, notes: &mut AttemptNotes<'_>) -> Option<Won<T>> {
        let spare = spare?;
        let endpoint = self.order.get(spare.place())?;
        Some(spare.take(endpoint, notes))
    }

    /// Tries each of the endpoints at `places` once. Breaks with the answer, or with `None` when no
    /// other endpoint may be tried.
    async fn round<T: Trial>(
        &self,
        places: Vec<usize>,
        trial: &T,
        failed: &mut RoundFailures<T::Answer>,
        notes: &mut AttemptNotes<'_>,
        deadline: &mut Deadline,
    ) -> ControlFlow<Option<Won<T::Answer>>> {
        let RoundFailures { failures, retries, spare } = failed;
        let mut places = RemainingCandidates::new(places);
        while let Some((place, endpoint, mut watch)) =
            self.start(&mut places, failures, deadline.is_streamed())
        {
            // Set before the attempt, because the client may leave at any point of it.
            deadline.attendance().asks(endpoint.is_read_on(self.memory.clock.monotonic_ms()));
            let output_max = self.tokens.output_at(endpoint);
            notes.entry.asked(endpoint, self.input_tokens, output_max, deadline.attendance());
            let (failed, charged) = match trial.run(endpoint, deadline).await {
                // The next endpoint may give content. The endpoint is not blamed: it has answered.
                Ok(answer) if answer.is_empty() && !self.may_be_empty && !deadline.has_left() => {
                    watch.answered();
                    let failed =
                        AttemptFailure { status: answer.status(), ..AttemptFailure::of(Cause::Empty) };
                    let won = Won { place, answer, watch };
                    (failed, Spare::keep(spare, won, notes))
                }
                Ok(answer) => {
                    watch.answered();
                    Spare::pass_over(spare, notes);
                    notes.trace.answered(place, endpoint, answer.status(), answer.used());
                    return ControlFlow::Break(Some(Won { place, answer, watch }));
                }
                Err(failed) => {
                    watch.failed(&failed);
                    self.unpin(endpoint, &failed);
                    let charged = charge_failed(&failed, notes.entry, deadline);
                    (failed, charged)
                }
            };
            retries.note(place, &failed);
            failures.note_head(&failed, deadline.is_streamed());
            let next = failures.add(endpoint, failed, notes.trace);
            notes.trace.charged(charged);
            // After the client has left, only the answer that had begun is read on.
            if next.is_break() || deadline.has_left() {
                return ControlFlow::Break(None);
            }
        }
        ControlFlow::Continue(())
    }

    /// Begins the next attempt of a round.
    fn start(
        &self,
        places: &mut RemainingCandidates,
        failures: &Failures,
        streamed: bool,
    ) -> Option<(usize, &Endpoint, AttemptProbe)> {
        let Self { order, memory, eject, .. } = *self;
        let endpoint = |place: usize| order.get(place).filter(|endpoint| failures.allow(endpoint));
        let (place, watch) = places.next(
            |place| endpoint(place).is_some(),
            |place| eject && endpoint(place).is_some_and(|endpoint| endpoint.health.is_well()),
            |place| AttemptProbe::begin(&endpoint(place)?.health, &memory.clock, streamed),
        )?;
        let endpoint = endpoint(place)?;
        let anyway = || AttemptProbe::begin_anyway(&endpoint.health, &memory.clock, streamed);
        Some((place, endpoint, watch.unwrap_or_else(anyway)))
    }

    /// Ends the conversation's preference for an endpoint that failed.
    fn unpin(&self, endpoint: &Endpoint, failed: &AttemptFailure) {
        if let Some(session) = self.session.filter(|_| failed.blame() != Blame::Other) {
            self.memory.sessions.failed(session, endpoint.health.id());
        }
    }

    /// Waits until failed endpoints may be tried again, if they may. Returns their indexes.
    async fn wait(&self, retries: &mut Retries, deadline: &mut Deadline) -> Option<Vec<usize>> {
        let left = deadline.left();
        let Round { wait, places } =
            if self.may_retry { retries.next(&self.memory.retries, left, share())? } else { return None };
        tracing::info!(
            wait_ms = wait.as_millis() as u64,
            attempts = places.len(),
            "every endpoint failed, trying again"
        );
        deadline.during(sleep(wait), left).await.ok()?;
        for endpoint in places.iter().filter_map(|place| self.order.get(*place)) {
            endpoint.health.retried();
        }
        Some(places)
    }
}

/// Charges a failed attempt: nothing, unless it was sent and not answered in time.
fn charge_failed(failed: &AttemptFailure, entry: &mut LedgerEntry, deadline: &Deadline) -> Option<Charged> {
    let is_sent = deadline.attendance().is_sent();
    deadline.attendance().has_answered();
    if is_sent && failed.is_timed_out {
        return entry.timed_out(failed.is_byok);
    }
    if is_sent && deadline.has_left() && failed.status.is_none_or(|status| status < 400) {
        // The client left, the answer was read on for its usage, and it ended without any.
        entry.break_off_lost(failed.is_byok);
    }
    entry.unanswered();
    None
}

/// A random number from 0 to 1.
fn share() -> f64 {
    crate::random::random_seed() as f64 / u64::MAX as f64
}
