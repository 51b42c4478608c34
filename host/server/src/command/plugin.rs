//! `plugin list` and `plugin grant`: their arguments and output. The configuration file is changed
//! in `grants`. The commands that change which plugins are installed are in `manage`, those for
//! authors in `kit`, `plugin logs` in `logs`.

mod kit;
mod logs;
mod manage;

use std::path::Path;

use clap::{Args, Subcommand};
use cofferdam_runtime::{Asked, Manifest, OperatorGrant, is_injectable_header, missing_grants};
use cofferdam_store::{HostName, SecretName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::table::{pairs, table};
use super::{CommandOutcome, Folder, Remote, word};
use crate::facts::{Facts, HeldFacts, PluginFacts, PluginReach};

pub use kit::{
    DevArguments, ExamineArguments, KitCommand, Language, NewArguments, NewKind, ProjectFolder,
    ReplayArguments, RerunArguments,
};
pub use logs::LogsArguments;
pub(crate) use logs::{logged, not_running};
pub use manage::{
    InstallArguments, ManageCommand, RemoveArguments, RollbackArguments, StagedPlugin, UpdateArguments,
};

/// What can be done with plugins.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginCommand {
    /// List the plugins that are installed, with what they were granted
    #[command(add = Remote::Reads)]
    List(Folder),
    /// Show what a plugin asks for, or add to what it is granted in the configuration
    #[command(add = Remote::Changes)]
    Grant(GrantCommand),
    /// Show the last log lines about a plugin, from the running host
    #[command(add = Remote::Reads)]
    Logs(LogsArguments),
    /// Changes of what is installed.
    #[command(flatten)]
    Manage(ManageCommand),
    /// What authors of plugins do; it is never sent to another process.
    #[command(flatten)]
    #[serde(skip)]
    Kit(KitCommand),
}

/// What to grant; nothing shows what there is.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct GrantCommand {
    /// The plugin
    pub name: String,
    /// A host it may send requests to, or `*` for every public host without a secret
    #[arg(long = "host", value_name = "H", value_parser = host)]
    pub hosts: Vec<String>,
    /// A secret that may go along to those hosts it is bound to
    #[arg(long = "secret", value_name = "S", value_parser = secret)]
    pub secrets: Vec<String>,
    /// An interface that costs money or shows content
    #[arg(long = "import", value_name = "I", value_parser = ["model", "tool-call", "request"])]
    pub imports: Vec<String>,
    /// A header in which it may write `{{secret:NAME}}`
    #[arg(long = "placeholder-header", value_name = "H", value_parser = header)]
    #[serde(default)]
    pub placeholder_headers: Vec<String>,
    /// Accept the update that is held, with the grants that it asks for by name
    #[arg(long, conflicts_with_all = ["hosts", "secrets", "imports", "placeholder_headers"])]
    #[serde(default)]
    pub accept: bool,
    /// Accept only the update with this digest, which `plugin list` and `plugin grant NAME` show
    #[arg(long, value_name = "SHA256", requires = "accept")]
    #[serde(default)]
    pub digest: Option<String>,
    /// Only print the lines, change nothing
    #[arg(long)]
    pub print: bool,
    /// Where plugins are.
    #[command(flatten)]
    #[serde(skip)]
    pub folder: Folder,
}

impl GrantCommand {
    /// Whether nothing is to be granted: then the command shows what the plugin asks for.
    pub(crate) fn is_question(&self) -> bool {
        [&self.hosts, &self.secrets, &self.imports, &self.placeholder_headers]
            .into_iter()
            .all(|names| names.is_empty())
    }
}

fn header(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    match is_injectable_header(&name) {
        true => Ok(name),
        false => Err("expected the name of a header that may carry a secret".to_owned()),
    }
}

/// Parses a host name and normalises its spelling.
fn host(text: &str) -> Result<String, String> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    let host = text.parse::<HostName>().map(|host| host.to_string());
    host.map_err(|_| "expected an exact host name such as api.example.com, or `*`".to_owned())
}

fn secret(text: &str) -> Result<String, String> {
    text.parse::<SecretName>().map(|name| name.to_string()).map_err(|error| error.to_string())
}

pub(super) fn list(facts: &Facts) -> CommandOutcome {
    let row = |plugin: &PluginFacts| {
        [
            plugin.name.clone(),
            plugin.kind.clone(),
            plugin.version.clone(),
            plugin.line.to_owned(),
            plugin.state.clone(),
            plugin.digest.chars().take(12).collect(),
            plugin.origin.clone(),
        ]
    };
    let rows: Vec<[String; 7]> = facts.plugins.iter().map(row).collect();
    let mut text = table(["NAME", "KIND", "VERSION", "LINE", "STATE", "DIGEST", "ORIGIN"], &rows);
    for plugin in &facts.plugins {
        let granted = lines(&plugin.granted, "every public host, without a secret");
        if !granted.is_empty() {
            text.push_str(&format!("\n{} may use\n{}", plugin.name, indented(&pairs(&granted))));
        }
        text.push_str(&open_ends(plugin));
    }
    facts.held.iter().for_each(|held| text.push_str(&held_text(held)));
    let document = facts.plugins.iter().map(|plugin| with_held(plugin, &facts.held)).collect();
    CommandOutcome { document, text }
}

/// The document of a plugin, with the update that is held.
fn with_held(plugin: &PluginFacts, held: &[HeldFacts]) -> Value {
    let mut document = json!(plugin);
    let held = held.iter().find(|held| held.plugin == plugin.name);
    if let (Some(held), Some(members)) = (held, document.as_object_mut()) {
        let HeldFacts { version, digest, asks_more, .. } = held;
        members
            .insert("held".to_owned(), json!({"version": version, "digest": digest, "asks_more": asks_more}));
    }
    document
}

/// The lines about an update that is held.
pub(crate) fn held_text(held: &HeldFacts) -> String {
    let HeldFacts { plugin, version, serving, asks_more, .. } = held;
    let more =
        if asks_more.is_empty() { "its files cannot be read".to_owned() } else { asks_more.join("\n") };
    format!(
        "\n{plugin} {version} is held: it asks for more than {serving}, which goes on serving:\n{}\
         to accept it:  {}\n\
         to drop it:    cofferdam plugin remove {plugin} --held\n",
        indented(&more),
        held.accept_command()
    )
}

/// The command that grants what a manifest asks for by name and is not granted, and the lines of the
/// configuration that no command writes. `folder` is the one of `--plugins`.
pub(crate) fn grant_lines(
    manifest: &Manifest,
    granted: &OperatorGrant,
    folder: Option<&Path>,
) -> Vec<String> {
    let mut command = String::new();
    for host in manifest.hosts.named().filter(|host| !granted.any_host && !granted.hosts.contains(*host)) {
        command.push_str(&format!(" --host {host}"));
    }
    let has_secret =
        |name: &SecretName| granted.secrets.contains(name) || granted.operator_secrets.contains(name);
    for secret in manifest.secrets.named().filter(|secret| !has_secret(secret)) {
        command.push_str(&format!(" --secret {secret}"));
    }
    let by_name = manifest.imports.iter().filter(|import| import.is_granted_by_name());
    for import in by_name.filter(|import| granted.imports.iter().all(|name| name != import.as_str())) {
        command.push_str(&format!(" --import {import}"));
    }
    for header in manifest.placeholder_headers.difference(&granted.placeholder_headers) {
        command.push_str(&format!(" --placeholder-header {}", word(header)));
    }
    // A manifest that asks for `*` leaves the names to the operator.
    let has_hosts = granted.any_host || !granted.hosts.is_empty();
    if manifest.hosts == Asked::Any && !has_hosts {
        command.push_str(" --host HOST");
    }
    if manifest.secrets == Asked::Any && granted.secrets.is_empty() && granted.operator_secrets.is_empty() {
        command.push_str(" --secret SECRET");
    }
    match command.as_str() {
        "" => missing_grants(manifest, granted).into_iter().map(|denial| denial.line).collect(),
        _ => {
            let folder = folder
                .map(|folder| format!(" --plugins {}", word(&folder.to_string_lossy())))
                .unwrap_or_default();
            vec![format!("cofferdam plugin grant {}{folder}{command}", manifest.name)]
        }
    }
}

/// The output of `plugin grant NAME` without anything to grant.
pub(crate) fn shown(plugin: &PluginFacts, held: &[HeldFacts]) -> CommandOutcome {
    let mut text = format!("{}: {} {}, {}\n", plugin.name, plugin.kind, plugin.version, plugin.origin);
    for (title, reach, any) in [
        ("asks for", &plugin.asks, "whichever you name"),
        ("may use", &plugin.granted, "every public host, without a secret"),
    ] {
        let lines = lines(reach, any);
        let listed = if lines.is_empty() { "nothing\n".to_owned() } else { pairs(&lines) };
        text.push_str(&format!("\n{title}\n{}", indented(&listed)));
    }
    text.push_str(&open_ends(plugin));
    held.iter().filter(|held| held.plugin == plugin.name).for_each(|held| text.push_str(&held_text(held)));
    CommandOutcome { document: with_held(plugin, held), text }
}

/// The output of a grant.
pub(crate) fn granted(plugin: &str, file: &str, lines: &str, became: Became) -> CommandOutcome {
    let text = match became {
        Became::Nothing => format!("{file} grants all of this to {plugin}; nothing was changed.\n"),
        Became::Printed => lines.to_owned(),
        Became::Written => {
            format!("{lines}\nWritten to {file}. A host that runs with it reads it again on SIGHUP.\n")
        }
        Became::Told => format!("{lines}\nWritten to {file}, which the running host reads again now.\n"),
    };
    let document = json!({
        "plugin": plugin,
        "file": file,
        "lines": lines,
        "written": matches!(became, Became::Written | Became::Told),
        "reloading": matches!(became, Became::Told),
    });
    CommandOutcome { document, text }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Became {
    /// Everything was granted already.
    Nothing,
    /// The lines were only printed (`--print`).
    Printed,
    /// The lines were written to the file.
    Written,
    /// They were written, and the running host reloads its configuration.
    Told,
}

/// Notes on the difference between what the plugin asks for and what it is granted.
fn open_ends(plugin: &PluginFacts) -> String {
    let mut text = String::new();
    if !plugin.denied.is_empty() {
        text.push_str(&format!("\n{} asks for more than it was granted; to grant it:\n", plugin.name));
        text.push_str(&indented(&plugin.denied.join("\n")));
    }
    if !plugin.idle.is_empty() {
        text.push_str(&format!("\n{} was granted what its manifest does not ask for:\n", plugin.name));
        text.push_str(&indented(&plugin.idle.join("\n")));
    }
    text
}

/// Lines, each with two spaces before it.
pub(crate) fn indented(lines: &str) -> String {
    lines.lines().map(|line| format!("  {line}\n")).collect()
}

/// One line for each kind of grant that is not empty. `any` replaces `*`.
fn lines(reach: &PluginReach, any: &str) -> Vec<(&'static str, String)> {
    let named = |names: &[String]| -> String {
        let names: Vec<&str> = names.iter().map(|name| if name == "*" { any } else { name }).collect();
        names.join(", ")
    };
    let places: Vec<String> = reach.injections.iter().map(injection_text).collect();
    let lines = [
        ("imports", named(&reach.imports)),
        ("hosts", named(&reach.hosts)),
        ("secrets", named(&reach.secrets)),
        ("injections", places.join("; ")),
        ("placeholders in", named(&reach.placeholder_headers)),
    ];
    lines.into_iter().filter(|(_, what)| !what.is_empty()).collect()
}

/// An injection in words: secret, host and the place in the request.
pub(crate) fn injection_text(written: &cofferdam_runtime::WrittenInjection) -> String {
    let place = match (&written.header, &written.format, &written.query, &written.json) {
        (Some(header), Some(format), ..) => format!("{header}: {format}"),
        (_, _, Some(query), _) => format!("query parameter {query}"),
        (.., Some(json)) => format!("body at {json}"),
        _ => String::new(),
    };
    format!("{} to {} as {place}", written.secret, written.host)
}
