//! What an answer that breaks off has used, as far as anybody can tell.
//!
//! Most providers say what an answer consumed with its end. When the client leaves before, they have read the
//! input and written what has arrived, and they charge for it.

use crate::catalog::{CallPrices, Endpoint};
use crate::cost::{Amount, Cost, Prices, no_usage};
use cofferdam_runtime::wire::{Event, Usage};

/// About so many bytes of text are one token.
const BYTES_PER_TOKEN: u64 = 4;

/// An attempt that was dispatched, or a turn that is being read.
pub(super) struct Underway {
    prices: Prices,
    /// Whether the caller pays the provider itself. Where that is not known yet, whether it might.
    pub(super) is_byok: bool,
    input_tokens: u64,
    output_bytes: u64,
    images: u32,
    call_prices: CallPrices,
    /// What calls of the provider's own tools cost so far.
    calls: Amount,
    /// As much of it as stands in a cost already.
    noted_calls: Amount,
    /// What the provider has said so far.
    reported: Option<Usage>,
}

impl Underway {
    /// `hosted` are the types of the provider's own tools that the request offers.
    pub(super) fn of(endpoint: &Endpoint, input_tokens: u64, hosted: &[String]) -> Self {
        let authentication = endpoint.provider.authentication.as_ref();
        Self {
            prices: endpoint.prices,
            is_byok: authentication.is_some_and(|it| it.byok.is_some()),
            input_tokens,
            output_bytes: 0,
            images: 0,
            call_prices: endpoint.call_prices(hosted),
            calls: Amount::default(),
            noted_calls: Amount::default(),
            reported: None,
        }
    }

    pub(super) fn received(&mut self, events: &[Event]) {
        let bytes = events.iter().map(text_bytes).fold(0, u64::saturating_add);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        let images = events.iter().filter(|event| matches!(event, Event::ImageDone(_))).count();
        self.images = self.images.saturating_add(u32::try_from(images).unwrap_or(u32::MAX));
        if !self.is_byok {
            self.calls = self.calls.plus(self.call_prices.of_events(events));
        }
    }

    /// What is charged for calls of the provider's own tools so far.
    pub(super) fn calls(&self) -> Amount {
        self.calls
    }

    /// As much of it as stands in a cost already.
    pub(super) fn noted_calls(&self) -> Amount {
        self.noted_calls
    }

    /// Notes what the provider has said, with a cost that counts all calls so far.
    pub(super) fn reported(&mut self, usage: Usage) {
        self.reported = Some(usage);
        self.noted_calls = self.calls;
    }

    /// What was used beyond what the provider has said.
    pub(super) fn missing(&self) -> Usage {
        let reported = self.reported.unwrap_or_else(no_usage);
        let input_tokens = if reported.input_tokens == 0 { self.input_tokens } else { 0 };
        let output_tokens = self.output_bytes.div_ceil(BYTES_PER_TOKEN);
        Usage {
            input_tokens,
            output_tokens: output_tokens.saturating_sub(reported.output_tokens),
            images: self.images.saturating_sub(reported.images),
            ..no_usage()
        }
    }

    pub(super) fn cost(&self, usage: &Usage) -> Cost {
        Cost::of(usage, &self.prices, self.is_byok).with_calls(self.calls.minus(self.noted_calls))
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
