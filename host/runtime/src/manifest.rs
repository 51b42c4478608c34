//! `plugins/NAME.toml`: what a plugin is and what it asks for. Read strictly:
//! an unknown key is an error with its line, because a misspelt limit or grant
//! that silently does nothing is worse than a refused start.

mod asks;
mod kinds;
mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cofferdam_store::{HostName, SecretName};
use serde::Deserialize;

pub use asks::Asked;
pub use kinds::{Import, Kind};
pub use tool::{Arguments, Asks, ItemTable, TextTable, ToolTable};

use crate::error::ManifestError;
use crate::injection::InjectionRule;

/// Most memory a plugin may ask for, in MiB: what one slot of the pool holds.
pub const MEMORY_MIB_MAX: u32 = 256;
/// Longest processor time a plugin may ask for per call, in milliseconds.
pub const DEADLINE_MS_MAX: u32 = 60_000;

/// How a provider's stream is cut into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// Server-sent events.
    #[default]
    Sse,
    /// One JSON document per line.
    Ndjson,
}

/// Where the host puts a provider's credential.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialSlot {
    /// The header's name in lower case.
    pub header: String,
    /// The header's value around `{}`.
    pub format: String,
}

/// The `[provider]` table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderTable {
    /// How streams are cut.
    #[serde(default)]
    pub framing: Framing,
    /// Where the credential goes; absent for dialects without one.
    pub credential: Option<CredentialSlot>,
    /// Headers of the answer that the guest may see, lower case.
    #[serde(default)]
    pub response_headers: Vec<String>,
    /// Types of tools that a client runs and this dialect can offer to a model.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The dialect takes every item of the interface as it is. Others are told items of a client's own, such as
    /// `additional_tools` or `agent_message`, as functions and messages.
    #[serde(default)]
    pub takes_items: bool,
    /// Types of tools that a provider of this dialect runs itself, each with the members that it carries besides
    /// `type`.
    #[serde(default)]
    pub hosted_tools: BTreeMap<String, BTreeSet<String>>,
    /// Fields of `provider.options` that a client may set and that cost nothing beyond the endpoint's prices.
    /// Letters of either case are alike.
    #[serde(default)]
    pub options: Vec<String>,
    /// Names that the field `betas` of `provider.options` may hold, likewise.
    #[serde(default)]
    pub betas: Vec<String>,
    /// Nothing is remembered between `prepare` and the answer: while the provider is waited for, the instance
    /// may serve others of the same owner, and another one may decode.
    #[serde(default)]
    pub stateless: bool,
    /// The dialect has `truncation: auto` itself.
    #[serde(default)]
    pub truncates: bool,
}

impl ProviderTable {
    /// The first list of names in which one is empty or stands twice.
    fn problem(&self) -> Option<(&'static str, String)> {
        let mut lists = [("options", &self.options), ("betas", &self.betas)].into_iter();
        let (key, _) = lists.find(|(_, names)| {
            let mut known = BTreeSet::new();
            names.iter().any(|name| name.is_empty() || !known.insert(name.to_lowercase()))
        })?;
        Some((key, "takes names, each once in whatever case".to_owned()))
    }
}

/// A phase of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Before routing.
    OnRequest,
    /// After the answer.
    OnResponse,
}

impl Phase {
    /// The name of the interface in `wit/`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnRequest => "on-request",
            Self::OnResponse => "on-response",
        }
    }
}

/// What becomes of a stream for a hook in the phase on-response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnStream {
    /// The answer is held back until the hook has seen all of it.
    #[default]
    Hold,
    /// The hook is not called.
    Pass,
}

/// The `[hook]` table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookTable {
    /// The id a request's `plugins` entry names it by.
    pub id: String,
    /// When it is called.
    pub phases: BTreeSet<Phase>,
    /// It judges what others make of a request: whatever the order of the entries, it is called after hooks that
    /// do not, so that nothing it would refuse is put in behind its back.
    #[serde(default)]
    pub judges: bool,
    /// What becomes of a stream, if it sees answers.
    #[serde(default)]
    pub on_stream: OnStream,
}

/// The `[router]` table, for model routers with settings of their own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterTable {
    /// The id of the entry in a request's `plugins` that it is given as settings.
    pub id: String,
}

/// The `[limits]` table: what the plugin asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsTable {
    /// Memory of all its memories together, in MiB, 1 to [`MEMORY_MIB_MAX`].
    pub memory_mib: Option<u32>,
    /// Processor time per call in milliseconds, 1 to [`DEADLINE_MS_MAX`].
    pub deadline_ms: Option<u32>,
}

/// A checked manifest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Lower-case letters, digits and hyphens, at most 64.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The author's version, for people.
    pub version: String,
    /// One sentence, for people.
    #[serde(default)]
    pub description: String,
    /// The file of the component beside the manifest; `NAME.wasm` when empty.
    #[serde(default)]
    pub component: String,
    /// Optional imports it asks for.
    #[serde(default)]
    pub imports: BTreeSet<Import>,
    /// Those of its imports that it can do without: where one is not granted, the plugin runs and finds that
    /// door closed.
    #[serde(default)]
    pub optional_imports: BTreeSet<Import>,
    /// Hosts it asks to reach.
    #[serde(default, deserialize_with = "asks::hosts")]
    pub hosts: Asked<HostName>,
    /// Secrets it asks to have placed.
    #[serde(default, deserialize_with = "asks::secrets")]
    pub secrets: Asked<SecretName>,
    /// Where it asks to have them placed, in every request to a host.
    #[serde(default)]
    pub injections: Vec<InjectionRule>,
    /// Headers in whose value it asks to write `{{secret:NAME}}`, in lower case.
    #[serde(default, deserialize_with = "asks::headers")]
    pub placeholder_headers: BTreeSet<String>,
    /// Limits it asks for.
    #[serde(default)]
    pub limits: LimitsTable,
    /// For model routers; without it one has the entries of the names that it shares with the known ones.
    pub router: Option<RouterTable>,
    /// For providers; defaults when absent.
    pub provider: Option<ProviderTable>,
    /// For hooks, required there.
    pub hook: Option<HookTable>,
    /// For tools, required there.
    pub tool: Option<ToolTable>,
}

/// What a plugin of each kind gets when its manifest is silent.
struct Defaults {
    memory_mib: u32,
    deadline_ms: u32,
}

impl Kind {
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
    /// Reads and checks a manifest.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let mut manifest: Self = toml::from_str(text).map_err(|error| ManifestError {
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            message: first_line(error.message()),
        })?;
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

    /// The id of the entries in a request's `plugins` that this plugin answers to, beside those that every host
    /// knows.
    #[must_use]
    pub fn entry_id(&self) -> Option<&str> {
        let hook = self.hook.as_ref().map(|hook| hook.id.as_str());
        hook.or_else(|| self.router.as_ref().map(|router| router.id.as_str()))
    }

    /// Memory asked for, in MiB.
    #[must_use]
    pub fn memory_mib(&self) -> u32 {
        self.limits.memory_mib.unwrap_or_else(|| self.kind.defaults().memory_mib)
    }

    /// Processor time asked for, per call.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        let deadline_ms = self.limits.deadline_ms.unwrap_or_else(|| self.kind.defaults().deadline_ms);
        Duration::from_millis(deadline_ms.into())
    }

    /// The first key whose value breaks a rule that its type cannot express.
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
            ("router", Kind::Router, self.router.is_some(), false),
            ("provider", Kind::Provider, self.provider.is_some(), false),
            ("hook", Kind::Hook, self.hook.is_some(), true),
            ("tool", Kind::Tool, self.tool.is_some(), true),
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
            if slot.format.matches("{}").count() != 1 || slot.format.chars().any(char::is_control) {
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

/// A manifest must not reach outside its own folder.
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

/// The line that sets `key`, for values that parse but break a rule; 1 when it
/// is absent.
fn line_of_key(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        let line = line.trim_start().trim_start_matches('[');
        line.strip_prefix(key)
            .is_some_and(|rest| matches!(rest.trim_start().bytes().next(), Some(b'=' | b']')))
    };
    text.lines().position(sets).map_or(1, |index| index + 1)
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
