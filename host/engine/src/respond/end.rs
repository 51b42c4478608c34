//! The end of a response: its outcome, its cost and the last bytes to the client.

use super::Job;
use super::outcome::{cut_short, settled, too_long_to_hold};
use super::plan::left_out;
use crate::assembler::{Assembler, Identity, Outcome, Receipt, ResponseReplay};
use crate::cost::Cost;
use crate::export::{About, PendingExport};
use crate::lifecycle::deadline::Deadline;
use crate::money::ledger::LedgerEntry;
use crate::plugins::hooks;
use crate::refusal::{Refusal, TIMED_OUT};
use crate::upstream::echo::Echo;
use crate::upstream::reading::UpstreamReading;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::UsageOutcome;
use std::sync::Arc;

impl Job {
    /// Ends the response and sends the last bytes or returns the body.
    pub(super) async fn end(
        &mut self,
        outcome: Outcome,
        reading: Option<Box<UpstreamReading>>,
        mut assembler: Assembler,
        entry: &mut LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<Vec<u8>, Refusal> {
        let outcome = if deadline.is_cut_short() { cut_short(outcome) } else { outcome };
        let is_too_long = deadline.is_held() && assembler.is_overfull();
        let outcome = if is_too_long { too_long_to_hold() } else { outcome };
        let settled = settled(&outcome);
        if let Outcome::Failed(refusal) = &outcome {
            entry.failed(refusal.kind);
            self.trace.selected = None;
        }
        self.trace.ended(deadline.since_dispatch());
        self.trace.pipeline.extend(self.tools.as_ref().map(|tools| tools.stage()));
        let answering = self.preferred.and_then(|place| self.order.endpoints.get(place));
        self.trace.pipeline.extend(
            answering.and_then(|endpoint| left_out(endpoint, self.order.is_byok(endpoint), &self.request)),
        );
        let last = assembler.complete(&outcome, &self.receipt(self.cost.plus(&entry.lost())));
        // One body, or a stream that was held back: hooks see it before the client gets any of it.
        if !deadline.is_streamed() {
            let body = match outcome {
                Outcome::Failed(refusal) => Err(refusal),
                _ if self.hooks.is_empty() => Ok(last),
                _ => Box::pin(self.show_response(last, deadline)).await,
            };
            if let Err(refusal) = &body {
                entry.failed(refusal.kind);
            }
            // After the hooks, which may turn the answer into an error.
            entry.settle(if body.is_err() { UsageOutcome::Failed } else { settled });
            if let Some(reading) = reading.filter(|_| body.is_ok()) {
                reading.close().await;
            }
            return match body {
                Ok(body) if deadline.is_held() => self.send_held(&assembler, &body, deadline).await,
                Err(refusal) if is_too_long => {
                    self.fail(refusal, entry, deadline).await;
                    Ok(Vec::new())
                }
                body => body,
            };
        }
        // Settled first: if the client leaves during the last send, the outcome is still the one
        // that was reached.
        entry.settle(settled);
        let said = deadline.send(last).await;
        // The client may send its next request while the provider's connection is drained.
        self.caller.allowance.give_place_back();
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
    async fn show_response(&self, body: Vec<u8>, deadline: &mut Deadline) -> Result<Vec<u8>, Refusal> {
        let left = deadline.left();
        let shown = hooks::on_response(&self.hooks, self.occasion(), &self.request, body);
        let late = |_| Err(Refusal::new(524, ErrorKind::Timeout, TIMED_OUT));
        deadline.during(shown, left).await.unwrap_or_else(late)
    }

    /// Sends an answer that was held back to the client of a stream.
    async fn send_held(
        &self,
        made: &Assembler,
        body: &[u8],
        deadline: &mut Deadline,
    ) -> Result<Vec<u8>, Refusal> {
        let mut replay = ResponseReplay::new(made, body).map_err(|malformed| {
            tracing::error!(%malformed, "a held answer cannot be sent as a stream");
            Refusal::internal()
        })?;
        self.echo(replay.assembler());
        while let Some(events) = replay.next_events() {
            // If the client is gone, the rest is not needed.
            if deadline.send(events).await.is_err() {
                break;
            }
        }
        self.caller.allowance.give_place_back();
        Ok(Vec::new())
    }

    /// The record for the request export, if there are destinations.
    pub(super) fn pending(&self) -> Option<Box<PendingExport>> {
        let parts = &self.engine.parts;
        let Self { request, options, context, .. } = self;
        if self.asking.depth() > 0 {
            // A question is part of the client's request, which has a record of its own.
            return None;
        }
        parts.broadcast.begin(&parts.clock, || About {
            started_ms: context.now_ms,
            requested: self.trace.requested.clone(),
            intern: self.caller.intern,
            session_id: request.session_id.clone().or_else(|| options.session_header.clone()),
            user: request.user.clone(),
            trace: request.trace.clone(),
        })
    }

    /// Adds what was sent upstream since the last call, if the client asked to see it.
    pub(super) fn echo(&self, assembler: &mut Assembler) {
        let echo = self.echo.as_ref().filter(|_| assembler.is_streamed());
        let debug = echo.map(Echo::take).unwrap_or_default();
        debug.iter().for_each(|debug| assembler.debug(debug));
    }

    pub(super) fn identity(&self, model: &str, tier: &str) -> Identity {
        Identity {
            hex: Arc::from(self.hex.as_str()),
            created_at: self.context.now_ms / 1000,
            model: model.to_owned(),
            service_tier: tier.to_owned(),
            echo: Arc::from(self.request.echo.as_str()),
        }
    }

    pub(super) fn receipt(&self, cost: Cost) -> Receipt {
        Receipt {
            completed_at: self.engine.parts.clock.now_ms() / 1000,
            cost,
            plugins: self.asking.account().plugins().here,
            is_byok: self.trace.is_byok,
            server_tools: self.tools.as_ref().map(|tools| tools.counts()),
            metadata: self.options.metadata_field.map(|field| (field, self.trace.json())),
        }
    }
}
