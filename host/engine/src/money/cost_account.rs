//! What a request and the questions asked for it cost, known at every moment: a client that leaves has used
//! what it has used.

use crate::cost::Amount;
use cofferdam_runtime::wire::Usage;
use cofferdam_store::Funds;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The bill of one request. What a question costs is at once on the bill of the request it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    /// The bill of the request that this one is a question of.
    above: Option<Arc<Bill>>,
    /// What it may come to before no more questions are asked.
    limit: Option<Amount>,
    /// The request's own turns and tools, in pico-dollars.
    own: AtomicU64,
    /// The questions of its plugins, in pico-dollars.
    questions: AtomicU64,
    /// What the caller paid providers itself for the request's own turns, in pico-dollars.
    own_elsewhere: AtomicU64,
    /// The same for the questions of its plugins.
    questions_elsewhere: AtomicU64,
    /// What its own turns consumed.
    usage: Mutex<Option<Usage>>,
    /// What it and its questions may spend, for a client's request with a limit.
    funds: OnceLock<Funds>,
}

impl Bill {
    /// An empty bill; `above` for a question.
    pub(crate) fn new(above: Option<Arc<Self>>, limit: Option<Amount>) -> Self {
        Self { above, limit, ..Self::default() }
    }

    /// Whether the request is a question: another one's row stands for it.
    pub(crate) fn is_question(&self) -> bool {
        self.above.is_some()
    }

    /// Has this client's request and its questions spend from these funds.
    pub(crate) fn fund(&self, funds: &Funds) {
        self.funds.get_or_init(|| funds.clone());
    }

    /// The funds of the client's request that this is on the bill of, and that request's bill; `None` where there is
    /// no limit.
    pub(crate) fn funds(&self) -> Option<(&Funds, &Bill)> {
        match &self.above {
            Some(above) => above.funds(),
            None => self.funds.get().map(|funds| (funds, self)),
        }
    }

    /// Notes what the request's own turns and tools cost so far, which never becomes less. Returns how much more that
    /// is than before.
    pub(crate) fn own(&self, cost: Amount) -> Amount {
        let before = self.own.swap(cost.0, Ordering::Relaxed);
        let more = cost.minus(Amount(before));
        if let Some(above) = &self.above {
            above.add(more.0);
        }
        more
    }

    /// Notes what the caller paid providers itself so far for the request's own turns, which never becomes less.
    pub(crate) fn own_elsewhere(&self, cost: Amount) {
        let before = self.own_elsewhere.swap(cost.0, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.add_elsewhere(cost.0.saturating_sub(before));
        }
    }

    fn add_elsewhere(&self, more: u64) {
        self.questions_elsewhere.fetch_add(more, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.add_elsewhere(more);
        }
    }

    /// What the caller paid providers itself for the questions of its plugins.
    pub(crate) fn questions_elsewhere(&self) -> Amount {
        Amount(self.questions_elsewhere.load(Ordering::Relaxed))
    }

    /// Notes what its own turns consumed so far.
    pub(crate) fn consumed(&self, usage: &Usage) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = Some(*usage);
    }

    fn add(&self, more: u64) {
        // The sum of a request is far from the end of the range.
        self.questions.fetch_add(more, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.add(more);
        }
    }

    /// What the questions of its plugins cost.
    pub(crate) fn questions(&self) -> Amount {
        Amount(self.questions.load(Ordering::Relaxed))
    }

    /// Everything that is charged.
    pub(crate) fn total(&self) -> Amount {
        Amount(self.own.load(Ordering::Relaxed)).plus(self.questions())
    }

    /// Everything, with what the caller paid providers itself.
    fn everywhere(&self) -> Amount {
        let own_elsewhere = Amount(self.own_elsewhere.load(Ordering::Relaxed));
        self.total().plus(own_elsewhere).plus(self.questions_elsewhere())
    }

    /// What its own turns consumed, as far as the providers have said.
    pub(crate) fn usage(&self) -> Option<Usage> {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this request, or one it is asked for, has cost more than it may.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.limit.is_some_and(|limit| self.everywhere() > limit)
            || self.above.as_ref().is_some_and(|above| above.is_overdrawn())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_question_costs_is_on_every_bill_above_it() {
        let client = Arc::new(Bill::new(None, Some(Amount(100))));
        let question = Arc::new(Bill::new(Some(Arc::clone(&client)), None));
        let deeper = Bill::new(Some(Arc::clone(&question)), None);
        client.own(Amount(10));
        question.own(Amount(20));
        question.own(Amount(25));
        deeper.own(Amount(3));
        assert_eq!((deeper.total(), question.total(), client.total()), (Amount(3), Amount(28), Amount(38)));
        assert_eq!(client.questions(), Amount(28));
        assert!(!deeper.is_overdrawn());
        deeper.own(Amount(66));
        assert!(deeper.is_overdrawn() && client.is_overdrawn());
    }

    #[test]
    fn what_the_caller_pays_elsewhere_counts_for_its_limit_and_is_not_charged() {
        let client = Arc::new(Bill::new(None, Some(Amount(100))));
        let question = Bill::new(Some(Arc::clone(&client)), None);
        client.own(Amount(10));
        client.own_elsewhere(Amount(40));
        question.own_elsewhere(Amount(50));
        assert!(!client.is_overdrawn());
        question.own_elsewhere(Amount(51));
        assert!(question.is_overdrawn() && client.total() == Amount(10));
    }

    proptest! {
        /// However the steps interleave, the client's bill is the sum of all that was spent.
        #[test]
        fn nothing_is_lost_or_counted_twice(steps in proptest::collection::vec((0usize..4, 0u64..1000), 0..40)) {
            let client = Arc::new(Bill::default());
            let question = Arc::new(Bill::new(Some(Arc::clone(&client)), None));
            let other = Arc::new(Bill::new(Some(Arc::clone(&client)), None));
            let deeper = Arc::new(Bill::new(Some(Arc::clone(&question)), None));
            let bills = [client, question, other, deeper];
            let mut spent = [0; 4];
            for (place, more) in steps {
                spent[place] += more;
                bills[place].own(Amount(spent[place]));
            }
            prop_assert_eq!(bills[0].total(), Amount(spent.iter().sum()));
            prop_assert_eq!(bills[1].total(), Amount(spent[1] + spent[3]));
        }
    }
}
