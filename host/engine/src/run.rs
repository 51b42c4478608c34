//! One request while it runs, for a response or for embeddings: its ledger entry, its deadline, its
//! routing trace, and the endpoints that are tried for it.

mod candidates;
mod fallback;
mod remaining;
mod spare;

pub(crate) use candidates::{Answering, Begun, Trial, Turn};

use crate::catalog::Endpoint;
use crate::export::About;
use crate::lifecycle::deadline::Deadline;
use crate::memory::Memory;
use crate::memory::session::Session;
use crate::money::cost_account::CostAccount;
use crate::money::credit::{TurnEstimate, TurnTokens};
use crate::money::ledger::LedgerEntry;
use crate::random::random_seed;
use crate::refusal::Refusal;
use crate::routing::{Order, RoutingPlan};
use crate::scope::RequestScope;
use crate::trace::RoutingTrace;
use bytes::Bytes;
use cofferdam_runtime::wire::Usage;
use cofferdam_store::UsageKind;
use serde_json::Value;
use std::sync::Arc;

/// One request while it runs.
pub(crate) struct Run {
    scope: Arc<RequestScope>,
    pub(crate) entry: LedgerEntry,
    pub(crate) deadline: Deadline,
    pub(crate) trace: RoutingTrace,
    /// The conversation that the request belongs to, if there is a choice of endpoints.
    pub(crate) session: Option<Session>,
    /// The endpoints that are tried.
    order: Order,
    /// Whether endpoints may be tried again when all have failed.
    may_retry: bool,
    /// Index of the endpoint that answered last. In the next turn it is tried first, because it has
    /// the conversation in its cache.
    preferred: Option<usize>,
    /// How many turns have begun.
    turns: u32,
}

impl Run {
    /// Opens the ledger for a client's request, or for a question: `account` says which.
    ///
    /// # Errors
    /// Those of [`LedgerEntry::open`].
    pub(crate) async fn open(
        scope: &Arc<RequestScope>,
        kind: UsageKind,
        streamed: bool,
        account: &Arc<CostAccount>,
        trace: RoutingTrace,
        deadline: Deadline,
    ) -> Result<Self, Refusal> {
        let (store, id) = (&scope.parts().store, &scope.context.request_id);
        let mut entry = LedgerEntry::open(store, &scope.caller, kind, id, streamed, account).await?;
        entry.note_in(scope.timeline.here());
        Ok(Self {
            entry,
            scope: Arc::clone(scope),
            deadline,
            trace,
            session: None,
            order: Order::default(),
            may_retry: false,
            preferred: None,
            turns: 0,
        })
    }

    /// Begins the record for the request export, if there are destinations.
    pub(crate) fn export(
        &mut self,
        session_id: Option<&String>,
        user: Option<&String>,
        trace: Option<&Bytes>,
    ) {
        let RequestScope { engine, caller, options, context, .. } = &*self.scope;
        self.entry.broadcast(engine.parts.broadcast.begin(&engine.parts.clock, || About {
            started_ms: context.now_ms,
            requested: self.trace.requested.clone(),
            intern: caller.intern,
            session_id: session_id.or(options.session_header.as_ref()).cloned(),
            user: user.cloned(),
            trace: trace.cloned(),
            trace_parent: options.trace_parent,
        }));
    }

    fn memory(&self) -> &Memory {
        &self.scope.parts().memory
    }

    /// Lets the router order the endpoints.
    ///
    /// # Errors
    /// The router's refusal; 500 and 503 where it failed.
    pub(crate) async fn route(&mut self, plan: RoutingPlan) -> Result<(), Refusal> {
        self.may_retry = self.scope.parts().retry && plan.allow_fallbacks;
        let remembered = self.memory().remembered(self.session);
        let seed = self.session.and_then(|session| session.seed).unwrap_or_else(random_seed);
        self.order = plan.order(&self.scope, remembered, seed, &mut self.trace).await?;
        Ok(())
    }

    /// Reserves the most that the next turn may cost.
    ///
    /// # Errors
    /// Those of [`LedgerEntry::reserve`].
    pub(crate) async fn reserve(&mut self, tokens: TurnTokens) -> Result<(), Refusal> {
        self.reserve_at(tokens, None).await
    }

    /// Like [`Self::reserve`], for a turn that is only sent to the endpoints at these indexes.
    async fn reserve_at(&mut self, tokens: TurnTokens, places: Option<&[usize]>) -> Result<(), Refusal> {
        let Order { endpoints, byok } = &self.order;
        self.entry.reserve(TurnEstimate { endpoints, byok, places, tokens }, &mut self.deadline).await
    }

    /// Counts the turns of a response that ends.
    pub(crate) fn count_turns(&self) {
        self.memory().meters.ended_after(self.turns);
    }

    /// Records that the endpoint's answer is complete, so that the conversation stays with it.
    pub(crate) fn answered<T>(&self, answering: &Answering<T>, usage: &Usage) {
        let memory = self.memory();
        if let Some(session) = self.session {
            let (health, now_ms) = (answering.endpoint.health.id(), memory.clock.monotonic_ms());
            memory.sessions.answered(session, health, usage.cached_tokens > 0, now_ms);
        }
    }

    /// Records that the endpoint's answer broke off after it had begun.
    pub(crate) fn broke<T>(&self, answering: &mut Answering<T>) {
        answering.watch.broke();
        if let Some(session) = self.session {
            self.memory().sessions.failed(session, answering.endpoint.health.id());
        }
    }

    /// The endpoint that answered last, and whether the caller has a credential of its own for it.
    pub(crate) fn endpoint(&self) -> Option<(&Endpoint, bool)> {
        let place = self.preferred?;
        let endpoint: &Endpoint = self.order.endpoints.get(place)?;
        Some((endpoint, self.order.is_byok(place)))
    }

    /// Routing metadata and the name of its member, if the client asked for it.
    pub(crate) fn metadata(&self) -> Option<(&'static str, Value)> {
        self.scope.options.metadata_field.map(|field| (field, self.trace.json()))
    }

    /// Ends a request that gets an error instead of an answer: charges it, and writes its usage row
    /// if it was routed. Returns the refusal for the client.
    pub(crate) fn fail(&mut self, refusal: Refusal) -> Refusal {
        self.trace.ended(self.deadline.since_dispatch());
        let refusal = self.trace.beside(refusal, self.scope.options.metadata_field);
        let refusal = self.deadline.final_refusal(refusal);
        self.entry.failed(refusal.kind);
        self.entry.refuse();
        refusal
    }
}
