//! The answers of the upstream server, as far as this dialect reads them. Every field may be
//! missing, null or of an unexpected type, because imitations of the API differ.

use cofferdam_dialect_openai::dollars;
use cofferdam_guest_kit::bindings::types::Usage;
use cofferdam_guest_kit::{Count, List, MaybeText, if_readable};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::mem::take;

/// The union of the fields of all stream events. One pass reads any of them; large objects stay
/// unparsed until an event needs them.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct StreamEvent<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: MaybeText<'a>,
    pub(crate) output_index: Count,
    pub(crate) item_id: MaybeText<'a>,
    pub(crate) content_index: Count,
    pub(crate) summary_index: Count,
    pub(crate) delta: MaybeText<'a>,
    pub(crate) text: MaybeText<'a>,
    pub(crate) refusal: MaybeText<'a>,
    pub(crate) arguments: MaybeText<'a>,
    pub(crate) input: MaybeText<'a>,
    pub(crate) logprobs: Option<&'a RawValue>,
    pub(crate) annotation: Option<&'a RawValue>,
    pub(crate) part: Option<&'a RawValue>,
    pub(crate) item: Option<&'a RawValue>,
    pub(crate) response: Option<&'a RawValue>,
    pub(crate) partial_image_b64: MaybeText<'a>,
    pub(crate) partial_image_index: Count,
    pub(crate) output_format: MaybeText<'a>,
    pub(crate) error: Option<&'a RawValue>,
}

/// The fields that every output item has when it starts.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ItemHead<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: MaybeText<'a>,
    pub(crate) id: MaybeText<'a>,
    pub(crate) phase: MaybeText<'a>,
    pub(crate) call_id: MaybeText<'a>,
    pub(crate) name: MaybeText<'a>,
    pub(crate) namespace: MaybeText<'a>,
}

/// A whole item with the fields that are translated, including those of [`ItemHead`].
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct WholeItem<'a> {
    #[serde(rename = "type")]
    kind: MaybeText<'a>,
    id: MaybeText<'a>,
    phase: MaybeText<'a>,
    call_id: MaybeText<'a>,
    name: MaybeText<'a>,
    namespace: MaybeText<'a>,
    pub(crate) content: List<PartBody<'a>>,
    pub(crate) summary: List<PartBody<'a>>,
    pub(crate) encrypted_content: MaybeText<'a>,
    pub(crate) arguments: MaybeText<'a>,
    pub(crate) input: MaybeText<'a>,
    pub(crate) status: MaybeText<'a>,
    pub(crate) result: MaybeText<'a>,
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
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct PartBody<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: MaybeText<'a>,
    pub(crate) text: MaybeText<'a>,
    pub(crate) refusal: MaybeText<'a>,
    pub(crate) annotations: List<&'a RawValue>,
    pub(crate) logprobs: Option<&'a RawValue>,
}

/// The response object: the whole body, or the content of a terminal event.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Response<'a> {
    pub(crate) object: MaybeText<'a>,
    pub(crate) status: MaybeText<'a>,
    pub(crate) output: Option<List<&'a RawValue>>,
    #[serde(deserialize_with = "if_readable")]
    pub(crate) usage: Option<UsageBody<'a>>,
    pub(crate) error: Option<&'a RawValue>,
    #[serde(deserialize_with = "if_readable")]
    pub(crate) incomplete_details: Option<Incomplete<'a>>,
    pub(crate) service_tier: MaybeText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Incomplete<'a> {
    pub(crate) reason: MaybeText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct UsageBody<'a> {
    input_tokens: Count,
    #[serde(deserialize_with = "if_readable")]
    input_tokens_details: Option<InputDetails>,
    output_tokens: Count,
    #[serde(deserialize_with = "if_readable")]
    output_tokens_details: Option<OutputDetails>,
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
