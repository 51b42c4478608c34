//! The panel: the answers of its models, and how they are rendered.

use cofferdam_guest_kit::bindings::model::Answer;
use cofferdam_guest_kit::bindings::tools::Output;
use cofferdam_guest_kit::bindings::types::ErrorKind;
use cofferdam_guest_kit::server_tool::{Models, clip, failed, text_of};
use serde_json::{Map, Value, json};

use crate::settings::Settings;

/// The longest text of one answer for the judge and the calling model, in characters.
const RENDERED_CHARS_MAX: usize = 60_000;
/// The largest number of sources of all answers together.
const SOURCES_MAX: usize = 100;

/// The answers of a panel.
#[derive(Debug)]
pub(crate) struct Panel {
    /// Model and answer, in the order of the panel.
    pub(crate) responses: Vec<(String, String)>,
    /// Model and reason.
    failed: Vec<(String, String)>,
    /// Pages that the answers cite.
    sources: Vec<Value>,
    reason: &'static str,
}

impl Panel {
    /// Asks all models of the panel at the same time.
    pub(crate) fn ask(prompt: &str, settings: &Settings, models: &mut impl Models) -> Self {
        let question =
            |model: &String| Value::Object(settings.manner.question(Some(model), Value::from(prompt)));
        let questions: Vec<Value> = settings.panel.iter().map(question).collect();
        let answers = models.ask_all(&questions);
        let kinds = answers.iter().filter_map(|answer| Some(answer.as_ref().err()?.kind));
        let mut panel = Self {
            reason: reason(&kinds.collect::<Vec<_>>()),
            responses: Vec::new(),
            failed: Vec::new(),
            sources: Vec::new(),
        };
        for (model, answer) in settings.panel.iter().zip(&answers) {
            match text_of(answer) {
                Ok(text) => {
                    panel.responses.push((model.clone(), text.to_owned()));
                    panel.cite(answer.as_ref().ok());
                }
                Err(error) => panel.failed.push((model.clone(), error)),
            }
        }
        panel
    }

    fn cite(&mut self, answer: Option<&Answer>) {
        let output: Vec<Value> =
            answer.map_or_else(Vec::new, |answer| serde_json::from_slice(&answer.output).unwrap_or_default());
        let parts = output.iter().filter_map(|item| item["content"].as_array()).flatten();
        let annotations = parts.filter_map(|part| part["annotations"].as_array()).flatten();
        for annotation in annotations.filter(|annotation| annotation["type"] == "url_citation") {
            let Some(url) = annotation["url"].as_str() else { continue };
            if self.sources.len() < SOURCES_MAX && self.sources.iter().all(|known| known["url"] != url) {
                self.sources
                    .push(json!({ "url": url, "title": annotation["title"].as_str().unwrap_or(url) }));
            }
        }
    }

    /// The members of the output item.
    pub(crate) fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        let responses: Vec<_> = self
            .responses
            .iter()
            .map(|(model, content)| json!({ "model": model, "content": content }))
            .collect();
        members.insert("responses".to_owned(), Value::from(responses));
        if !self.failed.is_empty() {
            members.insert("failed_models".to_owned(), self.failed_models());
        }
        if !self.sources.is_empty() {
            members.insert("sources".to_owned(), Value::from(self.sources.clone()));
        }
        members
    }

    /// The members for a model, with long answers cut so that they fit into its context.
    pub(crate) fn rendered(&self) -> Map<String, Value> {
        let mut rendered = Map::new();
        let response = |(model, content): &(String, String)| {
            let clipped = clip(content, RENDERED_CHARS_MAX);
            let cut = if clipped.cut { " [...]" } else { "" };
            json!({ "model": model, "content": format!("{}{cut}", clipped.text) })
        };
        rendered.insert("responses".to_owned(), self.responses.iter().map(response).collect());
        if !self.failed.is_empty() {
            rendered.insert("failed_models".to_owned(), self.failed_models());
        }
        rendered
    }

    fn failed_models(&self) -> Value {
        self.failed.iter().map(|(model, error)| json!({ "model": model, "error": error })).collect()
    }

    /// The output when no model of the panel answered.
    pub(crate) fn failed(&self) -> Output {
        const ERROR: &str = "No model of the panel answered.";
        let rendered = json!({
            "status": "error",
            "error": ERROR,
            "failure_reason": self.reason,
            "failed_models": self.failed_models(),
        });
        let mut members = Map::new();
        members.insert("failure_reason".to_owned(), Value::from(self.reason));
        members.insert("failed_models".to_owned(), self.failed_models());
        Output { for_model: rendered.to_string(), ..failed(members, ERROR) }
    }
}

/// The reason why no model answered; a specific one if all models failed in the same way.
fn reason(kinds: &[ErrorKind]) -> &'static str {
    let all = |wanted: ErrorKind| !kinds.is_empty() && kinds.iter().all(|kind| *kind == wanted);
    if all(ErrorKind::PaymentRequired) {
        "insufficient_credits"
    } else if all(ErrorKind::RateLimitExceeded) {
        "rate_limited"
    } else {
        "all_panels_failed"
    }
}
