//! What attempts cost that are not the answer.

use super::Entry;
use super::underway::Underway;
use crate::cost::{Amount, Cost, no_usage, sum};
use cofferdam_runtime::wire::Usage;
use cofferdam_store::Pledge;

/// What was charged for an attempt that is not the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charged {
    pub(crate) cost: Amount,
    /// The provider has not said what it used.
    pub(crate) is_estimated: bool,
}

impl Entry {
    /// Notes that the endpoint was sent the request and gave no answer in time: it has read the input. Tells what is
    /// charged for that.
    pub(crate) fn timed_out(&mut self, is_byok: bool) -> Option<Charged> {
        let underway = self.underway.take()?;
        let usage = Usage { input_tokens: underway.input_tokens, ..no_usage() };
        self.is_estimated = true;
        Some(Charged { is_estimated: true, ..self.lose(&underway, &usage, is_byok) })
    }

    /// Notes that an attempt broke without a word while its answer was read on for its usage: it is charged as one
    /// that is read no further.
    pub(crate) fn break_off_lost(&mut self, is_byok: bool) {
        let Some(underway) = self.underway.take() else { return };
        let usage = underway.missing_by_now(self.pledge.as_ref().map(Pledge::left_pico));
        self.is_estimated = true;
        self.lose(&underway, &usage, is_byok);
    }

    fn lose(&mut self, underway: &Underway, usage: &Usage, is_byok: bool) -> Charged {
        let cost = Cost::of(usage, &underway.prices, is_byok);
        self.lost = self.lost.plus(&cost);
        self.lost_usage = sum(&self.lost_usage, usage);
        self.note();
        Charged { cost: cost.total(), is_estimated: false }
    }

    /// What attempts cost that are not the answer.
    pub(crate) fn lost(&self) -> Cost {
        self.lost
    }
}
