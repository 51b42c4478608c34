//! The answers of servers. One type reads both a chunk of a stream and a whole answer. Every field
//! may be missing, null or of an unexpected type.

use cofferdam_dialect_openai::dollars;
use cofferdam_guest_kit::bindings::types::Usage;
use cofferdam_guest_kit::{Count, JsonText, List, MaybeText, TextOrList, if_readable};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A chunk of a stream, or a whole answer.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Chunk<'a> {
    pub(crate) object: MaybeText<'a>,
    pub(crate) choices: List<Choice<'a>>,
    #[serde(deserialize_with = "if_readable")]
    pub(crate) usage: Option<UsageBody<'a>>,
    pub(crate) service_tier: MaybeText<'a>,
    pub(crate) error: Option<&'a RawValue>,
    /// Groq reports the usage of a stream here.
    #[serde(deserialize_with = "if_readable")]
    pub(crate) x_groq: Option<Groq<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Groq<'a> {
    #[serde(deserialize_with = "if_readable")]
    pub(crate) usage: Option<UsageBody<'a>>,
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Choice<'a> {
    pub(crate) delta: Option<Delta<'a>>,
    pub(crate) message: Option<Delta<'a>>,
    pub(crate) finish_reason: MaybeText<'a>,
    pub(crate) logprobs: Option<&'a RawValue>,
    /// Moonshot reports the usage of a stream here.
    #[serde(deserialize_with = "if_readable")]
    pub(crate) usage: Option<UsageBody<'a>>,
}

/// A piece of the message, or the whole message.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Delta<'a> {
    pub(crate) content: TextOrList<'a, ContentPart<'a>>,
    pub(crate) refusal: MaybeText<'a>,
    /// The name that DeepSeek, vLLM and llama.cpp use for reasoning.
    pub(crate) reasoning_content: MaybeText<'a>,
    /// The name that OpenRouter, Ollama and Groq use for reasoning. Some servers send both.
    pub(crate) reasoning: MaybeText<'a>,
    pub(crate) tool_calls: List<CallPart<'a>>,
    /// The older form of `tool_calls`, with one call.
    pub(crate) function_call: Option<Named<'a>>,
    pub(crate) annotations: List<&'a RawValue>,
    pub(crate) images: List<ContentPart<'a>>,
}

/// A part of Mistral's content, or an image.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ContentPart<'a> {
    pub(crate) text: MaybeText<'a>,
    pub(crate) thinking: TextOrList<'a, ThinkingPart<'a>>,
    pub(crate) image_url: Option<ImageUrl<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ThinkingPart<'a> {
    pub(crate) text: MaybeText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ImageUrl<'a> {
    pub(crate) url: MaybeText<'a>,
}

/// A piece of a call, or a whole call.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct CallPart<'a> {
    pub(crate) index: Count,
    pub(crate) id: MaybeText<'a>,
    pub(crate) function: Option<Named<'a>>,
    pub(crate) custom: Option<Named<'a>>,
    /// Google's signature of the call.
    pub(crate) extra_content: Option<&'a RawValue>,
}

impl<'a> CallPart<'a> {
    /// The signature, if this piece begins its call.
    pub(crate) fn signature(&self) -> Option<&'a RawValue> {
        let named = self.function.as_ref().or(self.custom.as_ref());
        self.extra_content.filter(|_| named.is_some_and(|named| !named.name.as_str().is_empty()))
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Named<'a> {
    pub(crate) name: MaybeText<'a>,
    pub(crate) arguments: JsonText<'a>,
    pub(crate) input: MaybeText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct Logprobs<'a> {
    pub(crate) content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct UsageBody<'a> {
    prompt_tokens: Count,
    completion_tokens: Count,
    total_tokens: Count,
    #[serde(deserialize_with = "if_readable")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(deserialize_with = "if_readable")]
    completion_tokens_details: Option<CompletionDetails>,
    /// DeepSeek's name for cached tokens.
    prompt_cache_hit_tokens: Count,
    /// Perplexity's number of searches.
    num_search_queries: Count,
    /// OpenRouter's number of searches.
    #[serde(deserialize_with = "if_readable")]
    server_tool_use: Option<ServerTools>,
    cost: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServerTools {
    web_search_requests: Count,
}

impl UsageBody<'_> {
    /// The totals, without the number of images.
    pub(crate) fn total(&self) -> Usage {
        let prompt = self.prompt_tokens_details.as_ref();
        let input = self.prompt_tokens.0.unwrap_or_default();
        let completion = self.completion_tokens.0.unwrap_or_default();
        let reasoning =
            self.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens.0);
        let reasoning = reasoning.unwrap_or_default();
        // xAI does not include reasoning in the completion tokens. The total shows it, or, without one, more
        // reasoning than completion.
        let with_reasoning = completion.saturating_add(reasoning);
        let beside = match self.total_tokens.0 {
            Some(total) => total == input.saturating_add(with_reasoning),
            None => reasoning > completion,
        };
        let cached = prompt.and_then(|details| details.cached_tokens.0).or(self.prompt_cache_hit_tokens.0);
        let searches = self.server_tool_use.as_ref().and_then(|tools| tools.web_search_requests.0);
        let searches = searches.or(self.num_search_queries.0).unwrap_or_default();
        Usage {
            input_tokens: input,
            cached_tokens: cached.unwrap_or_default(),
            cache_write_tokens: prompt.and_then(|details| details.cache_write_tokens.0).unwrap_or_default(),
            output_tokens: if beside { with_reasoning } else { completion },
            reasoning_tokens: reasoning,
            images: 0,
            provider_tool_requests: u32::try_from(searches).unwrap_or(u32::MAX),
            cost_dollars: dollars(self.cost),
        }
    }
}
