//! The configuration: whether it can be served, and what in it is probably a mistake.

use cofferdam_store::Error;

use super::{Finding, Installation};
use crate::config::{ConfigError, Environment, Problem, WorkspaceName};
use crate::failure::Failure;
use crate::wiring::WiringError;
use crate::wiring::operator_secrets::{missing, missing_of};

const ID: &str = "configuration";

/// Why a configuration cannot be served, one finding for each mistake.
pub(super) fn refused(failure: &Failure) -> Vec<Finding> {
    let remedy = "correct it and try it with `cofferdam serve --check`";
    match failure {
        Failure::Config(ConfigError::Invalid(problems))
        | Failure::Wiring(WiringError::Config(ConfigError::Invalid(problems))) => problems
            .iter()
            .map(|problem| Finding::bad(ID, "configuration", problem.to_string(), remedy))
            .collect(),
        failure => vec![Finding::bad(ID, "configuration", failure.to_string(), remedy)],
    }
}

/// Variables that hold credentials and are not set. `serve` does not start without them.
pub(super) fn variables(installation: &Installation<'_>, environment: &Environment) -> Vec<Finding> {
    let missing = environment.missing(installation.config);
    let finding = |problem: &Problem| {
        let remedy = "set it where the host is started, or use `key = \"operator:NAME\"` and the vault";
        Finding::bad("credential", "credential", problem.to_string(), remedy)
    };
    missing.iter().map(finding).collect()
}

/// What is valid and probably a mistake.
pub(super) async fn check(installation: &Installation<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for provider in &installation.config.providers {
        for doubt in provider.origin.iter().flat_map(|origin| origin.doubts()) {
            let problem = Problem { place: provider.place.clone(), message: format!("base_url: {doubt}") };
            findings.push(Finding::warn(
                ID,
                "configuration",
                problem.to_string(),
                "correct base_url if it is wrong",
            ));
        }
    }
    findings.extend(operator_secrets(installation).await);
    findings.extend(workspaces(installation).await);
    if findings.is_empty() {
        findings.push(Finding::ok(ID, "configuration", "it can be served"));
    }
    findings
}

async fn operator_secrets(installation: &Installation<'_>) -> Vec<Finding> {
    let missing = match installation.store {
        Some(store) => missing(installation.config, store).await,
        None => Ok(missing_of(installation.config, |_, _| false)),
    };
    match missing {
        Ok(missing) => {
            let found =
                "a secret of the operator that the configuration names is not stored for all its hosts";
            missing.iter().map(|it| Finding::bad("credential", "credential", found, it.command())).collect()
        }
        Err(error) => {
            let found = format!("the operator's secrets cannot be looked at: {error}");
            vec![Finding::bad("store", "store", found, "cofferdam vault verify")]
        }
    }
}

async fn workspaces(installation: &Installation<'_>) -> Vec<Finding> {
    let Some(store) = installation.store else { return Vec::new() };
    let mut findings = Vec::new();
    for workspace in &installation.config.workspaces {
        let WorkspaceName::One(name) = &workspace.name else { continue };
        if matches!(store.find_workspace(name).await, Err(Error::Lookup(_))) {
            findings.push(Finding::warn(
                ID,
                "configuration",
                format!("[[workspaces]] names `{name}`, which does not exist"),
                format!("cofferdam workspace create {name}, or correct the name"),
            ));
        }
    }
    findings
}
