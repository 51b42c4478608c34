//! Reads an answer from its first event to its end, turn by turn.

use super::ResponseRun;
use super::attempt::RestOfAnswer;
use super::outcome::{TurnEnd, covered, finished, refused};
use super::turns::TurnStep;
use crate::assembler::{Assembler, Outcome, Permits};
use crate::cost::{Used, no_usage, sum};
use crate::lifecycle::deadline::ClientGone;
use crate::money::ledger::Unreported;
use crate::plugins::hooks::HELD_BYTES_MAX;
use crate::refusal::{INTERNAL, Refusal, RefusedBy};
use crate::run::Answering;
use crate::timeline::{FactName, Timeline};
use cofferdam_runtime::wire::{ErrorKind, Event, Usage};
use std::mem;

impl ResponseRun {
    /// Reads an answer from its first event to its end, turn by turn.
    pub(super) async fn carry_on(
        &mut self,
        mut answering: Answering<RestOfAnswer>,
    ) -> Result<Vec<u8>, Refusal> {
        let mut assembler = self.assembler(&answering);
        if self.job.tools.is_none() && self.job.hooks.is_empty() {
            // The answer has begun, so no other endpoint is tried. It may take long and the input may be large.
            self.drop_document();
        }
        let (outcome, reading) = loop {
            assembler.use_told(answering.begun.rest.told.take());
            let read = self.read_turn(&mut answering, &mut assembler).await;
            // Wiped now: what follows may take as long as the client needs to read a held answer.
            answering.begun.used = None;
            let Ok(outcome) = read else { return Ok(Vec::new()) };
            let outcome = self.compacted(outcome, &mut assembler);
            let reading = answering.begun.rest.reading;
            if self.job.tools.is_none() {
                break (outcome, reading);
            }
            match Box::pin(self.after_turn(outcome, reading, &mut assembler)).await? {
                TurnStep::End(outcome, reading) => break (outcome, reading),
                TurnStep::Turn(next) => answering = next,
                TurnStep::Gone => return Ok(Vec::new()),
            }
        };
        self.end(outcome, reading, &mut assembler).await
    }

    /// The assembler of an answer that has begun.
    fn assembler(&mut self, answering: &Answering<RestOfAnswer>) -> Assembler {
        let Self { job, run, .. } = self;
        let candidate = &answering.endpoint.candidate;
        let identity = job.identity(&candidate.model, &candidate.tier);
        let mut assembler = Assembler::new(identity, run.deadline.is_streamed());
        if run.deadline.is_held() {
            assembler.limit(HELD_BYTES_MAX);
        }
        job.echo(&mut assembler);
        assembler.permit(Permits::of(&job.request));
        assembler.begin();
        if let Some(tools) = &mut job.tools {
            assembler.serve(tools.served());
            tools.show_before(&mut assembler);
        }
        assembler
    }

    /// Reads one turn to its end and records what it used.
    ///
    /// # Errors
    /// The client has left.
    async fn read_turn(
        &mut self,
        answering: &mut Answering<RestOfAnswer>,
        assembler: &mut Assembler,
    ) -> Result<Outcome, ClientGone> {
        self.run.entry.answered(answering.is_byok());
        // Time spent waiting for the client does not count for the endpoint's speed.
        let held = self.run.deadline.held();
        let TurnEnd { outcome, is_endpoints_fault, unreported } = self.read(answering, assembler).await?;
        let Self { job, run, .. } = self;
        // Read before the entry forgets the turn.
        let calls = run.entry.noted_calls();
        let is_failed = matches!(outcome, Outcome::Failed(_));
        let is_broken = is_failed || unreported != Unreported::Nothing;
        let unreported = if run.deadline.has_left() { unreported.of_absent() } else { unreported };
        // The provider will not report the rest of its usage.
        let rest = if is_broken { run.entry.break_off(unreported) } else { Used::default() };
        run.entry.turn_over();
        run.deadline.presence().has_answered();
        let outcome = covered(outcome, answering.begun.used.as_ref());
        let usage = assembler.usage().copied().unwrap_or_else(no_usage);
        if let Outcome::Failed(refusal) = &outcome {
            run.trace.broke(refusal.kind);
            if is_endpoints_fault {
                run.broke(answering);
            }
        } else {
            answering.watch.finished(&usage, run.deadline.held().saturating_sub(held));
            run.answered(answering, &usage);
        }
        job.cost = job.cost.plus(&answering.price(&usage, calls)).plus(&rest.cost);
        let usage = sum(&usage, &rest.usage);
        if rest.usage != no_usage() {
            assembler.assume(usage);
        }
        close_attempt(&job.scope.timeline, answering.begun.status, &usage, &outcome);
        if run.deadline.has_left() {
            // The answer was read on for its usage only. Dropping the entry records that the client
            // has left.
            return Err(ClientGone);
        }
        Ok(outcome)
    }

    /// For a request that compacts a conversation: adds the summary that the turn made. Returns how
    /// the turn ended.
    fn compacted(&self, outcome: Outcome, assembler: &mut Assembler) -> Outcome {
        let summary = assembler.take_summary().filter(|_| matches!(outcome, Outcome::Completed));
        let Some(summary) = summary else { return outcome };
        if summary.trim().is_empty() {
            return Outcome::Failed(Refusal::provider_broke());
        }
        let scope = &self.job.scope;
        let caller = &scope.caller;
        match scope.parts().store.seal_conversation(caller.workspace.id, caller.intern, &summary) {
            Ok(sealed) => match assembler.show_compaction(&sealed) {
                Ok(()) => outcome,
                Err(malformed) => refused(malformed),
            },
            Err(error) => {
                tracing::error!(%error, "a compacted conversation could not be sealed");
                Outcome::Failed(Refusal::broken(RefusedBy::Host, ErrorKind::Server, INTERNAL))
            }
        }
    }

    /// Reads one turn to its end. Returns how it ended.
    async fn read(
        &mut self,
        answering: &mut Answering<RestOfAnswer>,
        assembler: &mut Assembler,
    ) -> Result<TurnEnd, ClientGone> {
        let Self { job, run, .. } = self;
        let mut events = mem::take(&mut answering.begun.events);
        let held = run.deadline.held();
        loop {
            run.entry.correct(&mut events);
            run.entry.received(&events);
            let applied = apply(assembler, events);
            if assembler.ended().is_some()
                && let Some(usage) = run.entry.unreported(assembler.usage().copied(), run.deadline.has_left())
            {
                assembler.assume(usage);
            }
            if let (Some(usage), Some(total)) = (assembler.usage(), assembler.total_usage()) {
                // Recorded at once: if the client leaves, what was used until then is charged.
                let cost = job.cost.plus(&answering.price(usage, run.entry.calls()));
                run.entry.consumed(usage, &total, &cost);
            }
            if let Some(end) = applied {
                return Ok(end);
            }
            let said = run.deadline.send(assembler.take_events()).await;
            if !run.deadline.has_left() {
                said?;
            }
            events = match &mut answering.begun.rest.reading {
                Some(reading) if !reading.is_over() => {
                    match reading.next(&mut run.deadline, job.scope.parts().timeouts.idle).await {
                        Ok(events) => events,
                        Err(error) => return Ok(TurnEnd::broken(error, &run.deadline, held)),
                    }
                }
                // The provider's answer ended without a final event.
                _ => return Ok(TurnEnd::unfinished(&run.deadline, held)),
            };
        }
    }
}

/// Ends the step of an attempt whose answer has ended.
fn close_attempt(timeline: &Timeline, status: Option<u16>, usage: &Usage, outcome: &Outcome) {
    let facts = [
        FactName::Status.number(status.map(u64::from)),
        FactName::InputTokens.number(usage.input_tokens),
        FactName::CachedTokens.number(usage.cached_tokens),
        FactName::OutputTokens.number(usage.output_tokens),
    ];
    let outcome = match outcome {
        Outcome::Failed(refusal) => refusal.kind.as_str(),
        _ => "ok",
    };
    timeline.close(outcome, &facts);
}

/// Hands events to the assembler. Returns how the turn ends, if it does.
fn apply(assembler: &mut Assembler, events: Vec<Event>) -> Option<TurnEnd> {
    for event in events {
        if let Event::Error(failure) = event {
            return Some(TurnEnd::failure(&failure));
        }
        if let Err(malformed) = assembler.apply(event) {
            return Some(TurnEnd::malformed(malformed));
        }
        if let Some(ended) = assembler.ended() {
            return Some(TurnEnd::reported(finished(ended)));
        }
    }
    None
}
