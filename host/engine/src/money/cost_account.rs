//! What a request and its questions cost, readable at any time: when a client leaves in the middle,
//! what was used until then is charged.

use crate::cost::{Amount, Outlay};
use crate::money::credit::{self, INTENT_TIME_MAX};
use crate::refusal::Refusal;
use cofferdam_runtime::wire::Usage;
use cofferdam_store::{Pledge, Reservation};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::time::timeout;

/// The cost account of one request. What a question costs is added at once to the accounts of all
/// requests above it, and to the usage row of the client's request.
#[derive(Debug, Default)]
pub(crate) struct CostAccount {
    /// The account of the request that this one is a question of. `None` for a client's request.
    parent: Option<Arc<CostAccount>>,
    /// The most that it may cost, questions included, before no more questions are asked.
    limit: Option<Amount>,
    /// The client's request in the ledger of the store. Set once it is opened there.
    reservation: OnceLock<Reservation>,
    spent: Mutex<SpentSoFar>,
}

/// A part of what was spent, which may also fall: a provider may correct the usage that it reported
/// before.
#[derive(Clone, Copy)]
struct Change {
    before: Outlay,
    after: Outlay,
}

#[derive(Debug, Default)]
struct SpentSoFar {
    /// The request's own turns.
    turns: Outlay,
    /// Its plugins: server tools and questions.
    plugins: Outlay,
    /// The tokens of its own turns.
    usage: Option<Usage>,
}

impl CostAccount {
    /// An empty account. `parent` is the asking request's, for a question.
    pub(crate) fn new(parent: Option<Arc<Self>>, limit: Option<Amount>) -> Self {
        Self { parent, limit, ..Self::default() }
    }

    /// Whether the request is a question. Then the client's request above it has the usage row.
    pub(crate) fn is_question(&self) -> bool {
        self.parent.is_some()
    }

    /// Books everything that this client's request and its questions cost in its usage row.
    pub(crate) fn open(&self, reservation: Reservation) {
        self.reservation.get_or_init(|| reservation);
    }

    /// The client's request in the ledger; `None` for a question.
    pub(crate) fn own_reservation(&self) -> Option<&Reservation> {
        self.reservation.get()
    }

    /// The client's request at the top in the ledger.
    pub(crate) fn reservation(&self) -> Option<&Reservation> {
        self.parent.as_ref().map_or_else(|| self.own_reservation(), |parent| parent.reservation())
    }

    /// Sets what the request's own turns cost and used so far. The increase is taken from `pledge`.
    pub(crate) fn set_turns(&self, outlay: Outlay, usage: &Usage, pledge: Option<&mut Pledge>) {
        let mut spent = self.spent();
        spent.usage = Some(*usage);
        let before = std::mem::replace(&mut spent.turns, outlay);
        self.book(spent, Change { before, after: outlay }, pledge);
    }

    /// Reserves the price of one call of a server tool, before it is made. `None` where the call is
    /// free or there is no limit.
    ///
    /// # Errors
    /// 402 when nothing is left besides what this request and others have spent and reserved; 503
    /// when the intent could not be written.
    pub(crate) async fn pledge_call(&self, price: Amount) -> Result<Option<Pledge>, Refusal> {
        let Some(reservation) = self.reservation().filter(|_| price > Amount::default()) else {
            return Ok(None);
        };
        let pledge = reservation.pledge(price.0).await.map_err(credit::refusal)?;
        if pledge.is_some() {
            credit::written(timeout(INTENT_TIME_MAX, reservation.commit_intent()).await)?;
        }
        Ok(pledge)
    }

    /// Adds what a call of a server tool cost, at the moment at which it is over: its result is
    /// shown later, and the client may leave before that. The cost is taken from `pledge`.
    pub(crate) fn add_tool(&self, cost: Amount, mut pledge: Option<Pledge>) {
        let change = Change { before: Outlay::default(), after: Outlay::charged(cost) };
        self.change_plugin(change, pledge.as_mut());
    }

    fn change_plugin(&self, change: Change, pledge: Option<&mut Pledge>) {
        let mut spent = self.spent();
        spent.plugins = spent.plugins.minus(change.before).plus(change.after);
        self.book(spent, change, pledge);
    }

    /// Adds the change to the account above, or to the usage row at the top.
    fn book(&self, spent: MutexGuard<'_, SpentSoFar>, change: Change, pledge: Option<&mut Pledge>) {
        if let Some(parent) = &self.parent {
            drop(spent);
            return parent.change_plugin(change, pledge);
        }
        // The row is changed under the lock, so that an earlier sum never replaces a later one.
        if let Some(reservation) = self.own_reservation() {
            let total = spent.total();
            reservation.spend(pledge, |row| {
                (row.cost_pico, row.byok_pico) = (total.here.0, total.elsewhere.0);
            });
        }
    }

    /// What its plugins have spent so far: server tools, and questions, finished or not.
    pub(crate) fn plugins(&self) -> Outlay {
        self.spent().plugins
    }

    /// Everything so far: own turns and plugins.
    pub(crate) fn total(&self) -> Outlay {
        self.spent().total()
    }

    /// The tokens of its own turns, as far as providers have reported them.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.spent().usage
    }

    /// Whether this request, or one above it, has cost more than its limit.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.limit.is_some_and(|limit| self.total().everywhere() > limit)
            || self.parent.as_ref().is_some_and(|parent| parent.is_overdrawn())
    }

    fn spent(&self) -> MutexGuard<'_, SpentSoFar> {
        // A panic in another thread cannot leave a sum half updated.
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpentSoFar {
    fn total(&self) -> Outlay {
        self.turns.plus(self.plugins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::no_usage;
    use proptest::prelude::*;

    /// Sets what the request's own turns cost here and elsewhere.
    fn spend(account: &CostAccount, here: u64, elsewhere: u64) {
        let outlay = Outlay { here: Amount(here), elsewhere: Amount(elsewhere) };
        account.set_turns(outlay, &no_usage(), None);
    }

    fn charged(account: &CostAccount) -> Amount {
        account.total().here
    }

    #[test]
    fn the_cost_of_a_question_is_added_to_all_accounts_above_it() {
        let client = Arc::new(CostAccount::new(None, Some(Amount(100))));
        let question = Arc::new(CostAccount::new(Some(Arc::clone(&client)), None));
        let deeper = CostAccount::new(Some(Arc::clone(&question)), None);
        spend(&client, 10, 0);
        spend(&question, 20, 0);
        spend(&question, 25, 0);
        spend(&deeper, 3, 0);
        assert_eq!(
            (charged(&deeper), charged(&question), charged(&client)),
            (Amount(3), Amount(28), Amount(38))
        );
        assert_eq!(client.plugins().here, Amount(28));
        question.add_tool(Amount(2), None);
        assert_eq!((charged(&question), charged(&client)), (Amount(30), Amount(40)));
        assert!(!deeper.is_overdrawn());
        spend(&deeper, 64, 0);
        assert!(deeper.is_overdrawn() && client.is_overdrawn());
    }

    #[test]
    fn cost_paid_to_providers_directly_counts_for_the_limit_and_is_not_charged() {
        let client = Arc::new(CostAccount::new(None, Some(Amount(100))));
        let question = CostAccount::new(Some(Arc::clone(&client)), None);
        spend(&client, 10, 40);
        spend(&question, 0, 50);
        assert!(!client.is_overdrawn());
        spend(&question, 0, 51);
        assert!(question.is_overdrawn() && charged(&client) == Amount(10));
    }

    #[test]
    fn a_cost_that_falls_and_rises_again_is_counted_once_in_the_accounts_above() {
        let client = Arc::new(CostAccount::default());
        let question = CostAccount::new(Some(Arc::clone(&client)), None);
        for cost in [50, 20, 30] {
            spend(&question, cost, 0);
            assert_eq!((charged(&question), charged(&client)), (Amount(cost), Amount(cost)));
        }
    }

    proptest! {
        /// However the steps interleave, the client's account is the sum of all that was spent.
        #[test]
        fn costs_are_neither_lost_nor_counted_twice(steps in proptest::collection::vec((0usize..4, 0u64..1000), 0..40)) {
            let client = Arc::new(CostAccount::default());
            let question = Arc::new(CostAccount::new(Some(Arc::clone(&client)), None));
            let other = Arc::new(CostAccount::new(Some(Arc::clone(&client)), None));
            let deeper = Arc::new(CostAccount::new(Some(Arc::clone(&question)), None));
            let accounts = [client, question, other, deeper];
            let mut spent = [0; 4];
            for (place, more) in steps {
                spent[place] += more;
                spend(&accounts[place], spent[place], 0);
            }
            prop_assert_eq!(charged(&accounts[0]), Amount(spent.iter().sum()));
            prop_assert_eq!(charged(&accounts[1]), Amount(spent[1] + spent[3]));
        }
    }
}
