//! The end of a response: its outcome, its cost and the last bytes to the client.

use super::outcome::{cut_short, settled, too_long_to_hold};
use super::plan::left_out;
use super::{Job, ResponseRun};
use crate::assembler::{Assembler, Identity, Outcome, Receipt, ResponseReplay};
use crate::cost::Cost;
use crate::plugins::hooks;
use crate::refusal::Refusal;
use crate::upstream::echo::Echo;
use crate::upstream::reading::UpstreamReading;
use std::pin::pin;
use std::sync::Arc;

impl ResponseRun {
    /// Ends the response and sends the last bytes or returns the body.
    pub(super) async fn end(
        &mut self,
        outcome: Outcome,
        reading: Option<Box<UpstreamReading>>,
        assembler: &mut Assembler,
    ) -> Result<Vec<u8>, Refusal> {
        let Self { job, run, .. } = &mut *self;
        let outcome = if run.deadline.is_cut_short() { cut_short(outcome) } else { outcome };
        let is_too_long = run.deadline.is_held() && assembler.is_overfull();
        let outcome = if is_too_long { too_long_to_hold() } else { outcome };
        let settled = settled(&outcome);
        if let Outcome::Failed(refusal) = &outcome {
            run.entry.failed(refusal.kind);
            run.trace.selected = None;
        }
        run.count_turns();
        run.trace.ended(run.deadline.since_dispatch());
        run.trace.pipeline.extend(job.tools.as_ref().map(|tools| tools.stage()));
        let left_out =
            run.endpoint().and_then(|(endpoint, is_byok)| left_out(endpoint, is_byok, &job.request));
        run.trace.pipeline.extend(left_out);
        let cost = job.cost.plus(&run.entry.lost());
        let last = assembler.complete(&outcome, &self.receipt(cost));
        // One body, or a stream that was held back: hooks see it before the client gets any of it.
        if !self.run.deadline.is_streamed() {
            let body = match outcome {
                Outcome::Failed(refusal) => Err(refusal),
                _ if self.job.hooks.is_empty() => Ok(last),
                _ => Box::pin(self.show_response(last)).await,
            };
            let body = match body {
                Ok(body) => body,
                Err(refusal) if is_too_long => {
                    let refusal = self.run.fail(refusal);
                    self.end_with(refusal).await;
                    return Ok(Vec::new());
                }
                Err(refusal) => return Err(refusal),
            };
            // After the hooks, which may turn the answer into an error.
            self.run.entry.settle(settled);
            if let Some(reading) = reading {
                reading.close().await;
            }
            if self.run.deadline.is_held() {
                return self.send_held(assembler, &body).await;
            }
            return Ok(body);
        }
        // Settled first: if the client leaves during the last send, the outcome is still the one
        // that was reached.
        self.run.entry.settle(settled);
        let said = self.run.deadline.send(last).await;
        // The client may send its next request while the provider's connection is drained.
        self.job.scope.caller.allowance.release_permit();
        self.drop_document();
        if said.is_ok()
            && let Some(mut reading) = reading
        {
            reading.drain().await;
            if !matches!(outcome, Outcome::Failed(_)) {
                reading.close().await;
            }
        }
        Ok(Vec::new())
    }

    /// Calls the hooks with the response, within the request's deadline.
    async fn show_response(&mut self, body: Vec<u8>) -> Result<Vec<u8>, Refusal> {
        let Self { job, run, .. } = self;
        let left = run.deadline.left();
        let shown = hooks::on_response(&job.hooks, job.plugin_scope(), &job.request, body);
        let late = |_| Err(Refusal::late_answer());
        run.deadline.during(pin!(shown), left).await.unwrap_or_else(late)
    }

    /// Sends an answer that was held back to the client of a stream.
    async fn send_held(&mut self, made: &Assembler, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut replay = ResponseReplay::new(made, body).map_err(|malformed| {
            tracing::error!(%malformed, "a held answer cannot be sent as a stream");
            Refusal::internal()
        })?;
        self.job.echo(replay.assembler());
        while let Some(events) = replay.next_events() {
            // If the client is gone, the rest is not needed.
            if self.run.deadline.send(events).await.is_err() {
                break;
            }
        }
        self.job.scope.caller.allowance.release_permit();
        Ok(Vec::new())
    }

    pub(super) fn receipt(&self, cost: Cost) -> Receipt {
        let Self { job, run, .. } = self;
        Receipt {
            completed_at: job.scope.parts().clock.now_ms() / 1000,
            cost,
            plugins: job.questions.account().plugins().here,
            is_byok: run.trace.is_byok,
            server_tools: job.tools.as_ref().map(|tools| tools.counts()),
            metadata: run.metadata(),
        }
    }
}

impl Job {
    /// Adds what was sent upstream since the last call, if the client asked to see it.
    pub(super) fn echo(&self, assembler: &mut Assembler) {
        let echo = self.echo.as_ref().filter(|_| assembler.is_streamed());
        let debug = echo.map(Echo::take).unwrap_or_default();
        debug.iter().for_each(|debug| assembler.debug(debug));
    }

    pub(super) fn identity(&self, model: &str, tier: &str) -> Identity {
        Identity {
            hex: Arc::from(self.hex.as_str()),
            created_at: self.scope.context.now_ms / 1000,
            model: model.to_owned(),
            service_tier: tier.to_owned(),
            echo: Arc::from(self.request.echo.as_str()),
        }
    }
}
