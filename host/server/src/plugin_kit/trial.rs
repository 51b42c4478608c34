//! `plugin test`: runs the suite and the cases of a project in a process of their own, and reports
//! what is not as expected.

use std::path::Path;

use serde_json::json;

use super::Checked;
use super::cases;
use super::examination::{Extent, examination};
use super::examine::Examination;
use super::project::{Project, wrong};
use super::runs::CaseResult;
use super::suite::SuiteResult;
use crate::command::CommandOutcome;
use crate::failure::Failure;

pub(super) fn test(dir: &Path) -> Result<Checked, Failure> {
    let project = Project::open(dir)?;
    // Mistakes in the files are told before anything is compiled.
    let cases = cases::read(&project.cases(), project.manifest.kind)?;
    project.require_component()?;
    let extent = Extent { with_suite: true, host_cache: None };
    let examination = examination(&project, extent)?.map_err(wrong)?;
    if let Some(reason) = &examination.uncompiled {
        return Err(wrong(reason.clone()));
    }
    let mut report = report(&examination);
    if cases.is_empty() {
        let folder = dir.join("cases");
        report.outcome.text.insert_str(0, &format!("{} has no cases\n", folder.display()));
    }
    Ok(report)
}

pub(super) fn report(examination: &Examination) -> Checked {
    let Examination { suite, cases, .. } = examination;
    let mut text = String::new();
    for SuiteResult { check, problem } in suite {
        match problem {
            None => text.push_str(&format!("ok     suite: {check}\n")),
            Some(problem) => text.push_str(&format!("wrong  suite: {check}: {problem}\n")),
        }
    }
    for case in cases {
        text.push_str(&lines(case));
    }
    let wrong_checks = suite.iter().filter(|result| result.problem.is_some()).count();
    let failed = wrong_checks + cases.iter().filter(|case| !case.problems.is_empty()).count();
    let passed = suite.len() + cases.len() - failed;
    text.push_str(&format!("{passed} passed, {failed} failed\n"));
    let document = json!({"suite": suite, "cases": cases, "passed": passed, "failed": failed});
    Checked { outcome: CommandOutcome { document, text }, wrong: failed, what: "test" }
}

/// The lines about one case: each problem, then where the case is and what else happened.
fn lines(CaseResult { case, at, problems, notes }: &CaseResult) -> String {
    let mut problems = problems.iter();
    let Some(first) = problems.next() else { return format!("ok     {case}\n") };
    let mut text = format!("wrong  {case}: {first}\n");
    for line in problems.chain([at]).chain(notes) {
        text.push_str(&format!("       {line}\n"));
    }
    text
}
