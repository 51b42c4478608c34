//! What an answer has to have, and the first difference.

use std::collections::BTreeMap;

use serde_json::Value;
use toml::Spanned;

use super::CaseMistake;

/// Length limit of a value that a message shows, in characters.
const SHOWN_MAX: usize = 600;

/// What an answer has to have. Without members any answer is good.
#[derive(Debug, Default)]
pub(in super::super) struct Expectation {
    members: BTreeMap<String, Value>,
}

impl Expectation {
    /// Checks that the plugin can answer these members.
    pub(super) fn checked(
        written: BTreeMap<Spanned<String>, Value>,
        answers: &[&str],
    ) -> Result<Self, CaseMistake> {
        if let Some(unknown) = written.keys().find(|key| !answers.contains(&key.get_ref().as_str())) {
            let (key, known) = (unknown.get_ref(), answers.join("`, `"));
            return Err(CaseMistake::at(
                unknown,
                format!("`expect` has no `{key}` here, it takes `{known}`"),
            ));
        }
        let members = written.into_iter().map(|(key, value)| (key.into_inner(), value)).collect();
        Ok(Self { members })
    }

    /// What is wrong with an answer, which is an object.
    pub(in super::super) fn problem(&self, answer: &Value) -> Option<String> {
        // A failure is never part of a good answer, unless it is expected.
        if let Some(failure) = answer.get("failure").filter(|_| !self.members.contains_key("failure"))
            && !self.members.is_empty()
        {
            return Some(format!("it failed: {}", shown(failure)));
        }
        self.members.iter().find_map(|(name, wanted)| match answer.get(name) {
            Some(found) => difference(name, wanted, found),
            None => Some(format!("expected {name}, but the answer is {}", shown(answer))),
        })
    }
}

/// The first difference. Objects may have more members than expected, `{ contains = "..." }` stands
/// for a text with this part, and numbers are compared by value.
pub(in super::super) fn difference(place: &str, wanted: &Value, found: &Value) -> Option<String> {
    match (wanted, found) {
        (Value::Object(pattern), Value::String(text)) if part(pattern).is_some() => {
            let part = part(pattern)?;
            (!text.contains(part))
                .then(|| format!("{place} is {}, expected a text with {part:?}", shown(found)))
        }
        (Value::Object(pattern), Value::Object(members)) => {
            pattern.iter().find_map(|(name, wanted)| match members.get(name) {
                Some(found) => difference(&format!("{place}.{name}"), wanted, found),
                None => Some(format!("{place}.{name} is missing, expected {}", shown(wanted))),
            })
        }
        (Value::Array(wanted), Value::Array(items)) if wanted.len() == items.len() => {
            (0..).zip(wanted.iter().zip(items)).find_map(|(index, (wanted, found)): (usize, _)| {
                difference(&format!("{place}[{index}]"), wanted, found)
            })
        }
        (Value::Number(wanted), Value::Number(number)) if wanted.as_f64() == number.as_f64() => None,
        _ => (wanted != found).then(|| format!("{place} is {}, expected {}", shown(found), shown(wanted))),
    }
}

/// The text of a pattern `{ contains = "..." }`.
fn part(pattern: &serde_json::Map<String, Value>) -> Option<&str> {
    if pattern.len() == 1 { pattern.get("contains")?.as_str() } else { None }
}

/// A value for a message, cut where it is long.
fn shown(value: &Value) -> String {
    cut(&value.to_string(), SHOWN_MAX)
}

/// The beginning of a text, for a message.
pub(in super::super) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_may_have_more_members_than_expected() {
        let found = json!({"a": 1, "b": {"c": [1, {"d": 2, "e": 3}], "f": "one two"}});
        let same = json!({"b": {"c": [1.0, {"d": 2}], "f": {"contains": "two"}}});
        assert_eq!(difference("item", &same, &found), None);
        for (wanted, problem) in [
            (json!({"b": {"c": [1]}}), "item.b.c is [1,{\"d\":2,\"e\":3}], expected [1]"),
            (json!({"b": {"c": [1, {"d": 5}]}}), "item.b.c[1].d is 2, expected 5"),
            (json!({"b": {"g": 1}}), "item.b.g is missing, expected 1"),
            (json!({"b": {"f": {"contains": "x"}}}), "item.b.f is \"one two\", expected a text with \"x\""),
        ] {
            assert_eq!(difference("item", &wanted, &found).as_deref(), Some(problem));
        }
    }

    #[test]
    fn an_object_may_have_a_member_with_the_name_contains() {
        let (wanted, found) = (json!({"contains": "a"}), json!({"contains": "a", "b": 1}));
        assert_eq!(difference("item", &wanted, &found), None);
    }
}
