//! Token counts of an answer. Anthropic does not include cached input in `input_tokens`; the
//! contract does.

use cofferdam_guest_kit::Count;
use cofferdam_guest_kit::bindings::types;

use crate::wire;

/// The latest value of each count.
#[derive(Debug, Default)]
pub struct Counts {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
    searches: u32,
    service_tier: Option<&'static str>,
}

impl Counts {
    /// Takes over the values in `report` and keeps the others.
    pub fn update(&mut self, report: &wire::Usage<'_>) {
        let set = |count: &mut u64, value: Count| *count = value.0.unwrap_or(*count);
        set(&mut self.input, report.input_tokens);
        set(&mut self.cache_read, report.cache_read_input_tokens);
        set(&mut self.cache_write, report.cache_creation_input_tokens);
        set(&mut self.output, report.output_tokens);
        if let Some(details) = &report.output_tokens_details {
            set(&mut self.reasoning, Count(details.thinking_tokens.0.or(details.reasoning_tokens.0)));
        }
        if let Some(requests) = &report.server_tool_use {
            let number = |count: Count| u32::try_from(count.0.unwrap_or(0)).unwrap_or(u32::MAX);
            let (searches, fetches) = (requests.web_search_requests, requests.web_fetch_requests);
            self.searches = number(searches).saturating_add(number(fetches));
        }
        if let Some(tier) = service_tier(report.service_tier.as_str()) {
            self.service_tier = Some(tier);
        }
        if report.speed.as_str() == "fast" {
            self.service_tier = Some("ultrafast");
        }
    }

    /// The counts in the form of the contract.
    pub fn total(&self) -> types::Usage {
        types::Usage {
            input_tokens: self.input.saturating_add(self.cache_read).saturating_add(self.cache_write),
            cached_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            output_tokens: self.output,
            reasoning_tokens: self.reasoning.min(self.output),
            images: 0,
            provider_tool_requests: self.searches,
            cost_dollars: None,
        }
    }

    /// The tier that served the request, in the words of the API.
    pub fn service_tier(&self) -> Option<String> {
        self.service_tier.map(str::to_owned)
    }
}

fn service_tier(tier: &str) -> Option<&'static str> {
    match tier {
        "standard" => Some("default"),
        "priority" => Some("priority"),
        "batch" => Some("flex"),
        _ => None,
    }
}
