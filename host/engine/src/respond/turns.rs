//! Between two turns of one response: runs the calls of server tools and asks the model again.

use super::outcome::refused;
use super::{ChosenEndpoint, Job};
use crate::assembler::{Assembler, Outcome};
use crate::lifecycle::deadline::Deadline;
use crate::money::ledger::LedgerEntry;
use crate::plugins::tools::Interrupted;
use crate::refusal::{Refusal, RefusedBy, TIMED_OUT, is_length};
use crate::upstream::reading::UpstreamReading;
use cofferdam_runtime::wire::{ErrorKind, FinishReason};
use cofferdam_store::UsageOutcome;

/// What follows a turn.
pub(super) enum TurnStep {
    /// Nothing: the response ends with this outcome. The rest of the provider's answer may still
    /// have to be read.
    End(Outcome, Option<Box<UpstreamReading>>),
    /// Another turn, which has begun.
    Turn(ChosenEndpoint),
    /// The client has left.
    Gone,
}

impl Job {
    /// Runs what the model called in a turn that ended with `outcome`, and begins the next turn if
    /// there is one.
    ///
    /// # Errors
    /// A [`Refusal`] if nothing was sent to the client.
    pub(super) async fn after_turn(
        &mut self,
        outcome: Outcome,
        reading: Option<Box<UpstreamReading>>,
        assembler: &mut Assembler,
        entry: &mut LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<TurnStep, Refusal> {
        let Some(tools) = &mut self.tools else { return Ok(TurnStep::End(outcome, reading)) };
        // The arguments of an incomplete answer may be incomplete too.
        if !matches!(outcome, Outcome::Completed) {
            return Ok(TurnStep::End(outcome, reading));
        }
        let calls = match assembler.end_turn() {
            Ok(calls) => calls,
            Err(malformed) => return Ok(TurnStep::End(refused(malformed), reading)),
        };
        if calls.is_empty() {
            return Ok(TurnStep::End(outcome, reading));
        }
        // Frees the connection and the instance for the next turn.
        if let Some(mut reading) = reading {
            reading.drain().await;
            reading.close().await;
        }
        let time = self.engine.parts.timeouts.total;
        match tools.run(&calls, &self.context, assembler, deadline, time).await {
            Ok(()) => {}
            Err(Interrupted::Gone) => return Ok(TurnStep::Gone),
            Err(Interrupted::Late) => return self.late(entry, deadline),
            Err(Interrupted::Malformed(malformed)) => return Ok(TurnStep::End(refused(malformed), None)),
        }
        // The client has to run its own functions before the model can continue.
        if tools.is_over() || assembler.has_client_calls() {
            return Ok(TurnStep::End(outcome, None));
        }
        let finish = assembler.ended().map_or(FinishReason::ToolCalls, |ended| ended.reason.clone());
        let usage = assembler.total_usage();
        let cost = self.cost.paid.plus(self.asking.account().plugins()).everywhere();
        tools.prepare_turn(&self.request, &calls, usage.as_ref(), cost, &finish);
        let asked = self.ask_again(entry, deadline).await;
        self.echo(assembler);
        match asked {
            Ok(chosen) => {
                let candidate = &chosen.endpoint.candidate;
                assembler.next_turn(&candidate.model, &candidate.tier);
                Ok(TurnStep::Turn(chosen))
            }
            Err(_) if deadline.is_over() => self.late(entry, deadline),
            // The results of the tools no longer fit into the context: the response ends as
            // incomplete.
            Err(refusal) if is_length(refusal.kind) => {
                Ok(TurnStep::End(Outcome::Incomplete("max_output_tokens"), None))
            }
            Err(refusal) if deadline.is_streamed() => Ok(TurnStep::End(Outcome::Failed(refusal), None)),
            Err(refusal) => {
                self.trace.selected = None;
                entry.failed(refusal.kind);
                entry.settle(UsageOutcome::Failed);
                Err(refusal)
            }
        }
    }

    /// Runs the calls that the client has approved.
    ///
    /// # Errors
    /// 504: the deadline of the whole request has passed.
    pub(super) async fn run_approved(&mut self, deadline: &mut Deadline) -> Result<(), Refusal> {
        let Some(tools) = &mut self.tools else { return Ok(()) };
        let time = self.engine.parts.timeouts.total;
        let run = tools.run_approved(&self.request, &self.context, deadline, time).await;
        run.map_err(|_| timed_out())
    }

    /// The deadline of the whole request has passed after an answer had begun.
    fn late(&mut self, entry: &mut LedgerEntry, deadline: &Deadline) -> Result<TurnStep, Refusal> {
        if deadline.is_streamed() {
            let refusal = Refusal::broken(RefusedBy::Host, ErrorKind::Timeout, TIMED_OUT);
            return Ok(TurnStep::End(Outcome::Failed(refusal), None));
        }
        self.trace.selected = None;
        entry.failed(ErrorKind::Timeout);
        entry.settle(UsageOutcome::Failed);
        Err(Refusal::new(524, ErrorKind::Timeout, TIMED_OUT))
    }
}

/// The deadline of the whole request has passed before any answer had begun.
pub(super) fn timed_out() -> Refusal {
    Refusal::new(504, ErrorKind::Timeout, TIMED_OUT)
}
