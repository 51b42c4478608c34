//! The search: its arguments, and the order of its results.

use std::cmp::Reverse;

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::{Fields, clip, grade, lower_words};

use crate::model::Model;

/// The longest query in characters, and its largest number of words. The rest is ignored.
const QUERY_CHARS_MAX: usize = 1_000;
const WORDS_MAX: usize = 32;
/// The largest number of abilities in one search.
const SUPPORTS_MAX: usize = 16;

/// The order of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Relevance,
    Price,
    ContextLength,
}

/// Validated arguments of a call.
#[derive(Debug)]
pub(crate) struct Search {
    /// The query as the model wrote it, cut to the limit.
    pub(crate) query: String,
    words: Vec<String>,
    supports: Vec<String>,
    min_context_length: u64,
    max_input_price: Option<f64>,
    max_output_price: Option<f64>,
    sort: Sort,
}

impl Search {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// When a field is wrong; the message names it for the model.
    pub(crate) fn read(arguments: &Fields) -> Result<Self, ToolError> {
        let query = clip(arguments.text("query")?.unwrap_or_default().trim(), QUERY_CHARS_MAX).text;
        let supports = arguments.texts("supports", SUPPORTS_MAX)?.unwrap_or_default();
        let sort = match arguments.text("sort")? {
            None | Some("" | "relevance") => Sort::Relevance,
            Some("price") => Sort::Price,
            Some("context_length") => Sort::ContextLength,
            Some(_) => return Err(arguments.wrong("sort", "takes relevance, price or context_length")),
        };
        Ok(Self {
            query: query.to_owned(),
            words: lower_words(query, WORDS_MAX),
            supports: supports.into_iter().map(str::to_lowercase).collect(),
            min_context_length: arguments.integer("min_context_length", 0..=u32::MAX)?.unwrap_or(0).into(),
            max_input_price: arguments.number("max_input_price", 0.0..=f64::MAX)?,
            max_output_price: arguments.number("max_output_price", 0.0..=f64::MAX)?,
            sort,
        })
    }

    /// The matching models, best first. Equal models keep the order of the catalog.
    pub(crate) fn run<'a>(&self, models: &'a [Model]) -> Vec<&'a Model> {
        let mut found: Vec<_> = models
            .iter()
            .filter(|model| self.fits(model))
            .map(|model| (self.score(model), model))
            .filter(|(score, _)| *score > 0 || self.words.is_empty())
            .collect();
        match self.sort {
            Sort::Relevance => found.sort_by_key(|(score, _)| Reverse(*score)),
            Sort::Price => found.sort_by(|(_, one), (_, other)| price(one).total_cmp(&price(other))),
            Sort::ContextLength => found.sort_by_key(|(_, model)| Reverse(model.context_length())),
        }
        found.into_iter().map(|(_, model)| model).collect()
    }

    fn fits(&self, model: &Model) -> bool {
        let within = |most: Option<f64>, price: f64| most.is_none_or(|most| price <= most);
        let limited = self.max_input_price.is_some() || self.max_output_price.is_some();
        let serves = model.endpoints.iter().any(|endpoint| {
            let able =
                |wanted: &String| endpoint.supports.iter().any(|ability| ability.to_lowercase() == *wanted);
            within(self.max_input_price, endpoint.pricing.input)
                && within(self.max_output_price, endpoint.pricing.output)
                && self.supports.iter().all(able)
        });
        (serves || (!limited && self.supports.is_empty()))
            && model.context_length().unwrap_or(0) >= self.min_context_length
    }

    fn score(&self, model: &Model) -> u32 {
        let id = model.id.to_lowercase();
        let name = model.name.as_deref().unwrap_or_default().to_lowercase();
        let description = model.description.as_deref().unwrap_or_default().to_lowercase();
        let rest = model.words();
        let mut score = u32::from(id == self.query.to_lowercase()) * 100;
        let mut found = 0;
        for word in &self.words {
            let named = grade(&id, word).max(grade(&name, word)) * 8;
            let here = named + grade(&rest, word) * 4 + grade(&description, word) * 2;
            found += usize::from(here > 0);
            score += here;
        }
        if found == self.words.len() { score + 40 } else { score }
    }
}

fn price(model: &Model) -> f64 {
    model.cheapest().map_or(f64::INFINITY, |price| price.input + price.output)
}
