//! Trying endpoints in the router's order until one answers.

use super::plan::Plan;
use super::{Chosen, Job};
use crate::attempt::Attempting;
use crate::candidates::{Candidates, Notes, Won};
use crate::credential::Credentials;
use crate::credit::Turn;
use crate::ledger::Entry;
use crate::pace::Pace;
use crate::refusal::Refusal;
use crate::routing::Route;
use crate::{model_choice, random_seed};
use std::sync::Arc;

/// About so many bytes of what a turn is told are one token.
const BYTES_PER_TOKEN: usize = 4;

impl Job {
    /// Tries endpoints in the router's order until one answers.
    pub(super) async fn choose(
        &mut self,
        plan: Plan,
        entry: &mut Entry,
        pace: &mut Pace,
    ) -> Result<Chosen, Refusal> {
        let engine = Arc::clone(&self.engine);
        let credentials = Credentials {
            store: &engine.parts.store,
            caller: &self.caller,
            request_id: &self.context.request_id,
        };
        let route = Route {
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
        self.order = route.order(plan.candidates, &mut self.trail).await?;
        self.trail.pipeline.extend(self.chosen_models.as_ref().map(model_choice::Chosen::stage));
        entry.reserve(self.turn(), pace).await?;
        if self.tools.is_some() {
            // Calls that the client has approved spend for themselves, of all that is left.
            entry.turn_over();
            self.run_approved(entry, pace).await?;
            entry.reserve(self.turn(), pace).await?;
        }
        let answering = self.ask(entry, pace).await?;
        let model = &answering.endpoint.candidate.model;
        if let Some(chosen) = self.chosen_models.as_ref().filter(|chosen| chosen.has(model)) {
            chosen.strategy().clone_into(&mut self.trail.strategy);
        }
        Ok(answering)
    }

    /// What the next turn may cost.
    fn turn(&self) -> Turn<'_> {
        let Self { order, request, tools, .. } = self;
        // A later turn is told what was said and found since the first.
        let told = tools.as_ref().map_or(0, |tools| tools.turn_json().len());
        let more = told.saturating_sub(request.guest_json.len()) / BYTES_PER_TOKEN;
        Turn {
            endpoints: &order.endpoints,
            byok: &order.byok,
            input_tokens: request.input_tokens.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)),
            max_output: request.max_output_tokens,
        }
    }

    /// Asks for a further turn, once it is reserved what that may cost.
    pub(super) async fn ask_again(&mut self, entry: &mut Entry, pace: &mut Pace) -> Result<Chosen, Refusal> {
        self.look_for_byok().await;
        entry.reserve(self.turn(), pace).await?;
        self.ask(entry, pace).await
    }

    /// Looks whether what the caller paid itself so far it still pays itself: it may have taken its credential away.
    async fn look_for_byok(&mut self) {
        let Self { engine, caller, context, order, .. } = self;
        let credentials = Credentials { store: &engine.parts.store, caller, request_id: &context.request_id };
        let mut still = Vec::with_capacity(order.byok.len());
        for place in std::mem::take(&mut order.byok) {
            if let Some(endpoint) = order.endpoints.get(place)
                && credentials.has_byok(&endpoint.provider).await
            {
                still.push(place);
            }
        }
        order.byok = still;
    }

    /// Tries endpoints in their order until one answers this turn.
    async fn ask(&mut self, entry: &mut Entry, pace: &mut Pace) -> Result<Chosen, Refusal> {
        let engine = &self.engine;
        let credentials = Credentials {
            store: &engine.parts.store,
            caller: &self.caller,
            request_id: &self.context.request_id,
        };
        let attempting = Attempting {
            egress: &engine.parts.egress,
            credentials,
            timeouts: &engine.parts.timeouts,
            context: &self.context,
            request: self.tools.as_ref().map_or(&self.request.guest_json, |tools| tools.turn_json()),
            kinds: &self.request.kinds,
            preferences: &self.request.provider,
            echo: self.echo.as_ref(),
        };
        let candidates = Candidates {
            order: &self.order.endpoints,
            preferred: self.preferred,
            may_retry: engine.parts.retry && self.request.provider.allow_fallbacks,
            eject: engine.parts.eject,
            session: self.session,
            input_tokens: self.request.input_tokens,
            memory: &engine.parts.memory,
        };
        let won =
            candidates.try_in_order(&attempting, &mut Notes { entry, trail: &mut self.trail }, pace).await;
        let Won { place, answer: begun, watch } = won.map_err(|failures| failures.refusal(&self.trail))?;
        self.preferred = Some(place);
        let endpoint = self.order.endpoints.get(place).map(Arc::clone).ok_or_else(Refusal::internal)?;
        Ok(Chosen { endpoint, begun, watch })
    }
}
