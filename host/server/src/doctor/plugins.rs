//! Plugins: which are held back or broken, and grants without use.

use cofferdam_runtime::{Plugin, PluginState, Plugins};

use super::{CheckFinding, Installation};

const ID: &str = "plugin";

pub(super) fn check(plugins: &Plugins, installation: &Installation<'_>) -> Vec<CheckFinding> {
    let mut findings: Vec<CheckFinding> =
        plugins.iter().flat_map(|plugin| of_plugin(plugin, installation)).collect();
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

fn of_plugin(plugin: &Plugin, installation: &Installation<'_>) -> Vec<CheckFinding> {
    let name = plugin.name();
    let subject = format!("plugin {name}");
    let mut findings = Vec::new();
    // Most built-in tools ask for grants, which an operator who does not use them does not give.
    let is_meant = !plugin.is_built_in() || installation.config.plugins.contains_key(name);
    let missing = plugin.missing_grants();
    if is_meant && !missing.is_empty() {
        let lines: Vec<&str> = missing.iter().map(|denial| denial.line.as_str()).collect();
        findings.push(CheckFinding::warn(
            ID,
            subject.clone(),
            "it is held back: it asks for more than it was granted",
            format!("grant it with `cofferdam plugin grant {name}`, or these lines: {}", lines.join("; ")),
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
