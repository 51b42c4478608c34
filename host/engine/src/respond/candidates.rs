//! Trying endpoints in the router's order until one answers.

use super::plan::Plan;
use super::{Chosen, Job};
use crate::attempt::Attempting;
use crate::credential::Credentials;
use crate::fallback::Failures;
use crate::ledger::Entry;
use crate::pace::Pace;
use crate::refusal::Refusal;
use crate::routing::Route;
use crate::{credit, model_choice, random_seed};
use std::sync::Arc;
use tokio::time::Instant;

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
            seed: random_seed(),
        };
        self.order = route.order(plan.candidates, &mut self.trail).await?;
        self.trail.pipeline.extend(self.chosen_models.as_ref().map(model_choice::Chosen::stage));
        let (input, output) = (self.request.input_tokens, self.request.max_output_tokens);
        entry.reserve(|| credit::estimate(&self.order, input, output), pace).await?;
        self.dispatched = Some(Instant::now());
        self.run_approved(entry, pace).await?;
        let answering = self.ask(entry, pace).await?;
        let model = &answering.endpoint.candidate.model;
        if let Some(chosen) = self.chosen_models.as_ref().filter(|chosen| chosen.has(model)) {
            chosen.strategy().clone_into(&mut self.trail.strategy);
        }
        Ok(answering)
    }

    /// Tries endpoints in their order until one answers this turn.
    pub(super) async fn ask(&mut self, entry: &mut Entry, pace: &mut Pace) -> Result<Chosen, Refusal> {
        let engine = &self.engine;
        let credentials = Credentials {
            store: &engine.parts.store,
            caller: &self.caller,
            request_id: &self.context.request_id,
        };
        let mut failures = Failures::default();
        let others = (0..self.order.len()).filter(|place| Some(*place) != self.preferred);
        for place in self.preferred.into_iter().chain(others) {
            let Some(endpoint) = self.order.get(place) else { continue };
            if !failures.allow(endpoint) {
                continue;
            }
            entry.asked(endpoint, self.request.input_tokens);
            let attempting = Attempting {
                egress: &engine.parts.egress,
                credentials,
                timeouts: &engine.parts.timeouts,
                context: &self.context,
                request: self.tools.as_ref().map_or(&self.request.guest_json, |tools| tools.turn_json()),
                options: self.request.provider.options_for(&endpoint.provider.name),
                echo: self.echo.as_ref(),
            };
            let failed = match attempting.run(endpoint, pace).await {
                Ok(begun) => {
                    self.trail.answered(place, endpoint, begun.status, begun.used.as_ref());
                    self.preferred = Some(place);
                    return Ok(Chosen { endpoint: Arc::clone(endpoint), begun });
                }
                Err(failed) => failed,
            };
            entry.unanswered();
            if failures.add(endpoint, failed, &mut self.trail).is_break() {
                break;
            }
        }
        Err(failures.refusal(&self.trail, self.options.metadata_field.is_some()))
    }
}
