//! What a check finds: how bad it is, what it is about, and what to do.

use serde::Serialize;
use serde_json::json;

use crate::command::CommandOutcome;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// As it should be.
    Ok,
    /// The host works, with a risk or not as it was probably meant.
    Warn,
    /// Something does not work, or a secret is in danger.
    Bad,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CheckFinding {
    /// The check. Programs can rely on it.
    pub(crate) id: &'static str,
    pub(crate) severity: Severity,
    /// What was looked at, such as a file or a provider.
    pub(crate) subject: String,
    /// What was found: a sentence without a final period.
    pub(crate) text: String,
    /// What mends it. Absent if nothing has to be done.
    pub(crate) remedy: Option<String>,
}

impl CheckFinding {
    pub(super) fn ok(id: &'static str, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { id, severity: Severity::Ok, subject: subject.into(), text: text.into(), remedy: None }
    }

    pub(super) fn warn(
        id: &'static str,
        subject: impl Into<String>,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { id, severity: Severity::Warn, subject: subject.into(), text: text.into(), remedy }
    }

    pub(super) fn bad(
        id: &'static str,
        subject: impl Into<String>,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Bad, ..Self::warn(id, subject, text, remedy) }
    }
}

/// All findings: a document with their numbers by severity, and lines for people.
pub(crate) fn outcome(findings: &[CheckFinding]) -> CommandOutcome {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let [ok, warn, bad] = [Severity::Ok, Severity::Warn, Severity::Bad].map(count);
    let mut text = String::new();
    for CheckFinding { severity, subject, text: found, remedy, .. } in findings {
        text.push_str(&format!("{:4}  {subject}: {found}\n", severity.as_str()));
        if let Some(remedy) = remedy {
            text.push_str(&format!("      -> {remedy}\n"));
        }
    }
    text.push_str(&format!("\n{ok} ok, {warn} warn, {bad} bad\n"));
    CommandOutcome { document: json!({"ok": ok, "warn": warn, "bad": bad, "findings": findings}), text }
}
