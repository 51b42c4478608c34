//! The cost of attempts that are not the answer: attempts that were not answered in time, and
//! answers that were not used.

use super::underway::Underway;
use super::{LedgerEntry, name};
use crate::catalog::Endpoint;
use crate::cost::{Amount, Cost, Used, no_usage};
use cofferdam_runtime::wire::{Event, Usage};
use cofferdam_store::Pledge;

/// What was charged for an attempt that is not the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charged {
    pub(crate) cost: Amount,
    /// Whether the provider did not report its usage.
    pub(crate) is_estimated: bool,
}

impl LedgerEntry {
    /// Records that the endpoint was sent the request and did not answer in time. It has read the
    /// input, which is charged. Returns the charge.
    pub(crate) fn timed_out(&mut self, is_byok: bool) -> Option<Charged> {
        let underway = self.underway.take()?;
        let usage = Usage { input_tokens: underway.input_tokens, ..no_usage() };
        self.is_estimated = true;
        Some(Charged { is_estimated: true, ..self.lose(&underway, &usage, is_byok) })
    }

    /// Records that the current answer is not used. Returns what is charged for it.
    pub(crate) fn passed_over(&mut self, events: &[Event], is_byok: bool) -> Option<Charged> {
        let mut underway = self.underway.take()?;
        underway.is_whole(events, is_byok);
        Some(self.charge_whole(&underway))
    }

    /// Sets the current answer aside: it may still be used, while other endpoints are asked.
    pub(crate) fn set_aside(&mut self, events: &[Event], is_byok: bool) {
        self.aside = self.underway.take();
        if let Some(aside) = &mut self.aside {
            aside.is_whole(events, is_byok);
        }
    }

    /// Uses the answer of `endpoint` that was set aside.
    pub(crate) fn take_up(&mut self, endpoint: &Endpoint) {
        self.underway = self.aside.take();
        if let Some(underway) = &mut self.underway {
            underway.read_again();
        }
        self.note_row(|row| name(row, endpoint));
    }

    /// Charges the answer that was set aside and is not used. Returns the charge.
    pub(crate) fn charge_aside(&mut self) -> Option<Charged> {
        let aside = self.aside.take()?;
        Some(self.charge_whole(&aside))
    }

    fn charge_whole(&mut self, underway: &Underway) -> Charged {
        let is_estimated = underway.reported.is_none();
        self.is_estimated |= is_estimated;
        let usage = underway.reported.unwrap_or_else(|| underway.missing());
        Charged { is_estimated, ..self.lose(underway, &usage, underway.is_byok) }
    }

    /// Records that an attempt failed while its answer was read on for its usage. It is charged
    /// like an answer that broke off.
    pub(crate) fn break_off_lost(&mut self, is_byok: bool) {
        let Some(underway) = self.underway.take() else { return };
        let usage = underway.missing_by_now(self.pledge.as_ref().map(Pledge::left_pico));
        self.is_estimated = true;
        self.lose(&underway, &usage, is_byok);
    }

    fn lose(&mut self, underway: &Underway, usage: &Usage, is_byok: bool) -> Charged {
        let calls = if is_byok { Amount::default() } else { underway.calls().minus(underway.noted_calls()) };
        let cost = Cost::of(usage, &underway.prices, is_byok).with_calls(calls);
        self.lost = self.lost.plus(&Used { usage: *usage, cost });
        self.note();
        Charged { cost: cost.paid.here, is_estimated: false }
    }

    /// The cost of attempts that are not the answer.
    pub(crate) fn lost(&self) -> Cost {
        self.lost.cost
    }
}
