//! The answers of the upstream server, as far as this dialect reads them. Every field may be
//! missing, null or of an unexpected type, because imitations of the API differ.

use cofferdam_dialect_openai::{Count, List, MaybeText, dollars};
use std::mem::take;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bindings::cofferdam::plugin::types::Usage;

/// The union of the fields of all stream events. One pass reads any of them; large objects stay
/// unparsed until an event needs them.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct StreamEvent<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: MaybeText<'a>,
    pub(crate) output_index: Count,
    #[serde(borrow)]
    pub(crate) item_id: MaybeText<'a>,
    pub(crate) content_index: Count,
    pub(crate) summary_index: Count,
    #[serde(borrow)]
    pub(crate) delta: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) text: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) refusal: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) arguments: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) input: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) annotation: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) part: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) partial_image_b64: MaybeText<'a>,
    pub(crate) partial_image_index: Count,
    #[serde(borrow)]
    pub(crate) output_format: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

/// The fields that every output item has when it starts.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ItemHead<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) id: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) phase: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) call_id: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) name: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) namespace: MaybeText<'a>,
}

/// A whole item with the fields that are translated, including those of [`ItemHead`].
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct WholeItem<'a> {
    #[serde(rename = "type", borrow)]
    kind: MaybeText<'a>,
    #[serde(borrow)]
    id: MaybeText<'a>,
    #[serde(borrow)]
    phase: MaybeText<'a>,
    #[serde(borrow)]
    call_id: MaybeText<'a>,
    #[serde(borrow)]
    name: MaybeText<'a>,
    #[serde(borrow)]
    namespace: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) content: List<PartBody<'a>>,
    #[serde(borrow)]
    pub(crate) summary: List<PartBody<'a>>,
    #[serde(borrow)]
    pub(crate) encrypted_content: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) arguments: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) input: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) result: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) output_format: MaybeText<'a>,
}

impl<'a> WholeItem<'a> {
    /// Moves the fields of the item's start out of it.
    pub(crate) fn take_head(&mut self) -> ItemHead<'a> {
        ItemHead {
            kind: take(&mut self.kind),
            id: take(&mut self.id),
            phase: take(&mut self.phase),
            call_id: take(&mut self.call_id),
            name: take(&mut self.name),
            namespace: take(&mut self.namespace),
        }
    }
}

/// A part of a message or of reasoning.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PartBody<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) text: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) refusal: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) annotations: List<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) logprobs: Option<&'a RawValue>,
}

/// The response object: the whole body, or the content of a terminal event.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Response<'a> {
    #[serde(borrow)]
    pub(crate) object: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) status: MaybeText<'a>,
    #[serde(borrow)]
    pub(crate) output: Option<List<&'a RawValue>>,
    #[serde(borrow)]
    pub(crate) usage: Option<UsageBody<'a>>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) incomplete_details: Option<Incomplete<'a>>,
    #[serde(borrow)]
    pub(crate) service_tier: MaybeText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Incomplete<'a> {
    #[serde(borrow)]
    pub(crate) reason: MaybeText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct UsageBody<'a> {
    input_tokens: Count,
    input_tokens_details: Option<InputDetails>,
    output_tokens: Count,
    output_tokens_details: Option<OutputDetails>,
    #[serde(borrow)]
    cost: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Count,
}

impl UsageBody<'_> {
    /// The totals of an answer with this number of images and searches.
    pub(crate) fn total(&self, images: u32, searches: u32) -> Usage {
        let input = self.input_tokens_details.as_ref();
        let output = self.output_tokens_details.as_ref();
        Usage {
            input_tokens: self.input_tokens.0.unwrap_or_default(),
            cached_tokens: input.and_then(|details| details.cached_tokens.0).unwrap_or_default(),
            cache_write_tokens: input.and_then(|details| details.cache_write_tokens.0).unwrap_or_default(),
            output_tokens: self.output_tokens.0.unwrap_or_default(),
            reasoning_tokens: output.and_then(|details| details.reasoning_tokens.0).unwrap_or_default(),
            images,
            provider_tool_requests: searches,
            cost_dollars: dollars(self.cost),
        }
    }
}
