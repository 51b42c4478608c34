//! The manifest of a plugin, `NAME.toml`: its kind and what it requests. Parsed strictly: an
//! unknown key is an error with its line number, because a misspelt limit or grant without effect
//! is worse than a refused start.

mod asks;
mod kinds;
mod tool;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cofferdam_store::{HostName, SecretName};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use asks::Asked;
pub use kinds::{Import, PluginKind};
pub use tool::{Arguments, Asks, ItemTable, TextTable, ToolTable};

use crate::error::ManifestError;
use crate::injection::InjectionRule;
use crate::text::is_shown;

/// Upper limit of the memory that a plugin may request, in MiB: the size of one slot of the pool.
pub const MEMORY_MIB_MAX: u32 = 256;
/// Upper limit of the processor time that a plugin may request per call, in milliseconds.
pub const DEADLINE_MS_MAX: u32 = 60_000;

/// How a provider's stream is split into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// Server-sent events: one frame per event.
    #[default]
    Sse,
    /// Newline-delimited JSON: one frame per line.
    Ndjson,
}

/// The header in which the host sends a provider's credential.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialSlot {
    /// The header's name, in lower case.
    pub header: String,
    /// The header's value, with `{}` in place of the credential.
    pub format: String,
}

/// The `[provider.models]` table: a GET that lists the models of a provider. It costs nothing, so a
/// credential can be tried with it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelsRoute {
    /// The path below `base_url`.
    pub path: String,
    /// Headers that the provider asks for, besides the one of the credential.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// The `[provider]` table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderTable {
    /// How the provider's stream is split into frames.
    #[serde(default)]
    pub framing: Framing,
    /// The place of the credential. Absent for dialects without one.
    pub credential: Option<CredentialSlot>,
    /// Where providers of this dialect list their models. Absent for dialects without such a list.
    pub models: Option<ModelsRoute>,
    /// Names of the answer's headers that the guest may read, in lower case.
    #[serde(default)]
    pub response_headers: Vec<String>,
    /// Types of client-run tools that this dialect can offer to a model.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The dialect accepts every item of the Responses format unchanged. For other dialects the
    /// host renders items such as `additional_tools` or `agent_message` as functions and messages.
    #[serde(default)]
    pub takes_items: bool,
    /// Types of hosted tools, which a provider of this dialect runs itself. Each with the members
    /// that it may have besides `type`.
    #[serde(default)]
    pub hosted_tools: BTreeMap<String, BTreeSet<String>>,
    /// Fields of `provider.options` that a client may set because they cost nothing beyond the
    /// endpoint's prices. Compared without regard to case.
    #[serde(default)]
    pub options: Vec<String>,
    /// Names that a client may put into the field `betas` of `provider.options`, for the same
    /// reason.
    #[serde(default)]
    pub betas: Vec<String>,
    /// The guest keeps no state between `prepare` and the answer. While the host waits for the
    /// provider, the instance may serve other requests of the same owner, and another instance may
    /// decode the answer.
    #[serde(default)]
    pub stateless: bool,
    /// The dialect supports `truncation: auto`, so the host passes it on.
    #[serde(default)]
    pub truncates: bool,
}

impl ProviderTable {
    /// The first list with an empty or repeated name, and the message about it.
    fn problem(&self) -> Option<(&'static str, String)> {
        let mut lists = [("options", &self.options), ("betas", &self.betas)].into_iter();
        let (key, _) = lists.find(|(_, names)| {
            let mut known = BTreeSet::new();
            names.iter().any(|name| name.is_empty() || !known.insert(name.to_lowercase()))
        })?;
        Some((key, "takes names, each once in whatever case".to_owned()))
    }
}

/// When a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookPhase {
    /// Before the request is routed.
    OnRequest,
    /// After the answer is complete.
    OnResponse,
}

impl HookPhase {
    /// The name of the phase's interface in `wit/`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnRequest => "on-request",
            Self::OnResponse => "on-response",
        }
    }
}

/// How a stream is handled for a hook with the phase `on-response`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnStream {
    /// The answer is held back until the hook has checked all of it.
    #[default]
    Hold,
    /// The stream is sent directly and the hook is not called.
    Pass,
}

/// The `[hook]` table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookTable {
    /// The id of the hook in the entries of a request's `plugins`.
    pub id: String,
    /// The phases in which the hook is called.
    pub phases: BTreeSet<HookPhase>,
    /// The hook judges requests, as moderation does. It is called after the hooks that do not
    /// judge, whatever the order of the entries, so no content is added after its verdict.
    #[serde(default)]
    pub judges: bool,
    /// How streams are handled, for the phase `on-response`.
    #[serde(default)]
    pub on_stream: OnStream,
}

/// The `[router]` table, for model routers with settings of their own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterTable {
    /// The id of the entry in a request's `plugins` that is passed to the router as its settings.
    pub id: String,
}

/// The `[limits]` table: limits that the plugin requests. The operator may set others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsTable {
    /// Memory limit of an instance in MiB, 1 to [`MEMORY_MIB_MAX`].
    pub memory_mib: Option<u32>,
    /// Processor time limit per call in milliseconds, 1 to [`DEADLINE_MS_MAX`].
    pub deadline_ms: Option<u32>,
}

/// A checked manifest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The plugin's name: lower-case letters, digits and hyphens, at most 64.
    pub name: String,
    /// Router, provider, hook or tool.
    pub kind: PluginKind,
    /// The author's version number, in the form of semver.org where the plugin is installed.
    pub version: String,
    /// One sentence about the plugin, for display only.
    #[serde(default)]
    pub description: String,
    /// File name of the component in the manifest's folder; `NAME.wasm` if empty.
    #[serde(default)]
    pub component: String,
    /// Imports that it requests beyond `log` and `config`.
    #[serde(default)]
    pub imports: BTreeSet<Import>,
    /// Those of `imports` that it can run without. If one is not granted, the plugin is usable all
    /// the same and calls of that interface are denied.
    #[serde(default)]
    pub optional_imports: BTreeSet<Import>,
    /// Hosts that it requests to reach.
    #[serde(default, deserialize_with = "asks::hosts")]
    pub hosts: Asked<HostName>,
    /// Secrets that it requests. The host adds their values to requests; the guest never gets them.
    #[serde(default, deserialize_with = "asks::secrets")]
    pub secrets: Asked<SecretName>,
    /// Places in which it requests these secrets to be sent, in every request to a host
    /// (egress rule R1).
    #[serde(default)]
    pub injections: Vec<InjectionRule>,
    /// Headers in whose value it requests to write `{{secret:NAME}}`, in lower case
    /// (egress rule R2).
    #[serde(default, deserialize_with = "asks::headers")]
    pub placeholder_headers: BTreeSet<String>,
    /// Limits that it requests.
    #[serde(default)]
    pub limits: LimitsTable,
    /// For model routers with settings of their own. Without this table, a model router gets the
    /// entry of the known router with whose id its model name begins.
    pub router: Option<RouterTable>,
    /// For providers; optional.
    pub provider: Option<ProviderTable>,
    /// For hooks; required.
    pub hook: Option<HookTable>,
    /// For tools; required.
    pub tool: Option<ToolTable>,
}

/// Limits of each kind of plugin if its manifest sets none.
struct Defaults {
    memory_mib: u32,
    deadline_ms: u32,
}

impl PluginKind {
    fn defaults(self) -> Defaults {
        match self {
            Self::Router => Defaults { memory_mib: 32, deadline_ms: 20 },
            Self::Provider => Defaults { memory_mib: 64, deadline_ms: 100 },
            Self::Hook => Defaults { memory_mib: 64, deadline_ms: 200 },
            Self::Tool => Defaults { memory_mib: 64, deadline_ms: 2_000 },
        }
    }
}

impl Manifest {
    /// Parses and checks a manifest.
    ///
    /// # Errors
    ///
    /// The first mistake, with its line.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let mistake = |error: toml::de::Error| ManifestError {
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            message: first_line(error.message()),
        };
        let table = DeTable::parse(text).map_err(mistake)?;
        // First: other errors may repeat a text of the manifest.
        if let Some(key) = hidden_below(table.get_ref()) {
            let name = key.get_ref().escape_debug();
            let message = format!("`{name}` has a control character, or one that a terminal does not show");
            return Err(ManifestError { line: line_of(text, key.span().start), message });
        }
        let mut manifest = Self::deserialize(toml::Deserializer::from(table)).map_err(mistake)?;
        if manifest.component.is_empty() {
            manifest.component = format!("{}.wasm", manifest.name);
        }
        match manifest.problem() {
            Some((key, message)) => {
                Err(ManifestError { line: line_of_key(text, key), message: format!("`{key}` {message}") })
            }
            None => Ok(manifest),
        }
    }

    /// The id of the entries in a request's `plugins` that are for this plugin, besides the ids
    /// that every host has.
    #[must_use]
    pub fn entry_id(&self) -> Option<&str> {
        let hook = self.hook.as_ref().map(|hook| hook.id.as_str());
        hook.or_else(|| self.router.as_ref().map(|router| router.id.as_str()))
    }

    /// The requested memory limit in MiB, or the default of the kind.
    #[must_use]
    pub fn memory_mib(&self) -> u32 {
        self.limits.memory_mib.unwrap_or_else(|| self.kind.defaults().memory_mib)
    }

    /// The requested processor time per call, or the default of the kind.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        let deadline_ms = self.limits.deadline_ms.unwrap_or_else(|| self.kind.defaults().deadline_ms);
        Duration::from_millis(deadline_ms.into())
    }

    /// The first key with a value that its type allows but a rule does not, and the message about
    /// it.
    fn problem(&self) -> Option<(&'static str, String)> {
        if !is_name(&self.name) {
            return Some(("name", "takes lower-case letters, digits and hyphens, at most 64".to_owned()));
        }
        if !is_file_name(&self.component) {
            return Some(("component", "names a file beside the manifest, ending in .wasm".to_owned()));
        }
        let allowed = self.kind.optional_imports();
        if let Some(import) = self.imports.iter().find(|import| !allowed.contains(import)) {
            return Some(("imports", format!("names {import}, which a {} cannot have", self.kind)));
        }
        if let Some(import) = self.optional_imports.difference(&self.imports).next() {
            return Some(("optional_imports", format!("names {import}, which `imports` does not")));
        }
        self.problem_of_network().or_else(|| self.problem_of_limits()).or_else(|| self.problem_of_tables())
    }

    fn problem_of_network(&self) -> Option<(&'static str, String)> {
        let asks = [
            ("hosts", !self.hosts.is_empty()),
            ("secrets", !self.secrets.is_empty()),
            ("placeholder_headers", !self.placeholder_headers.is_empty()),
        ];
        if let Some((key, _)) = asks.into_iter().find(|(_, asked)| *asked)
            && !self.imports.contains(&Import::Http)
        {
            return Some((key, "needs imports = [\"http\"]".to_owned()));
        }
        for (index, rule) in self.injections.iter().enumerate() {
            if !self.secrets.covers(&rule.secret) {
                return Some(("injections", format!("names {}, which `secrets` does not", rule.secret)));
            }
            if !self.hosts.covers(&rule.host) {
                return Some(("injections", format!("names {}, which `hosts` does not", rule.host)));
            }
            if self.injections.iter().take(index).any(|earlier| earlier.collides(rule)) {
                return Some(("injections", format!("puts two secrets into one place for {}", rule.host)));
            }
        }
        None
    }

    fn problem_of_limits(&self) -> Option<(&'static str, String)> {
        if self.limits.memory_mib.is_some_and(|asked| !(1..=MEMORY_MIB_MAX).contains(&asked)) {
            return Some(("memory_mib", format!("takes 1 to {MEMORY_MIB_MAX}")));
        }
        if self.limits.deadline_ms.is_some_and(|asked| !(1..=DEADLINE_MS_MAX).contains(&asked)) {
            return Some(("deadline_ms", format!("takes 1 to {DEADLINE_MS_MAX}")));
        }
        None
    }

    fn problem_of_tables(&self) -> Option<(&'static str, String)> {
        let tables = [
            ("router", PluginKind::Router, self.router.is_some(), false),
            ("provider", PluginKind::Provider, self.provider.is_some(), false),
            ("hook", PluginKind::Hook, self.hook.is_some(), true),
            ("tool", PluginKind::Tool, self.tool.is_some(), true),
        ];
        for (table, kind, present, required) in tables {
            if present && kind != self.kind {
                return Some((table, format!("is a table of {kind} plugins, this one is a {}", self.kind)));
            }
            if required && !present && kind == self.kind {
                return Some(("kind", format!("= \"{kind}\" needs a table [{table}]")));
            }
        }
        if let Some(slot) = self.provider.as_ref().and_then(|provider| provider.credential.as_ref()) {
            if slot.format.matches("{}").count() != 1 {
                return Some(("credential", "needs a format with {} exactly once".to_owned()));
            }
            if !is_header_name(&slot.header) {
                return Some(("credential", "needs a lower-case header name".to_owned()));
            }
        }
        let hidden = self.provider.iter().flat_map(|provider| &provider.response_headers);
        if hidden.clone().any(|name| !is_header_name(name)) {
            return Some(("response_headers", "takes lower-case header names".to_owned()));
        }
        if let Some(problem) = self.provider.as_ref().and_then(ProviderTable::problem) {
            return Some(problem);
        }
        if self.hook.as_ref().is_some_and(|hook| hook.phases.is_empty()) {
            return Some(("phases", "names at least one of on-request and on-response".to_owned()));
        }
        let ids = [self.hook.as_ref().map(|hook| &hook.id), self.router.as_ref().map(|router| &router.id)];
        if ids.into_iter().flatten().any(String::is_empty) {
            return Some(("id", "must not be empty".to_owned()));
        }
        self.tool.as_ref().and_then(ToolTable::problem)
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
}

/// Returns whether the name is a plain file name: a manifest must not name a file outside its own
/// folder.
fn is_file_name(name: &str) -> bool {
    name.len() <= 128
        && name.strip_suffix(".wasm").is_some_and(|stem| !stem.is_empty() && !stem.starts_with('.'))
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
        })
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// The line that sets `key`, or begins the table of this name, for values that parse but break a rule; 1 if there
/// is none.
fn line_of_key(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        let line = line.trim_start().trim_start_matches('[');
        line.strip_prefix(key)
            .is_some_and(|rest| matches!(rest.trim_start().bytes().next(), Some(b'=' | b']')))
    };
    text.lines().position(sets).map_or(1, |index| index + 1)
}

type Key<'t> = Spanned<Cow<'t, str>>;

/// The first key that has, or whose value has, a character that a terminal does not show as itself. Operators read
/// these texts before they grant what a plugin asks for.
fn hidden_below<'a, 't>(table: &'a DeTable<'t>) -> Option<&'a Key<'t>> {
    table.iter().find_map(|(key, value)| {
        let is_hidden = !key.get_ref().chars().all(is_shown);
        if is_hidden { Some(key) } else { hidden_in(key, value.get_ref()) }
    })
}

fn hidden_in<'a, 't>(key: &'a Key<'t>, value: &'a DeValue<'t>) -> Option<&'a Key<'t>> {
    match value {
        DeValue::String(text) => (!text.chars().all(is_shown)).then_some(key),
        DeValue::Array(items) => items.iter().find_map(|item| hidden_in(key, item.get_ref())),
        DeValue::Table(table) => hidden_below(table),
        _ => None,
    }
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
