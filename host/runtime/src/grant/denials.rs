//! Renders what a plugin requests without being granted it, each with the line that would grant it,
//! and what it is granted without requesting it. For the log and the list of plugins; clients never
//! see it.

use std::collections::BTreeSet;
use std::fmt::Display;

use cofferdam_store::{HostName, SecretName};

use super::operator::OperatorGrant;
use crate::manifest::{Asked, Import, Manifest};

/// Stands for every host in manifests and configurations.
const ANY_HOST: &str = "*";

/// The configuration key of headers in which a guest may write placeholders.
const PLACEHOLDER_HEADERS: &str = "placeholder_headers";

/// Something that a plugin requests and is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What is requested: imports, hosts, secrets or headers for placeholders, separated by commas.
    pub wanted: String,
    /// The imports among `wanted`.
    pub imports: BTreeSet<Import>,
    /// The line that would grant it, ready to paste, or what is done where no line grants it.
    pub line: String,
    /// Whether no line of the configuration grants it: its author has to change the manifest.
    pub needs_author: bool,
}

/// What is requested by the manifest or used by the component, beyond the `granted` imports.
pub(super) fn denials(
    manifest: &Manifest,
    operator: &OperatorGrant,
    used: &BTreeSet<Import>,
    granted: &BTreeSet<Import>,
) -> Vec<Denial> {
    let wanted: BTreeSet<Import> = manifest.imports.union(used).copied().collect();
    let mut denials = of_imports(manifest, operator, &(&wanted - granted));
    // One line per key with everything that is missing: two lines with the same key could not be
    // pasted together.
    let mut deny = |key, have: Vec<String>, wanted: Vec<String>| {
        let line = operator_line(manifest, key, have, &wanted);
        if !wanted.is_empty() && denials.iter().all(|denial| denial.line != line) {
            let (wanted, imports) = (wanted.join(", "), BTreeSet::new());
            denials.push(Denial { wanted, imports, line, needs_author: false });
        }
    };
    let hosts = manifest.hosts.named().filter(|host| !operator.any_host && !operator.hosts.contains(host));
    deny("hosts", texts(&operator.hosts), texts(hosts));
    let is_granted =
        |secret: &&_| operator.secrets.contains(*secret) || operator.operator_secrets.contains(*secret);
    let secrets = manifest.secrets.named().filter(|secret| !is_granted(secret));
    deny("secrets", texts(&operator.secrets), texts(secrets));
    let headers = manifest.placeholder_headers.difference(&operator.placeholder_headers);
    deny(PLACEHOLDER_HEADERS, texts(&operator.placeholder_headers), texts(headers));
    denials
}

/// What the operator grants without effect, because the manifest does not request it.
pub(super) fn idle(manifest: &Manifest, operator: &OperatorGrant) -> Vec<String> {
    let hosts = operator.hosts.iter().filter(|host| !manifest.hosts.covers(host));
    let secrets = operator.secrets.union(&operator.operator_secrets);
    let secrets = secrets.filter(|secret| !manifest.secrets.covers(secret));
    let headers = operator.placeholder_headers.difference(&manifest.placeholder_headers);
    let imports = operator
        .imports
        .iter()
        .filter(|name| !manifest.imports.iter().any(|asked| asked.as_str() == name.as_str()));
    let mut idle: Vec<String> = hosts.map(|host| format!("the host {host}")).collect();
    if operator.any_host && manifest.hosts.is_empty() {
        idle.push("every public host".to_owned());
    }
    idle.extend(imports.map(|import| format!("the import {import}")));
    idle.extend(secrets.map(|secret| format!("the secret {secret}")));
    idle.extend(headers.map(|header| format!("the header {header}")));
    idle
}

/// The lines that would grant these imports, one per configuration key.
pub(super) fn of_imports(
    manifest: &Manifest,
    operator: &OperatorGrant,
    wanted: &BTreeSet<Import>,
) -> Vec<Denial> {
    let (asked, unasked): (BTreeSet<Import>, BTreeSet<Import>) =
        wanted.iter().copied().partition(|import| manifest.imports.contains(import));
    let (http, by_name): (BTreeSet<Import>, BTreeSet<Import>) =
        asked.into_iter().partition(|import| *import == Import::Http);
    let lines = [
        (line_for_http(manifest, operator), http, manifest.hosts.is_empty()),
        (operator_line(manifest, "imports", &operator.imports, &by_name), by_name, false),
        (manifest_line(manifest, "imports", &manifest.imports, &unasked), unasked, true),
    ];
    let denied = lines.into_iter().filter(|(_, imports, _)| !imports.is_empty());
    let denial = |(line, imports, needs_author): (String, BTreeSet<Import>, bool)| Denial {
        wanted: texts(&imports).join(", "),
        imports,
        line,
        needs_author,
    };
    denied.map(denial).collect()
}

/// The line that grants the import `http`: it is granted with its hosts. A manifest without hosts leaves nothing to
/// grant.
fn line_for_http(manifest: &Manifest, operator: &OperatorGrant) -> String {
    match &manifest.hosts {
        Asked::Any => operator_line(manifest, "hosts", &operator.hosts, [ANY_HOST]),
        Asked::Named(wanted) if wanted.is_empty() => {
            format!("have its author name hosts in {}.toml, or remove the plugin", manifest.name)
        }
        Asked::Named(wanted) => operator_line(manifest, "hosts", &operator.hosts, wanted),
    }
}

/// The line that lets a plugin reach one more host. `granted` are the hosts that the operator
/// names.
pub(super) fn line_for_host(manifest: &Manifest, granted: &BTreeSet<HostName>, host: &HostName) -> String {
    match manifest.hosts.covers(host) {
        true => operator_line(manifest, "hosts", granted, [host]),
        false => manifest_line(manifest, "hosts", manifest.hosts.named(), [host]),
    }
}

/// The line that lets a plugin use one more secret.
pub(super) fn line_for_secret(
    manifest: &Manifest,
    granted: &BTreeSet<SecretName>,
    secret: &SecretName,
) -> String {
    match manifest.secrets.covers(secret) {
        true => operator_line(manifest, "secrets", granted, [secret]),
        false => manifest_line(manifest, "secrets", manifest.secrets.named(), [secret]),
    }
}

/// The line that lets a plugin write placeholders into one more header.
pub(super) fn line_for_header(manifest: &Manifest, granted: &BTreeSet<String>, header: &str) -> String {
    match manifest.placeholder_headers.contains(header) {
        true => operator_line(manifest, PLACEHOLDER_HEADERS, granted, [header]),
        false => manifest_line(manifest, PLACEHOLDER_HEADERS, &manifest.placeholder_headers, [header]),
    }
}

/// A line of the operator's configuration that adds `wanted` to `have`.
fn operator_line<H: Display, W: Display>(
    manifest: &Manifest,
    key: &str,
    have: impl IntoIterator<Item = H>,
    wanted: impl IntoIterator<Item = W>,
) -> String {
    format!("[plugins.{}] {key} = {}", manifest.name, list(have, wanted))
}

/// A line of the plugin's manifest that adds `wanted` to `have`.
fn manifest_line<H: Display, W: Display>(
    manifest: &Manifest,
    key: &str,
    have: impl IntoIterator<Item = H>,
    wanted: impl IntoIterator<Item = W>,
) -> String {
    format!("the manifest of {}: {key} = {}", manifest.name, list(have, wanted))
}

fn texts<T: Display>(names: impl IntoIterator<Item = T>) -> Vec<String> {
    names.into_iter().map(|name| name.to_string()).collect()
}

fn list<H: Display, W: Display>(
    have: impl IntoIterator<Item = H>,
    wanted: impl IntoIterator<Item = W>,
) -> String {
    let have = have.into_iter().map(|name| name.to_string());
    let all: BTreeSet<_> = have.chain(wanted.into_iter().map(|name| name.to_string())).collect();
    let quoted: Vec<_> = all.iter().map(|name| format!("{name:?}")).collect();
    format!("[{}]", quoted.join(", "))
}
