//! One request in the ledger: what it may spend, what it has spent so far, and its usage row, on every way out:
//! finished, failed, or dropped because the client went away.

mod lost;
mod underway;

pub(crate) use lost::Charged;

use crate::caller::Caller;
use crate::catalog::Endpoint;
use crate::cost::{Amount, Cost, no_usage, sum};
use crate::export::Pending;
use crate::lifecycle::deadline::Pace;
use crate::lifecycle::departure::Attendance;
use crate::limits::allowance::Allowance;
use crate::money::cost_account::Bill;
use crate::money::credit::{self, Turn};
use crate::refusal::Refusal;
use cofferdam_runtime::wire::{ErrorKind, Event, Usage};
use cofferdam_store::{Pledge, Reservation, Store, UsageKind, UsageOutcome, UsageRow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use underway::Underway;

/// How long a request of a prepaid workspace waits until it is written down that it will spend.
const INTENT_TIME_MAX: Duration = Duration::from_secs(10);

/// A request in the ledger, from before anything is done for it. Settled when dropped, at the latest; one that
/// was refused before it was routed, and has spent nothing, leaves no row.
pub(crate) struct Entry {
    /// None for a question: what it costs is in the row of the request that it is asked for.
    reservation: Option<Reservation>,
    is_routed: bool,
    usage: Usage,
    /// What models cost, without tools.
    models: Cost,
    tools: Amount,
    /// What attempts cost that are not the answer, and what they used.
    lost: Cost,
    lost_usage: Usage,
    /// Whether a provider has not said what it used, and this host has estimated it.
    is_estimated: bool,
    /// The attempt or turn that has not come to its end.
    underway: Option<Underway>,
    /// Types of the provider's own tools that the request offers.
    hosted: Vec<String>,
    /// An answer that may still become the one that the client gets, and is charged in any case.
    aside: Option<Underway>,
    /// What that turn may still cost, where there is a limit.
    pledge: Option<Pledge>,
    /// Who is told of the request, if anybody.
    pending: Option<Box<Pending>>,
    /// Whose tokens they are, until they are charged.
    allowance: Allowance,
    /// From which questions know what they cost.
    bill: Arc<Bill>,
}

impl Entry {
    /// Opens the ledger for a client's request, or for a question: whichever has this bill.
    ///
    /// # Errors
    /// 402 when the workspace or the key has nothing left to spend; 503 when no row would find a place.
    pub(crate) fn open(
        store: &Store,
        caller: &Caller,
        kind: UsageKind,
        request_id: &str,
        streamed: bool,
        bill: &Arc<Bill>,
    ) -> Result<Self, Refusal> {
        let row = || UsageRow::begun(request_id.to_owned(), caller.workspace, caller.key, kind, streamed);
        let reservation = match bill.is_question() {
            true => None,
            false => Some(store.reserve(row(), 0).map_err(credit::refusal)?),
        };
        if let Some(funds) = reservation.as_ref().and_then(Reservation::funds) {
            bill.fund(funds);
        }
        Ok(Self {
            reservation,
            is_routed: false,
            usage: no_usage(),
            models: Cost::default(),
            tools: Amount::default(),
            lost: Cost::default(),
            lost_usage: no_usage(),
            is_estimated: false,
            underway: None,
            hosted: Vec::new(),
            aside: None,
            pledge: None,
            pending: None,
            allowance: caller.allowance.clone(),
            bill: Arc::clone(bill),
        })
    }

    /// Has the end of the request told, where there is somebody to tell.
    pub(crate) fn broadcast(&mut self, pending: Option<Box<Pending>>) {
        self.pending = pending;
    }

    /// Notes why the request fails.
    pub(crate) fn failed(&mut self, error: ErrorKind) {
        if let Some(pending) = &mut self.pending {
            pending.failed(error);
        }
    }

    /// Notes that the request is well-formed and its models are there: it leaves a row from here on.
    pub(crate) fn routed(&mut self) {
        self.is_routed = true;
    }

    /// Names the types of the provider's own tools that the request offers, calls of which may have a price.
    pub(crate) fn offers(&mut self, hosted: Vec<String>) {
        self.hosted = hosted;
    }

    /// What is charged for calls of the provider's own tools in the turn under way, so far.
    pub(crate) fn calls(&self) -> Amount {
        self.underway.as_ref().map(Underway::calls).unwrap_or_default()
    }

    /// As much of it as was part of the cost that [`Self::consumed`] was told last.
    pub(crate) fn noted_calls(&self) -> Amount {
        self.underway.as_ref().map(Underway::noted_calls).unwrap_or_default()
    }

    /// Reserves what a turn may cost and, in a prepaid workspace, waits until it is written down that the request
    /// may cost that much. Called before each turn of the request and of its questions. Costs nothing where there
    /// are no limits.
    ///
    /// # Errors
    /// 402 when nothing is left beside what this request and others have spent and reserved; 503 when it could not
    /// be written down.
    pub(crate) async fn reserve(&mut self, turn: Turn<'_>, pace: &mut Pace) -> Result<(), Refusal> {
        let Some((funds, all)) = self.bill.funds() else { return Ok(()) };
        self.pledge = None;
        self.pledge = Some(funds.pledge(|| all.total().0, turn.estimate().0).map_err(credit::refusal)?);
        let written = match &mut self.reservation {
            Some(reservation) => {
                if let Some(first) = turn.endpoints.first() {
                    // Should the process end before it is known who answers.
                    reservation.note(|row| name_until_asked(row, first));
                }
                pace.during(reservation.commit_intent(), INTENT_TIME_MAX).await
            }
            None => pace.during(funds.commit_intent(), INTENT_TIME_MAX).await,
        };
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::error!(%error, "what a request will spend could not be written down");
                Err(Refusal::saturated())
            }
            Err(_late) => Err(Refusal::saturated()),
        }
    }

    /// Names the endpoint that is being asked, with about so many tokens of input and at most so many of output.
    pub(crate) fn asked(
        &mut self,
        endpoint: &Endpoint,
        input_tokens: u64,
        output_max: u64,
        attendance: &Arc<Attendance>,
    ) {
        // A turn of the tool loop is told what was said before.
        let input_tokens = input_tokens.saturating_add(self.usage.output_tokens);
        self.underway = Some(Underway::of(endpoint, input_tokens, output_max, attendance, &self.hosted));
        if let Some(reservation) = &mut self.reservation {
            reservation.note(|row| {
                name(row, endpoint);
                row.attempts = row.attempts.saturating_add(1);
            });
        }
    }

    /// Notes that the endpoint gave no answer: it is not paid for one.
    pub(crate) fn unanswered(&mut self) {
        self.underway = None;
    }

    /// Notes that the endpoint answers, and with whose credential.
    pub(crate) fn answered(&mut self, is_byok: bool) {
        if let Some(underway) = &mut self.underway {
            underway.is_byok = is_byok;
        }
    }

    /// Counts what arrived of the answer under way.
    pub(crate) fn received(&mut self, events: &[Event]) {
        if let Some(underway) = &mut self.underway {
            underway.received(events);
        }
    }

    /// Notes what the turn under way and all turns have consumed so far, by the providers' own figures.
    pub(crate) fn consumed(&mut self, turn: &Usage, all: &Usage, cost: &Cost) {
        if let Some(underway) = &mut self.underway {
            underway.reported(*turn);
        }
        self.usage = *all;
        self.models = Cost { tools: Amount::default(), ..*cost };
        self.note();
    }

    /// Notes that some of what is charged is estimated.
    pub(crate) fn estimated(&mut self) {
        self.is_estimated = true;
    }

    /// What all turns have consumed so far.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// About what the answer under way has consumed, for a provider that has come to its end and said nothing of it.
    /// `is_unseen` says that it was read on for a client that has left.
    pub(crate) fn unreported(&mut self, is_unseen: bool) -> Option<Usage> {
        let underway = self.underway.as_ref()?;
        self.is_estimated = true;
        let left = self.pledge.as_ref().map(Pledge::left_pico);
        Some(if is_unseen { underway.missing_by_now(left) } else { underway.missing() })
    }

    /// Notes that the turn under way is over: its provider has said what it consumed, or never will.
    pub(crate) fn turn_over(&mut self) {
        self.underway = None;
        self.pledge = None;
    }

    /// Notes what something beside the models cost.
    pub(crate) fn spent(&mut self, cost: Amount) {
        self.tools = self.tools.plus(cost);
        self.note();
    }

    /// Tells bill and reservation what was spent so far.
    fn note(&mut self) {
        let cost = self.models.total().plus(self.tools).plus(self.lost.total());
        let more = self.bill.own(cost);
        if let Some(pledge) = &mut self.pledge {
            pledge.spend(more.0);
        }
        let byok = self.models.byok.plus(self.lost.byok);
        self.bill.own_elsewhere(byok);
        self.bill.consumed(&self.usage);
        let (usage, bill) = (sum(&self.usage, &self.lost_usage), &self.bill);
        let is_estimated = self.is_estimated;
        if let Some(reservation) = &mut self.reservation {
            reservation.note(|row| {
                row.input_tokens = usage.input_tokens;
                row.cached_tokens = usage.cached_tokens;
                row.output_tokens = usage.output_tokens;
                row.reasoning_tokens = usage.reasoning_tokens;
                row.cost_pico = cost.plus(bill.questions()).0;
                row.byok_pico = byok.plus(bill.questions_elsewhere()).0;
                row.estimated = is_estimated;
            });
        } else if let Some((funds, all)) = self.bill.funds() {
            funds.note_spent(all.total().0);
        }
    }

    /// Charges the tokens of its own turns, once: a question charges those it takes, although it has no row.
    fn charge_tokens(&mut self) {
        let usage = sum(&self.usage, &self.lost_usage);
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        std::mem::take(&mut self.allowance).charge(tokens);
    }

    /// Ends the request: charges it and hands its row over.
    pub(crate) fn settle(&mut self, outcome: UsageOutcome) {
        self.charge_aside();
        self.note();
        self.charge_tokens();
        if let Some(reservation) = self.reservation.take() {
            self.hand_over(reservation, outcome);
        }
    }

    /// Writes the row, and tells of it whoever is to be told.
    fn hand_over(&mut self, mut reservation: Reservation, outcome: UsageOutcome) {
        if let Some(pending) = self.pending.take() {
            reservation.note(|row| pending.tell(row, outcome));
        }
        reservation.settle(outcome);
    }

    /// Ends a request that gets an error in place of an answer.
    pub(crate) fn refuse(&mut self) {
        if self.is_routed {
            return self.settle(UsageOutcome::Failed);
        }
        self.note();
        if let Some(reservation) = self.reservation.take() {
            reservation.release();
        }
    }

    /// The answer under way is read no further. Where the provider has not said what it has used, as much is charged
    /// as has arrived, or as the endpoint makes in the time that has passed, but for that no more than is reserved. Tells
    /// what is charged beyond the provider's own figures.
    pub(crate) fn break_off(&mut self) -> Cost {
        let Some(underway) = self.underway.take() else {
            self.note();
            return Cost::default();
        };
        let missing = underway.missing_by_now(self.pledge.as_ref().map(Pledge::left_pico));
        self.is_estimated |= missing != no_usage();
        let cost = underway.cost(&missing);
        self.usage = sum(&self.usage, &missing);
        self.models = self.models.plus(&cost);
        self.note();
        cost
    }

    /// The client is gone. What it was being told is charged all the same: as much as has arrived, where the
    /// provider has not said how much that is.
    fn abandon(&mut self) {
        self.charge_aside();
        self.break_off();
        self.charge_tokens();
        let has_spent = self.reservation.as_ref().is_some_and(Reservation::has_spent);
        match self.reservation.take() {
            Some(reservation) if self.is_routed || has_spent => {
                self.hand_over(reservation, UsageOutcome::Cancelled);
            }
            Some(reservation) => reservation.release(),
            None => {}
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.reservation.is_some() || self.bill.is_question() {
            self.abandon();
        }
    }
}

fn name(row: &mut UsageRow, endpoint: &Endpoint) {
    endpoint.candidate.model.clone_into(&mut row.model);
    endpoint.provider.name.clone_into(&mut row.provider);
}

/// Names the endpoint that is likely to be asked, as long as none was.
fn name_until_asked(row: &mut UsageRow, endpoint: &Endpoint) {
    if row.attempts == 0 {
        name(row, endpoint);
    }
}

/// What plugins spend while they are waited for: noted in the entry at the latest when this is dropped, so also
/// when the client leaves meanwhile.
pub(crate) struct Spending<'a> {
    entry: &'a mut Entry,
    /// In pico-dollars; only ever grows.
    total: &'a AtomicU64,
    noted: u64,
}

impl<'a> Spending<'a> {
    /// Notes what is added to `total` from here on.
    pub(crate) fn new(entry: &'a mut Entry, total: &'a AtomicU64) -> Self {
        Self { entry, total, noted: total.load(Ordering::Relaxed) }
    }

    /// Notes what was spent since the last time.
    pub(crate) fn note(&mut self) {
        let total = self.total.load(Ordering::Relaxed);
        let more = total.saturating_sub(self.noted);
        self.noted = total;
        if more > 0 {
            self.entry.spent(Amount(more));
        }
    }
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        self.note();
    }
}

/// Adds to such a total.
pub(crate) fn add_to(total: &AtomicU64, cost: Amount) {
    // The sum of a request is far from the end of the range.
    total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spent| Some(spent.saturating_add(cost.0))).ok();
}
