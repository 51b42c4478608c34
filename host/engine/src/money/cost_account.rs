//! What a request and its questions cost, readable at any time: when a client leaves in the middle,
//! what was used until then is charged.

use crate::cost::Amount;
use cofferdam_runtime::wire::Usage;
use cofferdam_store::Funds;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The cost account of one request. What a question costs is added at once to the accounts of all
/// requests above it.
#[derive(Debug, Default)]
pub(crate) struct CostAccount {
    /// The account of the request that this one is a question of. `None` for a client's request.
    above: Option<Arc<CostAccount>>,
    /// The most that it may cost, questions included, before no more questions are asked.
    limit: Option<Amount>,
    /// The request's own turns and tools, in pico-dollars.
    own: AtomicU64,
    /// The questions of its plugins, in pico-dollars.
    questions: AtomicU64,
    /// What the caller paid providers directly for the request's own turns, in pico-dollars.
    own_elsewhere: AtomicU64,
    /// What the caller paid providers directly for the questions of its plugins, in pico-dollars.
    questions_elsewhere: AtomicU64,
    /// The tokens of its own turns so far.
    usage: Mutex<Option<Usage>>,
    /// What the request and its questions may spend. Set on a client's request whose key or
    /// workspace has a limit.
    funds: OnceLock<Funds>,
}

impl CostAccount {
    /// An empty account. `above` is the asking request's, for a question.
    pub(crate) fn new(above: Option<Arc<Self>>, limit: Option<Amount>) -> Self {
        Self { above, limit, ..Self::default() }
    }

    /// Whether the request is a question. Then the client's request above it writes the usage row.
    pub(crate) fn is_question(&self) -> bool {
        self.above.is_some()
    }

    /// Lets this client's request and its questions spend from these funds.
    pub(crate) fn fund(&self, funds: &Funds) {
        self.funds.get_or_init(|| funds.clone());
    }

    /// The funds of the client's request at the top, and that request's account. `None` where there
    /// is no limit.
    pub(crate) fn funds(&self) -> Option<(&Funds, &CostAccount)> {
        match &self.above {
            Some(above) => above.funds(),
            None => self.funds.get().map(|funds| (funds, self)),
        }
    }

    /// Sets what the request's own turns and tools cost so far, which never decreases. Returns the
    /// increase.
    pub(crate) fn own(&self, cost: Amount) -> Amount {
        let before = self.own.swap(cost.0, Ordering::Relaxed);
        let more = cost.minus(Amount(before));
        if let Some(above) = &self.above {
            above.add(more.0);
        }
        more
    }

    /// Sets what the caller paid providers directly so far for the request's own turns, which never
    /// decreases.
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

    /// What the caller paid providers directly for the questions of its plugins.
    pub(crate) fn questions_elsewhere(&self) -> Amount {
        Amount(self.questions_elsewhere.load(Ordering::Relaxed))
    }

    /// Sets the tokens that its own turns used so far.
    pub(crate) fn consumed(&self, usage: &Usage) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = Some(*usage);
    }

    fn add(&self, more: u64) {
        // Cannot overflow: 64 bits of pico-dollars are 18 million dollars.
        self.questions.fetch_add(more, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.add(more);
        }
    }

    /// The charged cost of its plugins' questions.
    pub(crate) fn questions(&self) -> Amount {
        Amount(self.questions.load(Ordering::Relaxed))
    }

    /// Everything that is charged: own turns, tools and questions.
    pub(crate) fn total(&self) -> Amount {
        Amount(self.own.load(Ordering::Relaxed)).plus(self.questions())
    }

    /// Everything that is charged, and what the caller paid providers directly.
    fn everywhere(&self) -> Amount {
        let own_elsewhere = Amount(self.own_elsewhere.load(Ordering::Relaxed));
        self.total().plus(own_elsewhere).plus(self.questions_elsewhere())
    }

    /// The tokens of its own turns, as far as providers have reported them.
    pub(crate) fn usage(&self) -> Option<Usage> {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this request, or one above it, has cost more than its limit.
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
    fn the_cost_of_a_question_is_added_to_all_accounts_above_it() {
        let client = Arc::new(CostAccount::new(None, Some(Amount(100))));
        let question = Arc::new(CostAccount::new(Some(Arc::clone(&client)), None));
        let deeper = CostAccount::new(Some(Arc::clone(&question)), None);
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
    fn cost_paid_to_providers_directly_counts_for_the_limit_and_is_not_charged() {
        let client = Arc::new(CostAccount::new(None, Some(Amount(100))));
        let question = CostAccount::new(Some(Arc::clone(&client)), None);
        client.own(Amount(10));
        client.own_elsewhere(Amount(40));
        question.own_elsewhere(Amount(50));
        assert!(!client.is_overdrawn());
        question.own_elsewhere(Amount(51));
        assert!(question.is_overdrawn() && client.total() == Amount(10));
    }

    proptest! {
        /// However the steps interleave, the client's account is the sum of all that was spent.
        #[test]
        fn costs_are_neither_lost_nor_counted_twice(steps in proptest::collection::vec((0usize..4, 0u64..1000), 0..40)) {
            let client = Arc::new(CostAccount::default());
            let question = Arc::new(CostAccount::new(Some(Arc::clone(&client)), None));
            let other = Arc::new(CostAccount::new(Some(Arc::clone(&client)), None));
            let deeper = Arc::new(CostAccount::new(Some(Arc::clone(&question)), None));
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
