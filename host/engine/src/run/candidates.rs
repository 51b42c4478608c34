//! Tries the endpoints of a request in their order until one answers. Responses and embeddings both
//! use it, and no other code goes from one attempt to the next. Health, sessions, retry budget,
//! ledger and routing trace are updated here.

use super::Run;
use super::fallback::{Failures, beside_errors};
use super::remaining::RemainingCandidates;
use super::spare::Spare;
use crate::authentication::UsedCredential;
use crate::catalog::Endpoint;
use crate::cost::{Amount, Cost};
use crate::failure::blame::Blame;
use crate::failure::{AttemptFailure, Cause};
use crate::in_place::boxed;
use crate::lifecycle::deadline::Deadline;
use crate::lifecycle::departure::{LONG_READING_TIME, READING_TIME};
use crate::memory::health::AttemptWatch;
use crate::memory::meters::AttemptOutcome;
use crate::memory::retry::{Retries, Round};
use crate::money::credit::TurnTokens;
use crate::money::ledger::{AttemptTokens, Charged, LedgerEntry, Unreported};
use crate::random::random_seed;
use crate::refusal::Refusal;
use crate::timeline::{FactName, StepType};
use cofferdam_egress::Origin;
use cofferdam_runtime::wire::{Event, Usage};
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// What is tried at one endpoint after another.
pub(crate) trait Trial: Sync {
    /// What an answer consists of besides its first events.
    type Rest: Send;

    /// Tries one endpoint, up to the first content of a stream or to the end of an answer that is
    /// not streamed. `is_byok`: the request was routed there with the caller's own credential.
    /// `entry` is told what arrives, because it is charged even if the attempt fails or the client
    /// leaves.
    fn run(
        &self,
        endpoint: &Arc<Endpoint>,
        is_byok: bool,
        deadline: &mut Deadline,
        entry: &mut LedgerEntry,
    ) -> impl Future<Output = Result<Begun<Self::Rest>, AttemptFailure>> + Send;
}

/// An answer that has begun.
pub(crate) struct Begun<T> {
    /// The provider's status; `None` for a guest that answers without a provider.
    pub(crate) status: Option<u16>,
    /// The credential that was sent.
    pub(crate) used: Option<UsedCredential>,
    /// The events so far, for answers that are made of events.
    pub(crate) events: Vec<Event>,
    /// Whether the answer ended normally without content.
    pub(crate) is_empty: bool,
    pub(crate) rest: T,
}

impl<T> Begun<T> {
    fn is_byok(&self) -> bool {
        self.used.as_ref().is_some_and(|used| used.is_byok)
    }
}

/// An endpoint that answers, and its answer.
pub(crate) struct Answering<T> {
    /// Index of the endpoint in the order.
    pub(super) index: usize,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) begun: Begun<T>,
    /// Gets the end of the answer, for the endpoint's health.
    pub(crate) watch: AttemptWatch,
}

impl<T> Answering<T> {
    /// Whether the caller's own credential was sent.
    pub(crate) fn is_byok(&self) -> bool {
        self.begun.is_byok()
    }

    /// What the answer costs by its usage. `calls` is the cost of the provider's own tools.
    pub(crate) fn price(&self, usage: &Usage, calls: Amount) -> Cost {
        Cost::of(usage, &self.endpoint.prices, self.is_byok()).with_calls(calls)
    }
}

/// The limits of one turn.
pub(crate) struct Turn {
    /// The most tokens that the turn can have.
    pub(crate) tokens: TurnTokens,
    /// A rough count of the turn's input tokens, without files that the provider fetches.
    pub(crate) input_tokens: u64,
    /// An upper bound of tokens of files that the provider fetches. Their size is not known here.
    pub(crate) fetched_tokens: u64,
    /// Whether a normal end without content is accepted at once, before the other endpoints are
    /// asked.
    pub(crate) may_be_empty: bool,
}

impl Turn {
    /// The estimate of the turn at `endpoint`, for what is charged without figures of its provider.
    fn most_at(&self, endpoint: &Endpoint) -> AttemptTokens {
        let input = self.input_tokens;
        let all = self.tokens.within_contexts(input.saturating_add(self.fetched_tokens), endpoint);
        AttemptTokens {
            input,
            fetched: all.saturating_sub(input),
            output_max: self.tokens.output_at(endpoint),
            input_max: self.tokens.input_at(endpoint),
        }
    }
}

/// What has failed so far.
struct RoundFailures<T> {
    failures: Failures,
    retries: Retries,
    /// The first answer without content. It is used if no endpoint gives content.
    spare: Option<Spare<T>>,
    /// Why no further attempt may be paid for.
    unpaid: Option<Refusal>,
}

impl Run {
    /// Tries one endpoint after another until one answers.
    ///
    /// # Errors
    /// The refusal for all failures, when no endpoint is left to be tried.
    pub(crate) async fn ask<T: Trial>(
        &mut self,
        trial: &T,
        turn: &Turn,
    ) -> Result<Answering<T::Rest>, Refusal> {
        self.turns = self.turns.saturating_add(1);
        self.deadline.note_dispatch();
        self.memory().retries.earn();
        let (failures, retries) = (Failures::default(), Retries::default());
        let mut failed = RoundFailures { failures, retries, spare: None, unpaid: None };
        let others = (0..self.order.endpoints.len()).filter(|index| Some(*index) != self.preferred);
        let mut indexes = self.preferred.into_iter().chain(others).collect();
        let answering = loop {
            match self.round(indexes, trial, turn, &mut failed).await {
                ControlFlow::Break(Some(answering)) => break Some(answering),
                ControlFlow::Break(None) => break None,
                ControlFlow::Continue(()) => {}
            }
            match self.wait(&mut failed.retries).await {
                Some(again) => indexes = again,
                None => break None,
            }
            self.entry.outdate_pledge();
        };
        // An answer without content is better than an error.
        let answering = answering.or_else(|| failed.spare.map(|spare| spare.take(self)));
        let (failures, unpaid) = (failed.failures, failed.unpaid);
        let answering = answering.ok_or_else(|| unpaid.unwrap_or_else(|| failures.refusal(&self.trace)))?;
        self.preferred = Some(answering.index);
        Ok(answering)
    }

    /// Tries each of the endpoints at `indexes` once. Breaks with the answer, or with `None` when no
    /// other endpoint may be tried.
    async fn round<T: Trial>(
        &mut self,
        indexes: Vec<usize>,
        trial: &T,
        turn: &Turn,
        failed: &mut RoundFailures<T::Rest>,
    ) -> ControlFlow<Option<Answering<T::Rest>>> {
        let RoundFailures { failures, retries, spare, unpaid } = failed;
        let mut indexes = RemainingCandidates::new(indexes);
        while let Some((index, endpoint, mut watch)) = self.start(&mut indexes, failures) {
            *unpaid = self.reserve_again(turn, index, &indexes, failures).await.err();
            if unpaid.is_some() || self.deadline.has_left() {
                return ControlFlow::Break(None);
            }
            // Set before the attempt, because the client may leave at any point of it.
            let presence = self.deadline.presence();
            presence.asks(self.reading_time(&endpoint, turn));
            let is_byok = self.order.is_byok(index);
            self.entry.asked(&endpoint, is_byok, turn.most_at(&endpoint), presence);
            self.open_attempt(&endpoint);
            // Boxed, so that a request has no room for it while its answer is read.
            let attempt = boxed(|| trial.run(&endpoint, is_byok, &mut self.deadline, &mut self.entry));
            let (failed, charged) = match attempt.await {
                // The next endpoint may give content. The endpoint is not blamed: it has answered.
                Ok(begun) if begun.is_empty && !turn.may_be_empty && !self.deadline.has_left() => {
                    watch.answered();
                    watch.counts_as(AttemptOutcome::Failed);
                    self.deadline.presence().has_answered();
                    self.scope.timeline.close("empty", &[]);
                    let failed = AttemptFailure { status: begun.status, ..AttemptFailure::of(Cause::Empty) };
                    let endpoint = Arc::clone(&endpoint);
                    (failed, Spare::keep(spare, Answering { index, endpoint, begun, watch }, self))
                }
                Ok(begun) => {
                    watch.answered();
                    Spare::pass_over(spare, self);
                    self.trace.answered(index, &endpoint, begun.status, begun.used.as_ref());
                    return ControlFlow::Break(Some(Answering { index, endpoint, begun, watch }));
                }
                Err(failed) => {
                    watch.failed(&failed);
                    failed.close_attempt(&self.scope.timeline);
                    self.unpin(&endpoint, &failed);
                    let charged = charge_failed(&failed, &mut self.entry, &self.deadline);
                    (failed, charged)
                }
            };
            retries.note(index, &failed);
            failures.note_head(&failed, self.deadline.is_streamed());
            let next = failures.add(&endpoint, failed, &mut self.trace);
            self.trace.charged(charged);
            // After the client has left, only the answer that had begun is read on.
            if next.is_break() || self.deadline.has_left() {
                return ControlFlow::Break(None);
            }
        }
        ControlFlow::Continue(())
    }

    /// Reserves the most that the turn may cost at the endpoint at `index` and those that are left, where
    /// the former pledge does not cover them any more.
    async fn reserve_again(
        &mut self,
        turn: &Turn,
        index: usize,
        others: &RemainingCandidates,
        failures: &Failures,
    ) -> Result<(), Refusal> {
        if !self.entry.is_pledge_stale() {
            return Ok(());
        }
        let is_allowed =
            |index: &usize| self.order.endpoints.get(*index).is_some_and(|endpoint| failures.allow(endpoint));
        let places: Vec<usize> = [index].into_iter().chain(others.rest().filter(is_allowed)).collect();
        let reserved = self.reserve_at(turn.tokens, Some(&places)).await;
        reserved.map_err(|refusal| beside_errors(refusal, self.trace.previous_errors(usize::MAX)))
    }

    /// How long an answer of `endpoint` is read on when the client leaves.
    fn reading_time(&self, endpoint: &Endpoint, turn: &Turn) -> Option<Duration> {
        let has_unknown_input = turn.fetched_tokens > 0 || self.entry.offers_hosted();
        let time = if has_unknown_input { LONG_READING_TIME } else { READING_TIME };
        let now_ms = self.memory().clock.monotonic_ms();
        endpoint.is_read_on(now_ms, has_unknown_input).then_some(time)
    }

    /// Begins the next attempt of a round.
    fn start(
        &self,
        indexes: &mut RemainingCandidates,
        failures: &Failures,
    ) -> Option<(usize, Arc<Endpoint>, AttemptWatch)> {
        let (clock, streamed) = (&self.memory().clock, self.deadline.is_streamed());
        let eject = self.scope.parts().eject;
        let endpoint =
            |index: usize| self.order.endpoints.get(index).filter(|endpoint| failures.allow(endpoint));
        let (index, watch) = indexes.next(
            |index| endpoint(index).is_some(),
            |index| eject && endpoint(index).is_some_and(|endpoint| endpoint.health.is_well()),
            |index| AttemptWatch::begin(&endpoint(index)?.health, clock, streamed),
        )?;
        let endpoint = endpoint(index)?;
        let anyway = || AttemptWatch::begin_anyway(&endpoint.health, clock, streamed);
        Some((index, Arc::clone(endpoint), watch.unwrap_or_else(anyway)))
    }

    /// Begins the step of an attempt, which stays open until its answer ends.
    fn open_attempt(&self, endpoint: &Endpoint) {
        let provider = &endpoint.provider;
        let facts = [
            FactName::Attempt.number(self.trace.attempts.len() as u64 + 1),
            FactName::Turn.number(u64::from(self.turns)),
            FactName::Provider.name(&*provider.name),
            FactName::Model.name(&*endpoint.candidate.model),
            FactName::Host.name(provider.origin.as_ref().map(Origin::host)),
        ];
        self.scope.timeline.open(StepType::Attempt, &["attempt", &provider.name], &facts);
    }

    /// Ends the conversation's preference for an endpoint that failed.
    fn unpin(&self, endpoint: &Endpoint, failed: &AttemptFailure) {
        if let Some(session) = self.session.filter(|_| failed.blame() != Blame::Other) {
            self.memory().sessions.failed(session, endpoint.health.id());
        }
    }

    /// Waits until failed endpoints may be tried again, if they may. Returns their indexes.
    async fn wait(&mut self, retries: &mut Retries) -> Option<Vec<usize>> {
        if !self.may_retry {
            return None;
        }
        let left = self.deadline.left();
        // A random number from 0 to 1.
        let share = random_seed() as f64 / u64::MAX as f64;
        let Round { wait, indexes } = retries.next(&self.memory().retries, left, share)?;
        tracing::info!(
            wait_ms = wait.as_millis() as u64,
            attempts = indexes.len(),
            "every endpoint failed, trying again"
        );
        let timeline = &self.scope.timeline;
        let step = timeline.begin(StepType::Wait, &["wait before the next attempts"], &[]);
        let waited = self.deadline.during(pin!(sleep(wait)), left).await;
        timeline.end(step, if waited.is_ok() { "ok" } else { "timeout" }, &[]);
        waited.ok()?;
        for endpoint in indexes.iter().filter_map(|index| self.order.endpoints.get(*index)) {
            endpoint.health.retried();
        }
        Some(indexes)
    }
}

/// Charges a failed attempt, see [`LedgerEntry::attempt_failed`].
fn charge_failed(failed: &AttemptFailure, entry: &mut LedgerEntry, deadline: &Deadline) -> Option<Charged> {
    let presence = deadline.presence();
    let is_charged = presence.is_sent() && failed.status.is_none_or(|status| status < 400);
    presence.has_answered();
    let unreported = match failed.cause {
        _ if !is_charged => Unreported::Nothing,
        Cause::Late { total: true, .. } => Unreported::Produced,
        _ if failed.is_cut_here => Unreported::Arrived,
        _ => Unreported::Nothing,
    };
    let has_left = is_charged && deadline.has_left();
    entry.attempt_failed(if has_left { unreported.of_absent() } else { unreported }, failed.is_byok)
}
