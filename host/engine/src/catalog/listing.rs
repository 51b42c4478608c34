//! The catalog as the JSON of `GET /v1/models`: the members of OpenAI's API, those that
//! OpenRouter's SDKs and tools made for OpenRouter require, and all endpoints with their own
//! figures.

use super::{Catalog, Endpoint, Model, ModelKind};
use crate::cost::Amount;
use serde_json::{Value, json};

/// Kinds of input besides text: the word of OpenRouter's API, and the ability that an endpoint
/// declares.
const MODALITIES: [(&str, &str); 4] =
    [("image", "images"), ("file", "files"), ("audio", "audio"), ("video", "video")];

impl Catalog {
    /// The body of `GET /v1/models`.
    pub fn list_json(&self) -> Value {
        let data: Vec<Value> = self.models.iter().map(|model| self.model_json(model)).collect();
        json!({ "object": "list", "total_count": data.len(), "links": { "next": null }, "data": data })
    }

    /// The models as server tools receive them.
    pub fn models_json(&self) -> Value {
        self.models.iter().map(|model| self.own_json(model)).collect()
    }

    /// One entry of the list, which is also the body of `GET /v1/models/{id}`. Figures and
    /// abilities are those of the first endpoint, which is the preferred one.
    pub fn model_json(&self, model: &Model) -> Value {
        let mut entry = self.own_json(model);
        let (Some(members), Some(first)) = (entry.as_object_mut(), model.endpoints.first()) else {
            return entry;
        };
        let (inputs, outputs) = (first.inputs(), first.outputs(model.kind));
        let more = [
            ("canonical_slug", json!(model.id)),
            ("name", json!(model.id)),
            (
                "architecture",
                json!({
                    "modality": format!("{}->{}", inputs.join("+"), outputs.join("+")),
                    "input_modalities": inputs,
                    "output_modalities": outputs,
                }),
            ),
            ("pricing", first.pricing()),
            (
                "top_provider",
                json!({
                    "context_length": known(first.candidate.context_length),
                    "max_completion_tokens": known(first.candidate.max_output),
                    "is_moderated": false,
                }),
            ),
            ("supported_parameters", first.parameters()),
            ("supported_voices", Value::Null),
            ("default_parameters", Value::Null),
            ("per_request_limits", Value::Null),
            ("links", json!({ "details": format!("/v1/models/{}", model.id) })),
        ];
        members.extend(more.map(|(name, value)| (name.to_owned(), value)));
        entry
    }

    fn own_json(&self, model: &Model) -> Value {
        let vendor = model.id.split_once('/').map_or("", |(vendor, _)| vendor);
        let endpoints: Vec<Value> = model.endpoints.iter().map(|endpoint| endpoint.json()).collect();
        json!({
            "id": model.id,
            "object": "model",
            "created": self.created,
            "owned_by": vendor,
            "kind": model.kind.as_str(),
            "context_length": model.context_length,
            "endpoints": endpoints,
        })
    }
}

impl Endpoint {
    fn json(&self) -> Value {
        let candidate = &self.candidate;
        json!({
            "provider": self.provider.name,
            "tier": candidate.tier,
            "context_length": known(candidate.context_length),
            "max_output": known(candidate.max_output),
            "supports": candidate.supports,
            "quantization": candidate.quantization,
            "pricing": {
                "input": candidate.price.input,
                "output": candidate.price.output,
                "cached_input": candidate.price.cached_input,
                "cache_write": candidate.price.cache_write,
                "reasoning": candidate.price.reasoning,
                "image": candidate.price.image,
            },
        })
    }

    fn states(&self, ability: &str) -> bool {
        self.candidate.supports.iter().any(|stated| stated == ability)
    }

    fn inputs(&self) -> Vec<&'static str> {
        let others = MODALITIES.iter().filter(|(_, ability)| self.states(ability)).map(|(word, _)| *word);
        std::iter::once("text").chain(others).collect()
    }

    fn outputs(&self, kind: ModelKind) -> Vec<&'static str> {
        match kind {
            ModelKind::Embeddings => vec!["embeddings"],
            ModelKind::Responses if self.states("image_output") => vec!["text", "image"],
            ModelKind::Responses => vec!["text"],
        }
    }

    /// Dollars per token as strings, the form that OpenRouter's clients calculate with.
    fn pricing(&self) -> Value {
        let prices = &self.prices;
        json!({
            "prompt": dollars(prices.input),
            "completion": dollars(prices.output),
            "input_cache_read": dollars(prices.cached_input),
            "input_cache_write": dollars(prices.cache_write),
            "internal_reasoning": dollars(prices.reasoning),
            "image": dollars(prices.image),
        })
    }

    /// The declared abilities in the words of OpenRouter's API; empty where none are declared.
    fn parameters(&self) -> Value {
        let kinds_of_input = |ability: &&String| MODALITIES.iter().all(|(_, kind)| *kind != ability.as_str());
        let stated = self.candidate.supports.iter().filter(kinds_of_input);
        stated
            .map(|ability| if ability == "structured_output" { "structured_outputs" } else { ability })
            .collect()
    }
}

/// The figures for routers use 0 for unknown, while the list uses null.
fn known(tokens: u32) -> Option<u32> {
    (tokens > 0).then_some(tokens)
}

fn dollars(amount: Amount) -> String {
    let mut text = Vec::new();
    amount.write(&mut text);
    String::from_utf8(text).unwrap_or_default()
}
