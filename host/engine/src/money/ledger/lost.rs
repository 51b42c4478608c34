//! The cost of attempts that are not the answer: attempts that failed or were ended by this host, and
//! answers that were not used.

use super::{LedgerEntry, Unreported, name};
use crate::catalog::Endpoint;
use crate::cost::{Amount, Cost, Used};
use cofferdam_runtime::wire::Event;
use cofferdam_store::Pledge;

/// What was charged for an attempt that is not the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charged {
    pub(crate) cost: Amount,
    /// Whether the provider did not report its usage.
    pub(crate) is_estimated: bool,
}

impl LedgerEntry {
    /// Records that an attempt gave no answer. What its provider has reported is charged in any case.
    /// Returns the charge.
    pub(crate) fn attempt_failed(&mut self, unreported: Unreported, is_byok: bool) -> Option<Charged> {
        let mut underway = self.underway.take()?;
        underway.is_byok = is_byok;
        let left = self.pledge.as_ref().map(Pledge::left_pico);
        let (used, is_estimated) = underway.rest(unreported, left);
        (used != Used::default()).then(|| self.lose(used, is_estimated))
    }

    /// Records that the current answer is not used. Returns what is charged for it.
    pub(crate) fn passed_over(&mut self, events: &[Event], is_byok: bool) -> Option<Charged> {
        let mut underway = self.underway.take()?;
        underway.is_whole(events, is_byok);
        let (used, is_estimated) = underway.whole();
        Some(self.lose(used, is_estimated))
    }

    /// Sets the current answer aside: it may still be used, while other endpoints are asked. Its cost
    /// counts from now on.
    pub(crate) fn set_aside(&mut self, events: &[Event], is_byok: bool) {
        self.aside = self.underway.take();
        if let Some(aside) = &mut self.aside {
            aside.is_whole(events, is_byok);
        }
        self.is_pledge_stale = true;
        self.note();
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
        let (used, is_estimated) = self.aside.take()?.whole();
        Some(self.lose(used, is_estimated))
    }

    fn lose(&mut self, used: Used, is_estimated: bool) -> Charged {
        self.lost = self.lost.plus(&used);
        self.is_estimated |= is_estimated;
        self.is_pledge_stale = true;
        self.note();
        Charged { cost: used.cost.paid.here, is_estimated }
    }

    /// The cost of attempts that are not the answer.
    pub(crate) fn lost(&self) -> Cost {
        self.lost.cost
    }
}
