//! Each error of `http`, in answer to whatever the plugin asks for.

use std::sync::Arc;

use cofferdam_runtime::wire::HttpError;

use super::Checked;
use crate::plugin_kit::cases::{Case, HTTP_ERRORS};
use crate::plugin_kit::runs::{Bench, Trouble, call};

/// Number of cases that are run with every error.
const CASES_MAX: usize = 8;

/// Whether a case is known that reaches hosts.
pub(super) fn can_check(cases: &[Case]) -> bool {
    cases.iter().any(reaches_hosts)
}

fn reaches_hosts(case: &Case) -> bool {
    case.input.scripts().is_some_and(|scripts| !scripts.http.is_empty())
}

/// The cases that reach hosts are run again.
pub(super) async fn check(bench: &Bench, cases: &[Case]) -> Checked {
    let reaching: Vec<&Case> = cases.iter().filter(|case| reaches_hosts(case)).take(CASES_MAX).collect();
    for (error, name) in HTTP_ERRORS {
        for case in &reaching {
            let ran = run(bench, case, error).await;
            ran.map_err(|problem| format!("{name}, the case `{}`: {problem}", case.name))?;
        }
    }
    Ok(())
}

/// Runs a case with this error in answer to every request. Only the call counts, not its answer.
async fn run(bench: &Bench, case: &Case, error: HttpError) -> Checked {
    let scripts = case.input.scripts().cloned().unwrap_or_default();
    let imports = Arc::new(bench.imports(&scripts).failing(error));
    match call(&bench.plugin_for(case), case, &imports).await {
        Ok(_) | Err(Trouble::Rule(_)) => Ok(()),
        Err(trouble) => Err(trouble.into()),
    }
}
