//! Converts a finished response into the answer that the asking plugin gets.

use super::CostAccount;
use crate::cost::no_usage;
use crate::refusal::INTERNAL;
use cofferdam_runtime::wire::{Answer, ErrorKind, Failure};
use serde::Deserialize;
use serde_json::Value;

/// The longest response, in bytes: it has to fit into the plugin's memory, pictures included.
const ANSWER_BYTES_MAX: usize = 16 << 20;

#[derive(Deserialize)]
struct ResponseDocument {
    model: String,
    output: Vec<Value>,
}

/// The plugin's answer, and the model's reasoning, which is shown in the events of the client's
/// stream.
pub(super) fn read(body: &[u8], account: &CostAccount) -> Result<(Answer, String), Failure> {
    if body.len() > ANSWER_BYTES_MAX {
        return Err(Failure::new(ErrorKind::PayloadTooLarge, "The model's answer is too large."));
    }
    let unreadable = |_| Failure::new(ErrorKind::Server, INTERNAL);
    let ResponseDocument { model, output } = serde_json::from_slice(body).map_err(unreadable)?;
    let text = texts(&output, "message", "content", "output_text");
    let reasoning = texts(&output, "reasoning", "content", "reasoning_text")
        + &texts(&output, "reasoning", "summary", "summary_text");
    let answer = Answer {
        model,
        text,
        output: Value::Array(output).to_string().into_bytes(),
        usage: account.usage().unwrap_or_else(no_usage),
        cost_pico: account.total().here.0,
    };
    Ok((answer, reasoning))
}

/// Joins the texts of all parts of type `part` in the array `member` of all items of type `item`.
fn texts(output: &[Value], item: &str, member: &str, part: &str) -> String {
    let items = output.iter().filter(|other| other["type"] == item);
    let parts = items.filter_map(|item| item[member].as_array()).flatten();
    let texts = parts.filter(|other| other["type"] == part).filter_map(|part| part["text"].as_str());
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_has_the_text_and_the_items_of_the_response() {
        let body = json!({"model": "a/b", "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "content": [{"type": "output_text", "text": "One "}, {"type": "refusal", "refusal": "x"}]},
            {"type": "service:datetime", "content": []},
            {"type": "message", "content": [{"type": "output_text", "text": "two."}]},
        ]});
        let (answer, reasoning) = read(body.to_string().as_bytes(), &CostAccount::default()).unwrap();
        assert_eq!((answer.model.as_str(), answer.text.as_str()), ("a/b", "One two."));
        assert_eq!(reasoning, "Hm.");
        assert_eq!(serde_json::from_slice::<Value>(&answer.output).unwrap(), body["output"]);
    }

    #[test]
    fn a_response_that_is_too_large_or_malformed_is_a_failure() {
        let large = vec![b' '; ANSWER_BYTES_MAX + 1];
        assert_eq!(read(&large, &CostAccount::default()).unwrap_err().kind, ErrorKind::PayloadTooLarge);
        assert_eq!(read(b"{}", &CostAccount::default()).unwrap_err().kind, ErrorKind::Server);
    }
}
