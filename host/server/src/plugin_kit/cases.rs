//! `plugin test`: compares what a tool answers to the calls of its cases with what they expect.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::Checked;
use super::check::examination;
use super::project::{Project, read_text, wrong};
use crate::command::CommandOutcome;
use crate::failure::Failure;

use cofferdam_runtime::manifest::PluginKind;

/// Number of cases of one project.
const CASES_MAX: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    #[serde(default)]
    case: Vec<Case>,
}

/// One call of a tool and the answer that is expected.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) call: CaseCall,
    /// The `parameters` of the request's entry for the tool.
    #[serde(default = "nothing")]
    pub(super) settings: Value,
    #[serde(default)]
    expect: Expectation,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseCall {
    pub(super) function: String,
    #[serde(default = "nothing")]
    pub(super) arguments: Value,
}

/// What an answer has to have. Nothing: any answer is good.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    /// Members of the item; the item may have more.
    item: Option<Value>,
    for_model: Option<TextMatch>,
    invalid_arguments: Option<TextMatch>,
    invalid_settings: Option<TextMatch>,
    failed: Option<TextMatch>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "takes a text, or { contains = \"...\" }")]
enum TextMatch {
    Whole(String),
    Part { contains: String },
}

fn nothing() -> Value {
    json!({})
}

/// The cases of these files.
///
/// # Errors
///
/// A file cannot be read, has a mistake, or there are too many cases.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    for file in files {
        let text = read_text(file)?;
        let read: CaseFile = toml::from_str(&text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
            let message = error.message().lines().next().unwrap_or_default();
            wrong(format!("{}:{line}: {message}", file.display()))
        })?;
        cases.extend(read.case);
    }
    if cases.len() > CASES_MAX {
        return Err(wrong(format!("there are {} cases; at most {CASES_MAX} are called", cases.len())));
    }
    Ok(cases)
}

pub(super) fn test(dir: &Path) -> Result<Checked, Failure> {
    let project = Project::open(dir)?;
    let kind = project.manifest.kind;
    if kind != PluginKind::Tool {
        return Err(wrong(format!("cases are for tools; `cofferdam plugin check` calls a {kind}")));
    }
    let cases = read(&project.cases())?;
    if cases.is_empty() {
        return Err(wrong(format!("{} has no cases", dir.join("cases").display())));
    }
    project.require_component()?;
    let examination = examination(&project)?.map_err(wrong)?;
    // Without an answer to a case, the reason is the same for all of them.
    if let Some(problem) = examination.problem.as_ref().filter(|_| examination.answers.is_empty()) {
        return Err(wrong(problem.message.clone()));
    }
    let (mut text, mut documents, mut failed) = (String::new(), Vec::new(), 0);
    for case in &cases {
        let found = examination.answers.iter().find(|(name, _)| *name == case.name);
        let problem = match found {
            Some((_, answer)) => case.expect.problem(answer),
            None => Some("it was not called".to_owned()),
        };
        match &problem {
            None => text.push_str(&format!("ok     {}\n", case.name)),
            Some(problem) => text.push_str(&format!("wrong  {}: {problem}\n", case.name)),
        }
        failed += usize::from(problem.is_some());
        documents.push(json!({"case": case.name, "problem": problem}));
    }
    let passed = cases.len() - failed;
    text.push_str(&format!("{passed} passed, {failed} failed\n"));
    let document = json!({"cases": documents, "passed": passed, "failed": failed});
    Ok(Checked { outcome: CommandOutcome { document, text }, wrong: failed, what: "case" })
}

impl Expectation {
    /// What is wrong with an answer. It is an object with `item` and `for_model`, or with one error.
    fn problem(&self, answer: &Value) -> Option<String> {
        if let Some(broke) = answer.get("broke") {
            return Some(broke.as_str().unwrap_or_default().to_owned());
        }
        let texts = [
            ("for_model", &self.for_model),
            ("invalid_arguments", &self.invalid_arguments),
            ("invalid_settings", &self.invalid_settings),
            ("failed", &self.failed),
        ];
        for (name, expected) in texts {
            let Some(expected) = expected else { continue };
            let Some(found) = answer.get(name).and_then(Value::as_str) else {
                return Some(format!("expected {name}, but the answer is {answer}"));
            };
            if !expected.accepts(found) {
                return Some(format!("{name} is {found:?}, expected {}", expected.shown()));
            }
        }
        let expected = self.item.as_ref()?;
        match answer.get("item") {
            Some(item) => difference("item", expected, item),
            None => Some(format!("expected an item, but the answer is {answer}")),
        }
    }
}

impl TextMatch {
    fn accepts(&self, text: &str) -> bool {
        match self {
            Self::Whole(whole) => text == whole,
            Self::Part { contains } => text.contains(contains.as_str()),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Whole(whole) => format!("{whole:?}"),
            Self::Part { contains } => format!("a text with {contains:?}"),
        }
    }
}

/// The first difference; objects may have more members than expected.
fn difference(place: &str, expected: &Value, found: &Value) -> Option<String> {
    let (Value::Object(wanted), Value::Object(members)) = (expected, found) else {
        return (expected != found).then(|| format!("{place} is {found}, expected {expected}"));
    };
    wanted.iter().find_map(|(name, wanted)| match members.get(name) {
        Some(found) => difference(&format!("{place}.{name}"), wanted, found),
        None => Some(format!("{place}.{name} is missing, expected {wanted}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_may_have_more_members_than_expected() {
        let found = json!({"a": 1, "b": {"c": [1, 2], "d": 0}});
        assert_eq!(difference("item", &json!({"b": {"c": [1, 2]}}), &found), None);
        let problem = difference("item", &json!({"b": {"c": [1]}}), &found).unwrap();
        assert_eq!(problem, "item.b.c is [1,2], expected [1]");
        let problem = difference("item", &json!({"b": {"e": 1}}), &found).unwrap();
        assert_eq!(problem, "item.b.e is missing, expected 1");
    }
}
