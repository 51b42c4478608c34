//! Routes a request, reserves its cost and tries the endpoints until one answers.

use super::plan::RoutingPlan;
use super::{ChosenEndpoint, Job};
use crate::assembler::Permits;
use crate::attempt::ResponseAttempt;
use crate::attempt::candidates::{AttemptNotes, Candidates, Won};
use crate::credential::Credentials;
use crate::lifecycle::deadline::Deadline;
use crate::money::credit::{TurnEstimate, TurnTokens};
use crate::money::ledger::LedgerEntry;
use crate::random::random_seed;
use crate::refusal::Refusal;
use crate::routing::RouteInputs;
use crate::routing::model_choice;
use std::sync::Arc;

impl Job {
    /// Routes the request and tries endpoints in the router's order until one answers.
    pub(super) async fn choose(
        &mut self,
        plan: RoutingPlan,
        entry: &mut LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<ChosenEndpoint, Refusal> {
        let engine = Arc::clone(&self.engine);
        let credentials = Credentials {
            store: &engine.parts.store,
            caller: &self.caller,
            request_id: &self.context.request_id,
        };
        let route = RouteInputs {
            router: &engine.router,
            credentials,
            context: &self.context,
            summary: plan.summary,
            allow_fallbacks: self.request.provider.allow_fallbacks,
            remembered: self.remembered(),
            eject: engine.parts.eject,
            now_ms: engine.parts.memory.clock.monotonic_ms(),
            seed: random_seed(),
        };
        self.order = route.order(plan.candidates, &mut self.trace).await?;
        self.trace.pipeline.extend(self.chosen_models.as_ref().map(model_choice::ChosenModels::stage));
        entry.reserve(self.turn(), deadline).await?;
        if self.tools.is_some() {
            // Approved calls make reservations of their own, so the turn's reservation is released
            // meanwhile.
            entry.turn_over();
            self.run_approved(deadline).await?;
            entry.reserve(self.turn(), deadline).await?;
        }
        let answering = self.ask(entry, deadline).await?;
        let model = &answering.endpoint.candidate.model;
        if let Some(chosen) = self.chosen_models.as_ref().filter(|chosen| chosen.has(model)) {
            chosen.strategy().clone_into(&mut self.trace.strategy);
        }
        Ok(answering)
    }

    /// The next turn, for its reservation.
    fn turn(&self) -> TurnEstimate<'_> {
        TurnEstimate { endpoints: &self.order.endpoints, byok: &self.order.byok, tokens: self.turn_tokens() }
    }

    /// The most tokens of the next turn.
    fn turn_tokens(&self) -> TurnTokens {
        let Self { request, tools, .. } = self;
        // The input of a later turn includes what was said and found since the first.
        let told = tools.as_ref().map_or(0, |tools| tools.turn_json().len());
        let more = told.saturating_sub(request.guest_json.len()) as u64;
        TurnTokens {
            input: request.weight.most().saturating_add(more),
            output: request.max_output_tokens,
            reasoning: request.weight.most_reasoning(),
        }
    }

    /// Begins a further turn, after the most that it may cost is reserved.
    pub(super) async fn ask_again(
        &mut self,
        entry: &mut LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<ChosenEndpoint, Refusal> {
        entry.reserve(self.turn(), deadline).await?;
        self.ask(entry, deadline).await
    }

    /// Tries endpoints in their order until one answers this turn.
    async fn ask(
        &mut self,
        entry: &mut LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<ChosenEndpoint, Refusal> {
        let engine = &self.engine;
        let credentials = Credentials {
            store: &engine.parts.store,
            caller: &self.caller,
            request_id: &self.context.request_id,
        };
        let attempting = ResponseAttempt {
            egress: &engine.parts.egress,
            credentials,
            timeouts: &engine.parts.timeouts,
            context: &self.context,
            request: self.tools.as_ref().map_or(&self.request.guest_json, |tools| tools.turn_json()),
            checked: &self.request,
            order: &self.order,
            permits: Permits::of(&self.request),
            echo: self.echo.as_ref(),
        };
        let candidates = Candidates {
            order: &self.order.endpoints,
            preferred: self.preferred,
            may_retry: engine.parts.retry && self.request.provider.allow_fallbacks,
            eject: engine.parts.eject,
            session: self.session,
            input_tokens: self.request.weight.about().max(self.request.input_tokens.into()),
            tokens: self.turn_tokens(),
            // After the result of a call the model may have nothing left to say.
            may_be_empty: self.request.ends_with_result
                || self.preferred.is_some()
                || self.tools.as_ref().is_some_and(|tools| tools.has_run()),
            memory: &engine.parts.memory,
        };
        let won = candidates
            .try_in_order(&attempting, &mut AttemptNotes { entry, trace: &mut self.trace }, deadline)
            .await;
        let Won { place, answer: begun, watch } = won.map_err(|failures| failures.refusal(&self.trace))?;
        self.preferred = Some(place);
        let endpoint = self.order.endpoints.get(place).map(Arc::clone).ok_or_else(Refusal::internal)?;
        Ok(ChosenEndpoint { endpoint, begun, watch })
    }
}
