//! Plugins: which are held back or broken, and grants without use.

use cofferdam_runtime::{Plugin, PluginState, Plugins};

use super::{CheckFinding, Installation};
use crate::facts::HeldFacts;
use crate::installed;

const ID: &str = "plugin";

pub(super) fn check(plugins: &Plugins, installation: &Installation<'_>) -> Vec<CheckFinding> {
    let mut findings: Vec<CheckFinding> =
        plugins.iter().flat_map(|plugin| of_plugin(plugin, installation)).collect();
    let data = &installation.options.data;
    findings.extend(installed::held(data).into_iter().map(held));
    findings.extend(installed::damaged(data).into_iter().map(|(plugin, error)| {
        let remedy = "put the file back from a copy; a rollback or an accepted update needs it";
        CheckFinding::warn(ID, format!("plugin {plugin}"), error.to_string(), remedy)
    }));
    if findings.is_empty() {
        let count = plugins.iter().count();
        findings.push(CheckFinding::ok(
            ID,
            "plugins",
            format!("{count} installed, none is held back, no grant without use"),
        ));
    }
    findings
}

fn held(update: HeldFacts) -> CheckFinding {
    let HeldFacts { plugin, version, serving, asks_more, .. } = &update;
    CheckFinding::warn(
        ID,
        format!("plugin {plugin}"),
        format!(
            "the update to {version} is held, {serving} serves: it asks for more: {}",
            asks_more.join(", ")
        ),
        format!(
            "accept it with `{}`, or drop it with `cofferdam plugin remove {plugin} --held`",
            update.accept_command()
        ),
    )
}

fn of_plugin(plugin: &Plugin, installation: &Installation<'_>) -> Vec<CheckFinding> {
    let name = plugin.name();
    let subject = format!("plugin {name}");
    let mut findings = Vec::new();
    // Most built-in tools ask for grants, which an operator who does not use them does not give.
    let is_meant = !plugin.is_built_in() || installation.config.plugins.contains_key(name);
    let missing = plugin.missing_grants();
    if is_meant && !missing.is_empty() {
        let lines = |needs_author: bool| -> Vec<&str> {
            let denials = missing.iter().filter(|denial| denial.needs_author == needs_author);
            denials.map(|denial| denial.line.as_str()).collect()
        };
        let mut remedies = lines(true);
        let granting = lines(false).join("; ");
        let command = format!("grant it with `cofferdam plugin grant {name}`, or these lines: {granting}");
        if !granting.is_empty() {
            remedies.insert(0, &command);
        }
        findings.push(CheckFinding::warn(
            ID,
            subject.clone(),
            "it is held back: it asks for more than it was granted",
            remedies.join("; "),
        ));
    }
    if let PluginState::Failed(reason) = plugin.state() {
        let remedy = "install a component that fits its manifest, or take it out of the folder of plugins";
        findings.push(CheckFinding::bad(
            ID,
            subject.clone(),
            format!("it does not compile: {reason}"),
            remedy,
        ));
    }
    if !plugin.idle_grants().is_empty() {
        findings.push(CheckFinding::warn(
            "grant",
            subject,
            format!("it was granted what its manifest does not ask for: {}", plugin.idle_grants().join("; ")),
            format!("take these lines out of [plugins.{name}]"),
        ));
    }
    findings
}
