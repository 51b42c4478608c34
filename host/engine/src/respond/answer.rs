//! Reads an answer from its first event to its end, turn by turn.

use super::outcome::{TurnEnd, covered, failed, finished, refused};
use super::turns::TurnStep;
use super::{ChosenEndpoint, Job};
use crate::assembler::{Assembler, Outcome, Permits};
use crate::attempt::Begun;
use crate::catalog::Endpoint;
use crate::cost::{Amount, Cost, no_usage};
use crate::lifecycle::deadline::{ClientGone, Deadline};
use crate::memory::health::AttemptProbe;
use crate::money::ledger::LedgerEntry;
use crate::plugins::hooks::HELD_BYTES_MAX;
use crate::refusal::{Refusal, RefusedBy};
use crate::upstream::reading::UpstreamReading;
use cofferdam_runtime::wire::{ErrorKind, Event, Usage};

impl Job {
    /// Reads an answer from its first event to its end, turn by turn.
    pub(super) async fn carry_on(
        &mut self,
        mut chosen: ChosenEndpoint,
        entry: &mut LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<Vec<u8>, Refusal> {
        let candidate = &chosen.endpoint.candidate;
        let identity = self.identity(&candidate.model, &candidate.tier);
        let mut assembler = Assembler::new(identity, deadline.is_streamed());
        if deadline.is_held() {
            assembler.limit(HELD_BYTES_MAX);
        }
        self.echo(&mut assembler);
        assembler.permit(Permits::of(&self.request));
        assembler.begin();
        if let Some(tools) = &mut self.tools {
            assembler.serve(tools.served());
            tools.show_before(&mut assembler);
        }
        let (outcome, reading) = loop {
            let ChosenEndpoint { endpoint, begun, watch } = chosen;
            let Begun { events, mut reading, used, told, .. } = begun;
            assembler.use_told(told);
            let is_byok = used.as_ref().is_some_and(|used| used.is_byok);
            entry.answered(is_byok);
            let price =
                |usage: &Usage, calls: Amount| Cost::of(usage, &endpoint.prices, is_byok).with_calls(calls);
            // Time spent waiting for the client does not count for the endpoint's speed.
            let held = deadline.held();
            let read = self.read(&price, events, &mut reading, &mut assembler, entry, deadline).await;
            let Ok(TurnEnd { outcome, is_endpoints_fault, is_cut_here }) = read else {
                return Ok(Vec::new());
            };
            // Read before the entry forgets the turn.
            let calls = entry.noted_calls();
            let is_failed = matches!(outcome, Outcome::Failed(_));
            // The provider will not report the rest of its usage, so the rest is estimated.
            if is_cut_here || (is_failed && deadline.has_left()) {
                self.cost = self.cost.plus(&entry.break_off());
            }
            entry.turn_over();
            deadline.attendance().has_answered();
            let outcome = covered(outcome, used.as_ref());
            let usage = assembler.usage().copied().unwrap_or_else(no_usage);
            if let Outcome::Failed(refusal) = &outcome {
                self.trace.broke(refusal.kind);
                self.broke(&endpoint, &watch, is_endpoints_fault);
            } else {
                watch.finished(&usage, deadline.held().saturating_sub(held));
                self.answered(&endpoint, &usage);
            }
            self.cost = self.cost.plus(&price(&usage, calls));
            if deadline.has_left() {
                // The answer was read on for its usage only. Dropping the entry records that the
                // client has left.
                return Ok(Vec::new());
            }
            let outcome = self.compacted(outcome, &mut assembler);
            if self.tools.is_none() {
                break (outcome, reading);
            }
            let next = self.after_turn(outcome, reading, &mut assembler, entry, deadline);
            match Box::pin(next).await? {
                TurnStep::End(outcome, reading) => break (outcome, reading),
                TurnStep::Turn(next) => chosen = next,
                TurnStep::Gone => return Ok(Vec::new()),
            }
        };
        self.end(outcome, reading, assembler, entry, deadline).await
    }

    /// For a request that compacts a conversation: adds the summary that the turn made. Returns how
    /// the turn ended.
    fn compacted(&self, outcome: Outcome, assembler: &mut Assembler) -> Outcome {
        let summary = assembler.take_summary().filter(|_| matches!(outcome, Outcome::Completed));
        let Some(summary) = summary else { return outcome };
        if summary.trim().is_empty() {
            return Outcome::Failed(Refusal::provider_broke());
        }
        match self.engine.parts.store.seal_conversation(self.caller.workspace, &summary) {
            Ok(sealed) => match assembler.show_compaction(&sealed) {
                Ok(()) => outcome,
                Err(malformed) => refused(malformed),
            },
            Err(error) => {
                tracing::error!(%error, "a compacted conversation could not be sealed");
                Outcome::Failed(Refusal::broken(RefusedBy::Host, ErrorKind::Server, "Internal Server Error"))
            }
        }
    }

    /// Reads one turn to its end. Returns how it ended.
    async fn read(
        &self,
        price: &(impl Fn(&Usage, Amount) -> Cost + Sync),
        mut events: Vec<Event>,
        reading: &mut Option<Box<UpstreamReading>>,
        assembler: &mut Assembler,
        entry: &mut LedgerEntry,
        deadline: &mut Deadline,
    ) -> Result<TurnEnd, ClientGone> {
        loop {
            entry.received(&events);
            let applied = apply(assembler, events);
            if assembler.ended().is_some() && assembler.usage().is_none() {
                assembler.assume(entry.unreported(deadline.has_left()));
            }
            if let (Some(usage), Some(total)) = (assembler.usage(), assembler.total_usage()) {
                // Recorded at once: if the client leaves, what was used until then is charged.
                let cost = self.cost.plus(&price(usage, entry.calls()));
                entry.consumed(usage, &total, &cost);
            }
            if let Some(end) = applied {
                return Ok(end);
            }
            let said = deadline.send(assembler.take_events()).await;
            if !deadline.has_left() {
                said?;
            }
            events = match reading {
                Some(reading) if !reading.is_over() => {
                    match reading.next(deadline, self.engine.parts.timeouts.idle).await {
                        Ok(events) => events,
                        Err(error) => return Ok(TurnEnd::broken(error)),
                    }
                }
                // The provider's answer ended without a final event.
                _ => return Ok(TurnEnd::reported(Outcome::Failed(Refusal::provider_broke()))),
            };
        }
    }

    /// Records that the endpoint's answer is complete, so that the conversation stays with it.
    fn answered(&self, endpoint: &Endpoint, usage: &Usage) {
        let memory = &self.engine.parts.memory;
        if let Some(session) = self.session {
            let now_ms = memory.clock.monotonic_ms();
            memory.sessions.answered(session, endpoint.health.id(), usage.cached_tokens > 0, now_ms);
        }
    }

    /// Records that the endpoint's answer broke off after it had begun.
    fn broke(&self, endpoint: &Endpoint, watch: &AttemptProbe, is_endpoints_fault: bool) {
        if !is_endpoints_fault {
            return;
        }
        watch.broke();
        if let Some(session) = self.session {
            self.engine.parts.memory.sessions.failed(session, endpoint.health.id());
        }
    }
}

/// Hands events to the assembler. Returns how the turn ends, if it does.
fn apply(assembler: &mut Assembler, events: Vec<Event>) -> Option<TurnEnd> {
    for event in events {
        if let Event::Error(failure) = event {
            return Some(TurnEnd::reported(failed(&failure)));
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
