//! One request in the ledger: what it may spend, what it has spent so far, and its usage row. The
//! row is written on every way out: finished, failed, or dropped because the client left.

mod lost;
mod underway;

pub(crate) use lost::Charged;

use crate::caller::Caller;
use crate::catalog::Endpoint;
use crate::cost::{Amount, Cost, Used};
use crate::export::PendingExport;
use crate::lifecycle::deadline::Deadline;
use crate::lifecycle::departure::ClientPresence;
use crate::limits::allowance::{Allowance, RequestEnd};
use crate::memory::health::Health;
use crate::money::cost_account::CostAccount;
use crate::money::credit::{self, INTENT_TIME_MAX, TurnEstimate};
use crate::refusal::{Refusal, status_of};
use crate::timeline::Timeline;
use cofferdam_runtime::wire::{ErrorKind, Event, Usage};
use cofferdam_store::{Pledge, Reservation, Store, UsageKind, UsageOutcome, UsageRow};
use std::pin::pin;
use std::sync::Arc;
use underway::Underway;
pub(crate) use underway::{AttemptTokens, Unreported};

/// A request in the ledger, opened before any work is done for it. It is settled when it is
/// dropped, at the latest. A request that was refused before it was routed, and has spent nothing,
/// leaves no row.
pub(crate) struct LedgerEntry {
    is_routed: bool,
    /// The turns of the answer.
    turns: Used,
    /// Attempts that are not the answer.
    lost: Used,
    /// Whether some usage was estimated, because a provider did not report it.
    is_estimated: bool,
    /// The attempt or turn that has not ended yet.
    underway: Option<Underway>,
    /// Types of the provider's own tools that the request offers.
    hosted: Vec<String>,
    /// An answer without content that may still be used, and is charged in any case.
    aside: Option<Underway>,
    /// The pledge of the current turn, where there is a limit.
    pledge: Option<Pledge>,
    /// Whether an attempt of the current turn was charged, so that the pledge does not cover the next
    /// one any more.
    is_pledge_stale: bool,
    /// The record for the request export, if there is a destination.
    pending: Option<Box<PendingExport>>,
    /// The health of the endpoint that was asked last, for the model's meter.
    asked: Option<Arc<Health>>,
    attempts: u32,
    /// What the models' meters have counted so far.
    metered: Used,
    /// Where the outcome of a client's request is noted.
    timeline: Timeline,
    /// Why it fails.
    error: Option<ErrorKind>,
    /// The token limits, until the tokens are charged.
    allowance: Allowance,
    /// The cost account of this request, to which the cost of its questions is added. It has the
    /// usage row, which a question does not have.
    account: Arc<CostAccount>,
}

impl LedgerEntry {
    /// Opens the ledger for a client's request, or for a question: `account` says which.
    ///
    /// # Errors
    /// 402 when the workspace or the key has nothing left to spend; 503 when the ledger has no room
    /// for another row.
    pub(crate) async fn open(
        store: &Store,
        caller: &Caller,
        kind: UsageKind,
        request_id: &str,
        streamed: bool,
        account: &Arc<CostAccount>,
    ) -> Result<Self, Refusal> {
        if !account.is_question() {
            let row = UsageRow::begun(request_id.to_owned(), caller.workspace.id, caller.key, kind, streamed);
            account.open(store.reserve(row).await.map_err(credit::refusal)?);
        }
        Ok(Self {
            is_routed: false,
            turns: Used::default(),
            lost: Used::default(),
            is_estimated: false,
            underway: None,
            hosted: Vec::new(),
            aside: None,
            pledge: None,
            is_pledge_stale: false,
            pending: None,
            asked: None,
            attempts: 0,
            metered: Used::default(),
            timeline: Timeline::default(),
            error: None,
            allowance: caller.allowance.clone(),
            account: Arc::clone(account),
        })
    }

    /// Sets where the outcome of the request is noted. A question has none.
    pub(crate) fn note_in(&mut self, timeline: Timeline) {
        if !self.account.is_question() {
            self.timeline = timeline;
        }
    }

    /// Sets the record that the request export gets at the end.
    pub(crate) fn broadcast(&mut self, pending: Option<Box<PendingExport>>) {
        self.pending = pending;
    }

    /// Notes why the request fails.
    pub(crate) fn failed(&mut self, error: ErrorKind) {
        self.timeline.failed(error);
        self.error = Some(error);
        if let Some(pending) = &mut self.pending {
            pending.failed(error);
        }
    }

    /// Notes that the request is well-formed and its models exist: from here on it leaves a row.
    pub(crate) fn routed(&mut self) {
        self.is_routed = true;
    }

    /// Sets the types of the provider's own tools that the request offers. Calls of them may have a
    /// price.
    pub(crate) fn offers(&mut self, hosted: Vec<String>) {
        self.hosted = hosted;
    }

    /// What is charged so far for calls of the provider's own tools in the current turn.
    pub(crate) fn calls(&self) -> Amount {
        self.underway.as_ref().map(Underway::calls).unwrap_or_default()
    }

    /// The part of [`Self::calls`] that is included in the last cost given to [`Self::consumed`].
    pub(crate) fn noted_calls(&self) -> Amount {
        self.underway.as_ref().map(Underway::noted_calls).unwrap_or_default()
    }

    /// Reserves the most that a turn may cost. In a prepaid workspace it also waits until the
    /// intent of the request is durable with at least this amount. Called before each turn of the
    /// request and of its questions. Does nothing where there are no limits.
    ///
    /// # Errors
    /// 402 when nothing is left besides what this request and others have spent and reserved; 503
    /// when the intent could not be written.
    pub(crate) async fn reserve(
        &mut self,
        turn: TurnEstimate<'_>,
        deadline: &mut Deadline,
    ) -> Result<(), Refusal> {
        self.is_pledge_stale = false;
        let Some(reservation) = self.account.reservation() else { return Ok(()) };
        if !reservation.is_limited() {
            return Ok(());
        }
        if let Some(first) = turn.endpoints.first() {
            // Names the likely endpoint in the intent, in case the process ends before one is
            // asked.
            self.note_row(|row| name_until_asked(row, first));
        }
        // The former turn's pledge is released first, so that it does not count against this one.
        self.pledge = None;
        self.pledge = reservation.pledge(turn.estimate().0).await.map_err(credit::refusal)?;
        credit::written(deadline.during(pin!(reservation.commit_intent()), INTENT_TIME_MAX).await)
    }

    /// Whether the most that the turn may cost has to be reserved again, because an attempt of it was
    /// charged.
    pub(crate) fn is_pledge_stale(&self) -> bool {
        self.is_pledge_stale
    }

    /// Has the next attempt reserve again.
    pub(crate) fn outdate_pledge(&mut self) {
        self.is_pledge_stale = true;
    }

    /// Whether the request offers the provider's own tools. What they find is input that only the
    /// provider can count.
    pub(crate) fn offers_hosted(&self) -> bool {
        !self.hosted.is_empty()
    }

    /// Begins an attempt at `endpoint`. `is_byok`: the caller's own credential will be used, as far as
    /// is known.
    pub(crate) fn asked(
        &mut self,
        endpoint: &Endpoint,
        is_byok: bool,
        tokens: AttemptTokens,
        presence: &Arc<ClientPresence>,
    ) {
        self.meter_use();
        self.asked = Some(Arc::clone(&endpoint.health));
        self.attempts = self.attempts.saturating_add(1);
        self.underway = Some(Underway::of(endpoint, is_byok, tokens, presence, &self.hosted));
        self.note_row(|row| {
            name(row, endpoint);
            row.attempts = row.attempts.saturating_add(1);
        });
    }

    /// Begins the attempt anew, because the endpoint has refused the request at no cost.
    pub(crate) fn asked_again(&mut self) {
        if let Some(underway) = &mut self.underway {
            underway.asked_again();
        }
    }

    /// Takes out of the usage that a provider reports with these events what cannot be right. Called
    /// before the events are counted or used.
    pub(crate) fn correct(&self, events: &mut [Event]) {
        for event in events {
            if let Event::Usage(usage) = event {
                *usage = self.corrected(*usage);
            }
        }
    }

    /// The usage that a provider reports in the current attempt, without what cannot be right.
    pub(crate) fn corrected(&self, usage: Usage) -> Usage {
        self.underway.as_ref().map_or(usage, |underway| underway.corrected(usage))
    }

    /// Counts what an attempt has received before its answer is used: events, and the usage that the
    /// provider reports with them.
    pub(crate) fn seen(&mut self, events: &[Event]) {
        if let Some(underway) = &mut self.underway {
            underway.seen(events);
        }
    }

    /// Notes the usage that a provider reports in an attempt, before its answer is used.
    pub(crate) fn told(&mut self, usage: Usage) {
        if let Some(underway) = &mut self.underway {
            underway.told(usage);
        }
    }

    /// Records that the endpoint answers. `is_byok`: the caller's own credential was used. The events
    /// so far are counted again when the answer is read.
    pub(crate) fn answered(&mut self, is_byok: bool) {
        if let Some(underway) = &mut self.underway {
            underway.is_byok = is_byok;
            underway.read_again();
        }
    }

    /// Counts what arrived of the current answer.
    pub(crate) fn received(&mut self, events: &[Event]) {
        if let Some(underway) = &mut self.underway {
            underway.received(events);
        }
    }

    /// Sets what the current turn and all turns have used so far, by the providers' own figures.
    pub(crate) fn consumed(&mut self, turn: &Usage, all: &Usage, cost: &Cost) {
        if let Some(underway) = &mut self.underway {
            underway.recorded(*turn);
        }
        self.turns = Used { usage: *all, cost: *cost };
        self.note();
    }

    /// Notes that some of what is charged is estimated.
    pub(crate) fn estimated(&mut self) {
        self.is_estimated = true;
    }

    /// What all turns have used so far.
    pub(crate) fn usage(&self) -> Usage {
        self.turns.usage
    }

    /// Estimates the usage of the current answer, whose provider has ended it, where figures are
    /// missing in what it `reported`. `None` if none are missing. `is_unseen`: the answer was read on
    /// for a client that has left.
    pub(crate) fn unreported(&mut self, reported: Option<Usage>, is_unseen: bool) -> Option<Usage> {
        let underway = self.underway.as_ref()?;
        let left = self.pledge.as_ref().map(Pledge::left_pico);
        let usage = match reported {
            None if is_unseen => underway.unreported(Unreported::Unseen, left),
            reported => underway.completed(reported),
        };
        if reported == Some(usage) {
            return None;
        }
        self.is_estimated = true;
        Some(usage)
    }

    /// Ends the current turn: its provider has reported its usage, or never will.
    pub(crate) fn turn_over(&mut self) {
        self.underway = None;
        // The turn's pledge is released, so that it does not count against the next turn.
        self.pledge = None;
    }

    /// Updates the cost account, the reservation and the row with what was spent so far.
    fn note(&mut self) {
        let aside = self.aside.as_ref().map(|aside| aside.whole().0).unwrap_or_default();
        let Used { usage, cost } = self.turns.plus(&self.lost).plus(&aside);
        self.account.set_turns(cost.paid, &self.turns.usage, self.pledge.as_mut());
        self.note_row(|row| {
            row.input_tokens = usage.input_tokens;
            row.cached_tokens = usage.cached_tokens;
            row.output_tokens = usage.output_tokens;
            row.reasoning_tokens = usage.reasoning_tokens;
            row.estimated = self.is_estimated;
        });
    }

    /// Changes the usage row of a client's request. A question has none.
    fn note_row(&self, change: impl FnOnce(&mut UsageRow)) {
        if let Some(reservation) = self.account.own_reservation() {
            reservation.note(change);
        }
    }

    /// Charges the tokens of its own turns, once. A question charges its tokens itself, although it
    /// has no row.
    fn charge_tokens(&mut self) {
        self.meter_use();
        let Used { usage, .. } = self.turns.plus(&self.lost);
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        std::mem::take(&mut self.allowance).charge(tokens);
    }

    /// Counts what was used since the last time for the model that was asked last.
    fn meter_use(&mut self) {
        let Some(asked) = &self.asked else { return };
        let used = self.turns.plus(&self.lost);
        asked.meters().model.used(&self.metered, &used);
        self.metered = used;
    }

    /// Ends the request: charges it and writes its row.
    pub(crate) fn settle(&mut self, outcome: UsageOutcome) {
        self.charge_aside();
        self.note();
        self.note_end(outcome);
        self.charge_tokens();
        self.hand_over(outcome);
    }

    /// Notes the end for the log line of a client's request. A question has none of its own.
    fn note_end(&self, outcome: UsageOutcome) {
        if let Some(asked) = self.asked.as_ref().filter(|_| !self.account.is_question()) {
            let model = Arc::clone(asked.model());
            let is_refused =
                outcome == UsageOutcome::Failed && self.error.is_some_and(|kind| status_of(kind) < 500);
            self.allowance.note_end(RequestEnd { model, attempts: self.attempts, outcome, is_refused });
        }
    }

    /// Writes the row and the record for the request export.
    fn hand_over(&mut self, outcome: UsageOutcome) {
        self.note_row(|row| self.timeline.settled(row, outcome));
        if let Some(pending) = self.pending.take() {
            self.note_row(|row| pending.send(row, outcome, &self.timeline));
        }
        if let Some(reservation) = self.account.own_reservation() {
            reservation.settle(outcome);
        }
    }

    /// Ends a request that gets an error instead of an answer.
    pub(crate) fn refuse(&mut self) {
        if self.is_routed {
            return self.settle(UsageOutcome::Failed);
        }
        self.note();
        if let Some(reservation) = self.account.own_reservation() {
            reservation.release();
        }
    }

    /// Stops reading the current answer. Returns what is charged beyond what was recorded.
    pub(crate) fn break_off(&mut self, unreported: Unreported) -> Used {
        let Some(underway) = self.underway.take() else {
            self.note();
            return Used::default();
        };
        let left = self.pledge.as_ref().map(Pledge::left_pico);
        let (used, is_estimated) = underway.rest(unreported, left);
        self.is_estimated |= is_estimated;
        self.turns = self.turns.plus(&used);
        self.note();
        used
    }

    /// The client left. What it was being sent is charged: by the provider's figures, else by what
    /// has arrived.
    fn abandon(&mut self) {
        self.charge_aside();
        self.break_off(Unreported::Unseen);
        self.note_end(UsageOutcome::Cancelled);
        self.charge_tokens();
        match self.account.own_reservation() {
            Some(reservation) if !self.is_routed && !reservation.has_spent() => reservation.release(),
            _ => self.hand_over(UsageOutcome::Cancelled),
        }
    }
}

impl Drop for LedgerEntry {
    fn drop(&mut self) {
        // A question, which has no row, is abandoned in any case.
        if self.account.own_reservation().is_none_or(Reservation::is_open) {
            self.abandon();
        }
    }
}

fn name(row: &mut UsageRow, endpoint: &Endpoint) {
    endpoint.candidate.model.clone_into(&mut row.model);
    endpoint.provider.name.clone_into(&mut row.provider);
}

/// Sets the endpoint that is likely to be asked, until one was asked.
fn name_until_asked(row: &mut UsageRow, endpoint: &Endpoint) {
    if row.attempts == 0 {
        name(row, endpoint);
    }
}
