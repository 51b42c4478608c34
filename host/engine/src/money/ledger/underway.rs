//! Estimates what an answer that breaks off has used.
//!
//! Most providers report the usage at the end of an answer. When the client leaves before that, the
//! provider has read the input and produced the output that arrived, and charges for both.

use crate::catalog::{CallPrices, Endpoint};
use crate::cost::{Amount, Cost, Prices, Used, no_usage, sum};
use crate::lifecycle::departure::ClientPresence;
use crate::memory::health::Health;
use cofferdam_runtime::wire::{Event, Usage};
use serde::Deserialize;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The number of bytes of text that are estimated as one token.
const BYTES_PER_TOKEN: u64 = 4;
/// A reported count is believed up to this many times the most that was estimated, plus
/// `BELIEVED_BESIDE` tokens: limits of models may be stated wrongly, and some models reason or search
/// without being asked to.
const BELIEVED_TIMES: u64 = 16;
const BELIEVED_BESIDE: u64 = 1 << 20;
/// The same where the provider's own tools are offered: what they find is input of each of their
/// steps.
const BELIEVED_BESIDE_HOSTED: u64 = 1 << 24;
/// The highest reported cost of a turn that is believed, in dollars.
const BELIEVED_DOLLARS: f64 = 1_000.0;
/// The highest reported number of pictures of a turn that is believed. Each is an output item, of which a
/// response has no more.
const BELIEVED_IMAGES: u32 = 1_024;

/// The tokens that an attempt is estimated to have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptTokens {
    /// A rough count of the input.
    pub(crate) input: u64,
    /// An upper bound for files that the provider fetches.
    pub(crate) fetched: u64,
    /// The most output, by the request and the endpoint.
    pub(crate) output_max: u64,
    /// The most input, by the request and the endpoint.
    pub(crate) input_max: u64,
}

/// What is charged for an answer that broke off, beyond what its provider has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreported {
    /// Nothing: the provider has ended the answer itself.
    Nothing,
    /// The input and what has arrived: this host has ended the answer.
    Arrived,
    /// Also what the endpoint has produced in the elapsed time by its measured speed, but at most what
    /// is reserved: the time of the request is up.
    Produced,
    /// Also files that the provider has fetched, but at most what is reserved: the client has left, or
    /// it was too slow to get the end of the answer.
    Unseen,
}

impl Unreported {
    /// The same for a client that has left. If the provider has ended the answer itself, it may have
    /// failed over a file, which is not charged then.
    pub(crate) fn of_absent(self) -> Self {
        if self == Self::Nothing { Self::Produced } else { Self::Unseen }
    }
}

/// An attempt that was sent, or a turn that is being read.
pub(super) struct Underway {
    pub(super) prices: Prices,
    /// Whether the caller pays the provider directly. Until that is decided, whether it might.
    pub(super) is_byok: bool,
    tokens: AttemptTokens,
    /// How many tokens a reported count may have beside the estimate.
    believed_beside: u64,
    output_bytes: u64,
    images: u32,
    call_prices: CallPrices,
    /// The price of calls of the provider's own tools so far.
    calls: Amount,
    /// The part of `calls` that is included in a recorded cost already.
    noted_calls: Amount,
    began: Instant,
    health: Arc<Health>,
    /// Says whether the endpoint may have seen the request.
    presence: Arc<ClientPresence>,
    /// The usage that the provider has reported so far.
    reported: Option<Usage>,
    /// Whether `reported` is included in a recorded cost already.
    is_recorded: bool,
    /// Whether the answer is complete.
    is_complete: bool,
}

impl Underway {
    /// `hosted` are the types of the provider's own tools that the request offers.
    pub(super) fn of(
        endpoint: &Endpoint,
        is_byok: bool,
        tokens: AttemptTokens,
        presence: &Arc<ClientPresence>,
        hosted: &[String],
    ) -> Self {
        Self {
            prices: endpoint.prices,
            is_byok,
            tokens,
            believed_beside: if hosted.is_empty() { BELIEVED_BESIDE } else { BELIEVED_BESIDE_HOSTED },
            output_bytes: 0,
            images: 0,
            call_prices: endpoint.call_prices(hosted),
            calls: Amount::default(),
            noted_calls: Amount::default(),
            began: Instant::now(),
            health: Arc::clone(&endpoint.health),
            presence: Arc::clone(presence),
            reported: None,
            is_recorded: false,
            is_complete: false,
        }
    }

    /// Begins anew: the endpoint has refused the request at no cost, and is not asked again yet.
    pub(super) fn asked_again(&mut self) {
        self.began = Instant::now();
        self.presence.sent().store(false, Ordering::Relaxed);
    }

    /// The usage that a provider reports, without what cannot be right. A count or a cost far above what the
    /// attempt can have used, and a negative cost, count as not reported. A part is at most its whole.
    pub(super) fn corrected(&self, reported: Usage) -> Usage {
        let believed = |count: u64, most: u64| {
            let limit = most.saturating_mul(BELIEVED_TIMES).saturating_add(self.believed_beside);
            if count <= limit { count } else { 0 }
        };
        let input_tokens = believed(reported.input_tokens, self.tokens.input_max);
        let output_tokens = believed(reported.output_tokens, self.tokens.output_max);
        let cached_tokens = reported.cached_tokens.min(input_tokens);
        let corrected = Usage {
            input_tokens,
            cached_tokens,
            cache_write_tokens: reported.cache_write_tokens.min(input_tokens - cached_tokens),
            output_tokens,
            reasoning_tokens: reported.reasoning_tokens.min(output_tokens),
            images: if reported.images <= BELIEVED_IMAGES { reported.images } else { 0 },
            cost_dollars: reported.cost_dollars.filter(|dollars| (0.0..=BELIEVED_DOLLARS).contains(dollars)),
            ..reported
        };
        if corrected != reported {
            self.log_corrected(&reported);
        }
        corrected
    }

    /// Logs, at most once a minute for each endpoint, that its provider reports a usage that cannot be
    /// right.
    fn log_corrected(&self, reported: &Usage) {
        let key = self.health.key();
        let subject = format!("{} {} {}", key.model, key.upstream, key.tier);
        if self.health.meters().provider.corrected.is_due(&subject, std::time::Instant::now()) {
            tracing::warn!(
                provider = %key.provider,
                model = %key.model,
                input_tokens = reported.input_tokens,
                cached_tokens = reported.cached_tokens,
                cache_write_tokens = reported.cache_write_tokens,
                output_tokens = reported.output_tokens,
                reasoning_tokens = reported.reasoning_tokens,
                images = reported.images,
                cost_dollars = reported.cost_dollars,
                "a provider reports usage that cannot be right"
            );
        }
    }

    /// Counts what arrived, and notes the usage that the provider reports with it.
    pub(super) fn seen(&mut self, events: &[Event]) {
        self.received(events);
        let told = events.iter().rev().find_map(|event| match event {
            Event::Usage(usage) => Some(*usage),
            _ => None,
        });
        if let Some(usage) = told {
            self.told(usage);
        }
    }

    /// Notes the usage that the provider reported. No cost is recorded for it yet.
    pub(super) fn told(&mut self, usage: Usage) {
        // Some providers report zeros where they do not count, so zeros are ignored.
        if usage != no_usage() {
            self.reported = Some(usage);
            self.is_recorded = false;
        }
    }

    /// The usage that the provider has reported and that no recorded cost includes.
    fn unrecorded(&self) -> Option<Usage> {
        self.reported.filter(|_| !self.is_recorded)
    }

    pub(super) fn received(&mut self, events: &[Event]) {
        let bytes = events.iter().map(text_bytes).fold(0, u64::saturating_add);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        let images = events.iter().filter(|event| is_picture(event)).count();
        self.images = self.images.saturating_add(u32::try_from(images).unwrap_or(u32::MAX));
        if !self.is_byok {
            self.calls = self.calls.plus(self.call_prices.of_events(events));
        }
    }

    /// What is charged for calls of the provider's own tools so far.
    pub(super) fn calls(&self) -> Amount {
        self.calls
    }

    /// The part of it that is included in a recorded cost already.
    pub(super) fn noted_calls(&self) -> Amount {
        self.noted_calls
    }

    /// Sets the usage that the provider reported. All calls so far are included in the cost that is
    /// recorded with it.
    pub(super) fn recorded(&mut self, usage: Usage) {
        self.reported = Some(usage);
        self.is_recorded = true;
        self.noted_calls = self.calls;
    }

    /// Counts all events of a complete answer. `is_byok`: the caller's own credential was used.
    pub(super) fn is_whole(&mut self, events: &[Event], is_byok: bool) {
        self.is_byok = is_byok;
        self.is_complete = true;
        self.read_again();
        self.seen(events);
    }

    /// Resets the counts: the same events are about to be counted again.
    pub(super) fn read_again(&mut self) {
        (self.output_bytes, self.images) = (0, 0);
        (self.calls, self.noted_calls) = (Amount::default(), Amount::default());
    }

    /// What is charged beyond what is recorded, and whether a part of it is estimated. `left_pico` is as
    /// for [`Self::unreported`].
    pub(super) fn rest(&self, unreported: Unreported, left_pico: Option<u64>) -> (Used, bool) {
        let usage = self.unreported(unreported, left_pico);
        let is_estimated = usage != self.unrecorded().unwrap_or_else(no_usage);
        (Used { usage, cost: self.cost(&usage) }, is_estimated)
    }

    /// What was used beyond what is recorded. `left_pico` is what is left of the turn's reservation,
    /// where there is a limit.
    pub(super) fn unreported(&self, unreported: Unreported, left_pico: Option<u64>) -> Usage {
        match unreported {
            Unreported::Nothing => self.unrecorded().unwrap_or_else(no_usage),
            Unreported::Arrived => self.missing(),
            _ if self.is_complete => self.missing(),
            Unreported::Produced => self.missing_by_now(left_pico),
            Unreported::Unseen => {
                let missing = self.missing_by_now(left_pico);
                let is_input_told = self.reported.is_some_and(|usage| usage.input_tokens > 0);
                if missing == no_usage() || is_input_told {
                    return missing;
                }
                let fetched =
                    self.tokens.fetched.min(self.affordable(self.prices.input, &missing, left_pico));
                sum(&missing, &Usage { input_tokens: fetched, ..no_usage() })
            }
        }
    }

    /// Estimates what was used beyond what is recorded, also by the elapsed time.
    fn missing_by_now(&self, left_pico: Option<u64>) -> Usage {
        if !self.presence.is_sent() && self.output_bytes == 0 && self.reported.is_none() {
            // The endpoint was not reached yet.
            return no_usage();
        }
        let missing = self.missing();
        let time = if self.presence.is_sent() { self.began.elapsed() } else { Duration::ZERO };
        let made = made(time, self.health.tokens_per_second()).min(self.tokens.output_max);
        let unseen = made.saturating_sub(self.used().output_tokens);
        let unseen = unseen.min(self.affordable(self.prices.output, &missing, left_pico));
        sum(&missing, &Usage { output_tokens: unseen, ..no_usage() })
    }

    /// How many tokens at `price` may be charged in addition to `missing`.
    fn affordable(&self, price: Amount, missing: &Usage, left_pico: Option<u64>) -> u64 {
        let Some(left) = left_pico.filter(|_| !self.is_byok && price.0 > 0) else {
            return u64::MAX;
        };
        left.saturating_sub(self.cost(missing).paid.here.0) / price.0
    }

    /// Estimates what was used beyond what is recorded, by what has arrived.
    fn missing(&self) -> Usage {
        let used = self.used();
        let Some(recorded) = self.reported.filter(|_| self.is_recorded) else { return used };
        Usage {
            input_tokens: used.input_tokens.saturating_sub(recorded.input_tokens),
            output_tokens: used.output_tokens.saturating_sub(recorded.output_tokens),
            images: used.images.saturating_sub(recorded.images),
            ..no_usage()
        }
    }

    /// What was used until now: the reported usage, and at least what has arrived.
    fn used(&self) -> Usage {
        let reported = self.completed(self.reported);
        Usage {
            output_tokens: reported.output_tokens.max(self.output_tokens()),
            images: reported.images.max(self.images),
            ..reported
        }
    }

    /// What the answer used if it is complete: the reported figures, and an estimate for each that
    /// is zero, because some providers report zeros where they do not count.
    pub(super) fn completed(&self, reported: Option<Usage>) -> Usage {
        let reported = reported.unwrap_or_else(no_usage);
        let or = |figure: u64, estimate: u64| if figure > 0 { figure } else { estimate };
        Usage {
            input_tokens: or(reported.input_tokens, self.tokens.input),
            output_tokens: or(reported.output_tokens, self.output_tokens()),
            images: if reported.images > 0 { reported.images } else { self.images },
            ..reported
        }
    }

    /// The tokens of the output that has arrived, by its length.
    fn output_tokens(&self) -> u64 {
        self.output_bytes.div_ceil(BYTES_PER_TOKEN)
    }

    /// What a complete answer that is not used has cost, and whether a part of it is estimated.
    pub(super) fn whole(&self) -> (Used, bool) {
        let usage = self.completed(self.reported);
        (Used { usage, cost: self.cost(&usage) }, self.reported != Some(usage))
    }

    pub(super) fn cost(&self, usage: &Usage) -> Cost {
        let calls = if self.is_byok { Amount::default() } else { self.calls.minus(self.noted_calls) };
        Cost::of(usage, &self.prices, self.is_byok).with_calls(calls)
    }
}

/// The tokens produced in `time` at this speed.
fn made(time: Duration, tokens_per_second: f64) -> u64 {
    // The cast saturates.
    (time.as_secs_f64() * tokens_per_second) as u64
}

/// Whether the event is a finished picture. A whole item may report one too.
fn is_picture(event: &Event) -> bool {
    #[derive(Deserialize)]
    struct PictureItem<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        result: Cow<'a, str>,
    }
    match event {
        Event::ImageDone(_) => true,
        Event::OpaqueItem(json) => serde_json::from_slice::<PictureItem<'_>>(json)
            .is_ok_and(|item| item.kind == "image_generation_call" && !item.result.is_empty()),
        _ => false,
    }
}

fn text_bytes(event: &Event) -> u64 {
    let text = match event {
        Event::TextDelta(delta) => &delta.text,
        Event::RefusalDelta(text) | Event::ReasoningTextDelta(text) => text,
        Event::ReasoningSummaryDelta(delta) => &delta.text,
        Event::FunctionArgumentsDelta(delta) | Event::CustomInputDelta(delta) => &delta.text,
        _ => return 0,
    };
    text.len() as u64
}

#[cfg(test)]
mod tests;
