//! What an answer that breaks off has used, as far as anybody can tell.
//!
//! Most providers say what an answer consumed with its end. When the client leaves before, they have read the
//! input and written what has arrived, and they charge for it.

use crate::catalog::Endpoint;
use crate::cost::{Cost, Prices, no_usage};
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
    /// What the provider has said so far.
    pub(super) reported: Option<Usage>,
}

impl Underway {
    pub(super) fn of(endpoint: &Endpoint, input_tokens: u64) -> Self {
        let authentication = endpoint.provider.authentication.as_ref();
        Self {
            prices: endpoint.prices,
            is_byok: authentication.is_some_and(|it| it.byok.is_some()),
            input_tokens,
            output_bytes: 0,
            images: 0,
            reported: None,
        }
    }

    pub(super) fn received(&mut self, events: &[Event]) {
        let bytes = events.iter().map(text_bytes).fold(0, u64::saturating_add);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        let images = events.iter().filter(|event| matches!(event, Event::ImageDone(_))).count();
        self.images = self.images.saturating_add(u32::try_from(images).unwrap_or(u32::MAX));
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
        Cost::of(usage, &self.prices, self.is_byok)
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
