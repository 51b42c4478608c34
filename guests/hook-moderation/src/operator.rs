//! `[plugins.hook-moderation.config]`, read strictly: a rule with a misspelt key must not be ignored
//! silently.

use regex::{RegexSet, RegexSetBuilder};
use serde::Deserialize;

/// The largest number of rules, and the longest pattern and reason in characters.
const RULES_MAX: usize = 256;
const PATTERN_CHARS_MAX: usize = 1_000;
const REASON_CHARS_MAX: usize = 64;
/// The largest size of all compiled patterns together, and of the automaton that is built from them
/// while text is read.
const COMPILED_BYTES_MAX: usize = 16 * 1024 * 1024;
const AUTOMATON_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The deepest nesting of groups.
const NESTING_MAX: u32 = 64;
/// The default and the limit for the time of one answer of the endpoint, in milliseconds.
const TIMEOUT_MS: u32 = 10_000;
const TIMEOUT_MS_MAX: u32 = 60_000;

/// Validated configuration.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) rules: Rules,
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) on_error: OnError,
}

/// Patterns, which are all matched in one pass, and the reason of each.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) patterns: RegexSet,
    pub(crate) reasons: Vec<String>,
}

/// The moderation endpoint.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) model: Option<String>,
    pub(crate) timeout_ms: u32,
}

/// What happens when the endpoint gives no verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnError {
    /// The request is refused.
    #[default]
    Refuse,
    /// The request goes on.
    Allow,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    rules: Vec<WrittenRule>,
    endpoint: Option<String>,
    model: Option<String>,
    on_error: OnError,
    timeout_ms: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    reason: String,
    pattern: String,
}

impl Rules {
    pub(crate) fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    fn compile(written: Vec<WrittenRule>) -> Result<Self, String> {
        if written.len() > RULES_MAX {
            return Err(format!("rules has more than {RULES_MAX} entries"));
        }
        for (index, rule) in written.iter().enumerate() {
            let reason = rule.reason.trim();
            if reason.is_empty() || reason.chars().count() > REASON_CHARS_MAX || reason.contains([',', '#']) {
                return Err(format!(
                    "rules[{index}].reason takes 1 to {REASON_CHARS_MAX} characters without `,` and `#`"
                ));
            }
            if rule.pattern.is_empty() || rule.pattern.chars().count() > PATTERN_CHARS_MAX {
                return Err(format!("rules[{index}].pattern takes 1 to {PATTERN_CHARS_MAX} characters"));
            }
        }
        let patterns = build(written.iter().map(|rule| &rule.pattern)).map_err(|error| {
            // The error of a set does not say which pattern is wrong, so they are compiled one by one.
            let guilty = written.iter().enumerate().find_map(|(index, rule)| {
                let error = build([&rule.pattern]).err()?;
                Some(format!("rules[{index}].pattern {error}"))
            });
            guilty.unwrap_or_else(|| format!("rules: all patterns together: {error}"))
        })?;
        Ok(Self {
            patterns,
            reasons: written.into_iter().map(|rule| rule.reason.trim().to_owned()).collect(),
        })
    }
}

fn build<'a>(patterns: impl IntoIterator<Item = &'a String>) -> Result<RegexSet, String> {
    let built = RegexSetBuilder::new(patterns)
        .case_insensitive(true)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(AUTOMATON_BYTES_MAX)
        .nest_limit(NESTING_MAX)
        .build();
    built.map_err(|error| {
        // The last line says what is wrong; the lines before it show the position.
        let text = error.to_string();
        format!("is not a regular expression: {}", text.lines().last().unwrap_or_default())
    })
}

impl Operator {
    /// # Errors
    ///
    /// What is wrong, for the operator. The message starts with the key.
    pub(crate) fn read(json: &[u8]) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(json).map_err(|error| {
            // The position is removed: it refers to JSON that the operator did not write.
            let text = error.to_string();
            text.rsplit_once(" at line ").map_or(text.clone(), |(what, _)| what.to_owned())
        })?;
        let timeout_ms = written.timeout_ms.unwrap_or(TIMEOUT_MS);
        if !(1..=TIMEOUT_MS_MAX).contains(&timeout_ms) {
            return Err(format!("timeout_ms takes 1 to {TIMEOUT_MS_MAX}"));
        }
        let endpoint = match written.endpoint {
            None if written.model.is_some() => return Err("model needs an endpoint".to_owned()),
            None => None,
            Some(url) if url.starts_with("https://") || url.starts_with("http://") => {
                Some(Endpoint { url, model: written.model, timeout_ms })
            }
            Some(_) => return Err("endpoint takes a URL that begins with https://".to_owned()),
        };
        Ok(Self { rules: Rules::compile(written.rules)?, endpoint, on_error: written.on_error })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(settings: &Value) -> Result<Operator, String> {
        Operator::read(settings.to_string().as_bytes())
    }

    #[test]
    fn absent_keys_have_defaults() {
        let operator = Operator::read(b"{}").unwrap();
        assert!(operator.rules.is_empty() && operator.endpoint.is_none());
        assert_eq!(operator.on_error, OnError::Refuse);
        let operator = read(&json!({ "endpoint": "https://a.test/m", "on_error": "allow" })).unwrap();
        let endpoint = Endpoint { url: "https://a.test/m".to_owned(), model: None, timeout_ms: 10_000 };
        assert_eq!((operator.endpoint, operator.on_error), (Some(endpoint), OnError::Allow));
    }

    #[test]
    fn a_mistake_is_named() {
        let rule =
            |reason: &str, pattern: &str| json!({ "rules": [{ "reason": reason, "pattern": pattern }] });
        let many: Vec<Value> = (0..257).map(|_| json!({ "reason": "a", "pattern": "a" })).collect();
        let cases = [
            (json!({ "rule": [] }), "unknown field `rule`"),
            (json!({ "rules": [{ "reason": "a", "patern": "x" }] }), "unknown field `patern`"),
            (json!({ "rules": many }), "rules has more than 256 entries"),
            (rule("", "x"), "rules[0].reason takes 1 to 64"),
            (rule("a,b", "x"), "rules[0].reason takes 1 to 64"),
            (rule("a", ""), "rules[0].pattern takes 1 to 1000"),
            (rule("a", "("), "rules[0].pattern is not a regular expression: error: unclosed group"),
            (rule("a", r"(a{1000}){1000}"), "rules[0].pattern is not a regular expression: Compiled regex"),
            (json!({ "endpoint": "ftp://a.test" }), "endpoint takes a URL"),
            (json!({ "model": "m" }), "model needs an endpoint"),
            (json!({ "on_error": "ignore" }), "unknown variant `ignore`"),
            (json!({ "timeout_ms": 0 }), "timeout_ms takes 1 to 60000"),
        ];
        for (settings, expected) in cases {
            let message = read(&settings).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
            assert_eq!(message.lines().count(), 1);
        }
    }
}
