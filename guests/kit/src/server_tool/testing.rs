//! Shared code of the tests of several tools.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::models::Models;
use crate::bindings::model::Answer;
use crate::bindings::types::{ErrorKind, Failure, Usage};

/// The model that answers a question that names no model.
pub const OUTER_MODEL: &str = "outer/model";
/// The message of every failure.
pub const FAILURE: &str = "Down.";

/// Models with scripted answers; they record the questions. Each answer cites `https://a.test`.
#[derive(Debug, Default)]
pub struct Script {
    answers: VecDeque<Result<&'static str, ErrorKind>>,
    /// Every question so far.
    pub asked: Vec<Value>,
    /// The number of questions in each call of `ask_all`.
    pub panels: Vec<usize>,
}

impl Script {
    /// Gives these answers in order. Further questions fail.
    #[must_use]
    pub fn new(answers: &[Result<&'static str, ErrorKind>]) -> Self {
        Self { answers: answers.iter().copied().collect(), ..Self::default() }
    }
}

impl Models for Script {
    fn ask(&mut self, request: &Value) -> Result<Answer, Failure> {
        self.asked.push(request.clone());
        let failure = |kind| Failure::new(kind, FAILURE);
        let text = self.answers.pop_front().unwrap_or(Err(ErrorKind::Unmapped)).map_err(failure)?;
        let citation = json!({ "type": "url_citation", "url": "https://a.test", "title": "A" });
        let part = json!({ "type": "output_text", "text": text, "annotations": [citation, {}] });
        Ok(Answer {
            model: request["model"].as_str().unwrap_or(OUTER_MODEL).to_owned(),
            text: text.to_owned(),
            output: json!([{ "type": "message", "content": [part] }]).to_string().into_bytes(),
            usage: Usage {
                input_tokens: 1,
                cached_tokens: 0,
                cache_write_tokens: 0,
                output_tokens: 1,
                reasoning_tokens: 0,
                images: 0,
                provider_tool_requests: 0,
                cost_dollars: None,
            },
            cost_pico: 5,
        })
    }

    fn ask_all(&mut self, requests: &[Value]) -> Vec<Result<Answer, Failure>> {
        self.panels.push(requests.len());
        requests.iter().map(|request| self.ask(request)).collect()
    }
}
