//! The configuration: whether it can be served, and what in it is probably a mistake.

use super::{CheckFinding, Installation};
use crate::config::{ConfigError, Environment, Problem};
use crate::failure::Failure;
use crate::wiring::WiringError;
use crate::wiring::advice::doubtful_origins;
use crate::wiring::defaults::unknown;
use crate::wiring::operator_secrets::{missing, missing_of};

const ID: &str = "configuration";

/// Why a configuration cannot be served, one finding for each mistake.
pub(super) fn refused(failure: &Failure) -> Vec<CheckFinding> {
    let remedy = "correct it and try it with `cofferdam serve --check`";
    match failure {
        Failure::Config(ConfigError::Invalid(problems))
        | Failure::Wiring(WiringError::Config(ConfigError::Invalid(problems))) => problems
            .iter()
            .map(|problem| CheckFinding::bad(ID, "configuration", problem.to_string(), remedy))
            .collect(),
        failure => vec![CheckFinding::bad(ID, "configuration", failure.to_string(), remedy)],
    }
}

/// Variables that hold credentials and are not set. `serve` does not start without them.
pub(super) fn variables(installation: &Installation<'_>, environment: &Environment) -> Vec<CheckFinding> {
    let missing = environment.missing(installation.config);
    let finding = |problem: &Problem| {
        let remedy = "set it where the host is started, or use `key = \"operator:NAME\"` and the vault";
        CheckFinding::bad("credential", "credential", problem.to_string(), remedy)
    };
    missing.iter().map(finding).collect()
}

/// What is valid and probably a mistake.
pub(super) async fn check(installation: &Installation<'_>) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for (_, problem) in doubtful_origins(installation.config) {
        let remedy = "correct base_url if it is wrong";
        findings.push(CheckFinding::warn(ID, "configuration", problem.to_string(), remedy));
    }
    findings.extend(operator_secrets(installation).await);
    findings.extend(workspaces(installation).await);
    if findings.is_empty() {
        findings.push(CheckFinding::ok(ID, "configuration", "it can be served"));
    }
    findings
}

async fn operator_secrets(installation: &Installation<'_>) -> Vec<CheckFinding> {
    let missing = match installation.store {
        Some(store) => missing(installation.config, store).await,
        None => Ok(missing_of(installation.config, |_, _| false)),
    };
    match missing {
        Ok(missing) => {
            let found =
                "a secret of the operator that the configuration names is not stored for all its hosts";
            missing
                .iter()
                .map(|it| CheckFinding::bad("credential", "credential", found, it.command()))
                .collect()
        }
        Err(error) => {
            let found = format!("the operator's secrets cannot be looked at: {error}");
            vec![CheckFinding::bad("store", "store", found, "cofferdam vault verify")]
        }
    }
}

async fn workspaces(installation: &Installation<'_>) -> Vec<CheckFinding> {
    let Some(store) = installation.store else { return Vec::new() };
    let mut findings = Vec::new();
    for name in unknown(&installation.config.workspaces, store).await {
        findings.push(CheckFinding::warn(
            ID,
            "configuration",
            format!("[[workspaces]] names `{name}`, which does not exist"),
            format!("cofferdam workspace create {name}, or correct the name"),
        ));
    }
    findings
}
