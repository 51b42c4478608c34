//! A model as the catalog describes it.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

/// The longest description that the model gets, in characters.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// One entry of `GET /v1/models`. Missing fields are empty.
#[derive(Debug, Deserialize)]
pub(crate) struct Model {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) kind: Option<String>,
    context_length: Option<u64>,
    #[serde(default)]
    pub(crate) endpoints: Vec<Endpoint>,
}

/// One endpoint of the model.
#[derive(Debug, Deserialize)]
pub(crate) struct Endpoint {
    #[serde(default)]
    pub(crate) provider: String,
    context_length: Option<u64>,
    #[serde(default)]
    pub(crate) supports: Vec<String>,
    #[serde(default)]
    pub(crate) pricing: Pricing,
}

/// Dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct Pricing {
    #[serde(default)]
    pub(crate) input: f64,
    #[serde(default)]
    pub(crate) output: f64,
}

/// Reads the catalog. Entries that do not have the form of a model are left out.
pub(crate) fn read(json: &[u8]) -> Vec<Model> {
    let entries: Vec<Value> = serde_json::from_slice(json).unwrap_or_default();
    entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect()
}

impl Model {
    /// The longest context of any endpoint, in tokens.
    pub(crate) fn context_length(&self) -> Option<u64> {
        let endpoints = self.endpoints.iter().filter_map(|endpoint| endpoint.context_length);
        self.context_length.into_iter().chain(endpoints).max()
    }

    /// The price of the cheapest endpoint, by the sum of input and output.
    pub(crate) fn cheapest(&self) -> Option<Pricing> {
        let prices = self.endpoints.iter().map(|endpoint| endpoint.pricing);
        prices.min_by(|one, other| one.sum().total_cmp(&other.sum()))
    }

    /// The text that is searched in addition to id, name and description, in lower case.
    pub(crate) fn words(&self) -> String {
        let mut text = self.kind.clone().unwrap_or_default();
        for endpoint in &self.endpoints {
            text.push(' ');
            text.push_str(&endpoint.provider);
            for ability in &endpoint.supports {
                text.push(' ');
                text.push_str(ability);
            }
        }
        text.to_lowercase()
    }

    /// The description that the calling model gets.
    pub(crate) fn rendered(&self) -> Value {
        let supports: BTreeSet<_> = self.endpoints.iter().flat_map(|endpoint| &endpoint.supports).collect();
        let providers: BTreeSet<_> = self.endpoints.iter().map(|endpoint| &endpoint.provider).collect();
        let description = self
            .description
            .as_deref()
            .map(|text| cofferdam_guest_kit::server_tool::clip(text, DESCRIPTION_CHARS_MAX).text);
        let price = self.cheapest();
        let mut rendered = json!({
            "id": self.id,
            "name": self.name,
            "description": description,
            "kind": self.kind,
            "context_length": self.context_length(),
            "supports": supports,
            "providers": providers,
            "input_price": price.map(|price| price.input),
            "output_price": price.map(|price| price.output),
        });
        if let Value::Object(fields) = &mut rendered {
            fields.retain(|_, value| !value.is_null());
        }
        rendered
    }
}

impl Pricing {
    fn sum(&self) -> f64 {
        self.input + self.output
    }
}
