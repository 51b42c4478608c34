//! What one plugin may do: what its manifest asks AND the operator grants. A
//! refusal carries the exact line that would lift it, for the log and the list
//! of plugins; clients never see it.

mod denials;
mod hosts;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use cofferdam_store::{HostName, SecretName};

use crate::injection::InjectionRule;
use crate::manifest::{Import, MEMORY_MIB_MAX, Manifest};

pub use denials::Denial;
pub use hosts::{HostAccess, HostGrant};

/// What the operator grants to one plugin: the table `[plugins.NAME]`.
#[derive(Debug, Clone, Default)]
pub struct OperatorGrant {
    /// Hosts it may reach. Granting one grants the import `http`.
    pub hosts: BTreeSet<HostName>,
    /// Whether it may reach every public host, without a secret: `hosts = ["*"]`.
    pub any_host: bool,
    /// Secrets it may have placed.
    pub secrets: BTreeSet<SecretName>,
    /// Where secrets go in every request to a host.
    pub injections: Vec<InjectionRule>,
    /// Headers in whose value it may write `{{secret:NAME}}`, in lower case.
    pub placeholder_headers: BTreeSet<String>,
    /// What happens when a host sends a secret back.
    pub on_reflection: OnReflection,
    /// Imports that cost money or show content: `model`, `tool-call`, `request`.
    pub imports: Vec<String>,
    /// The memory it has in place of what it asks for, in MiB.
    pub memory_mib: Option<u32>,
    /// The processor time per call it has in place of what it asks for, in milliseconds.
    pub deadline_ms: Option<u32>,
    /// Its settings, a JSON object; null for none.
    pub config: serde_json::Value,
    /// The SHA-256 its component must have, in lower-case hexadecimal.
    pub sha256: Option<String>,
    /// Whether a plugin of this name may take the place of the built-in one.
    pub replaces: bool,
    /// When it is compiled.
    pub compile: Compile,
}

/// When a plugin is compiled that neither routes nor serves a configured model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compile {
    /// Once the host is ready, one plugin at a time.
    #[default]
    Background,
    /// Before the host is ready.
    Start,
}

/// What happens to an answer in which the host sends a secret back (R19). It is
/// audited either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnReflection {
    /// The value is replaced by the secret's name.
    #[default]
    Redact,
    /// The guest gets an error in place of the answer.
    Block,
}

/// The effective grant of one plugin.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Imports it may use beyond log and config.
    pub imports: BTreeSet<Import>,
    /// Hosts it may reach.
    pub hosts: HostGrant,
    /// Secrets it may have placed, at hosts that are granted by name.
    pub secrets: BTreeSet<SecretName>,
    /// Where secrets go in every request to a host, whatever the guest says (R1).
    pub injections: Vec<InjectionRule>,
    /// Headers in whose value it may write placeholders (R2).
    pub placeholder_headers: BTreeSet<String>,
    /// What happens when a host sends a secret back.
    pub on_reflection: OnReflection,
    /// When it is compiled.
    pub compile: Compile,
    pub(crate) memory_bytes: usize,
    /// The operator set the memory, so that long requests get no more.
    pub(crate) is_memory_set: bool,
    pub(crate) deadline: Duration,
    pub(crate) settings: Vec<u8>,
    /// Both sides, for the lines that would allow more.
    sides: Box<(Manifest, OperatorGrant)>,
}

/// What came of joining the two sides.
pub(crate) struct Joined {
    pub(crate) grant: Grant,
    /// Asked for and not granted.
    pub(crate) denials: Vec<Denial>,
    /// Granted and not asked for.
    pub(crate) idle: Vec<String>,
}

impl Grant {
    /// Joins what is asked with what is granted; what is left over is denied.
    /// `used` are the imports the component really has.
    pub(crate) fn join(manifest: &Manifest, operator: &OperatorGrant, used: &BTreeSet<Import>) -> Joined {
        let hosts = HostGrant::join(&manifest.hosts, &operator.hosts, operator.any_host);
        let granted = |import: &Import| match import {
            Import::Http => !hosts.is_empty(),
            Import::Model | Import::ToolCall | Import::Request => {
                operator.imports.iter().any(|name| name == import.as_str())
            }
            // Coarse time, random bytes, the public list of models, the plugin's own bytes
            // and what a client gave it to search harm nobody: asking is enough.
            Import::Clock | Import::Random | Import::Catalog | Import::Scratch | Import::DeferredTools => {
                true
            }
        };
        let imports: BTreeSet<_> = manifest.imports.iter().copied().filter(granted).collect();
        let denials = denials::denials(manifest, operator, used, &imports);
        let idle = denials::idle(manifest, operator);
        let secrets = operator.secrets.iter().filter(|name| manifest.secrets.covers(name));
        let secrets: BTreeSet<_> = secrets.cloned().collect();
        let headers = manifest.placeholder_headers.intersection(&operator.placeholder_headers);
        let memory_mib = operator.memory_mib.unwrap_or_else(|| manifest.memory_mib()).min(MEMORY_MIB_MAX);
        let deadline = operator.deadline_ms.map(|deadline| Duration::from_millis(deadline.into()));
        let settings =
            if operator.config.is_object() { operator.config.to_string() } else { "{}".to_owned() };
        let grant = Self {
            imports,
            injections: injections(manifest, operator, &hosts, &secrets),
            hosts,
            secrets,
            placeholder_headers: headers.cloned().collect(),
            on_reflection: operator.on_reflection,
            compile: operator.compile,
            memory_bytes: memory_mib as usize * 1024 * 1024,
            is_memory_set: operator.memory_mib.is_some(),
            deadline: deadline.unwrap_or_else(|| manifest.deadline()),
            settings: settings.into_bytes(),
            sides: Box::new((manifest.clone(), operator.clone())),
        };
        Joined { grant, denials, idle }
    }

    /// What its linker holds: what is granted, and what it does without, whose doors are closed.
    pub(crate) fn linked_imports(&self) -> impl Iterator<Item = Import> {
        self.imports.union(&self.sides.0.optional_imports).copied()
    }

    /// What would allow these imports, which are not granted.
    pub(crate) fn denials_of(&self, imports: &BTreeSet<Import>) -> Vec<Denial> {
        let (manifest, operator) = &*self.sides;
        denials::of_imports(manifest, operator, imports)
    }

    /// Granted secrets that no injection says a place for. They go as
    /// `authorization: Bearer` to the granted hosts they are bound to.
    pub fn unplaced_secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.secrets.iter().filter(|name| !self.injections.iter().any(|rule| rule.secret == **name))
    }

    /// The line that would let the plugin reach this host by its name.
    #[must_use]
    pub fn line_for_host(&self, host: &HostName) -> String {
        let (manifest, operator) = &*self.sides;
        denials::line_for_host(manifest, &operator.hosts, host)
    }

    /// The line that would let the plugin use this secret.
    #[must_use]
    pub fn line_for_secret(&self, secret: &SecretName) -> String {
        let (manifest, operator) = &*self.sides;
        denials::line_for_secret(manifest, &operator.secrets, secret)
    }

    /// The line that would let the plugin write placeholders into this header.
    #[must_use]
    pub fn line_for_header(&self, header: &str) -> String {
        let (manifest, operator) = &*self.sides;
        denials::line_for_header(manifest, &operator.placeholder_headers, header)
    }
}

/// The operator's injections, and those of the manifest that they leave room for:
/// who runs the plugin decides where a secret goes. Only of what is granted, and
/// to hosts that are granted by name.
fn injections(
    manifest: &Manifest,
    operator: &OperatorGrant,
    hosts: &HostGrant,
    secrets: &BTreeSet<SecretName>,
) -> Vec<InjectionRule> {
    let replaced = |rule: &InjectionRule| {
        let same =
            |own: &InjectionRule| own.collides(rule) || (own.host == rule.host && own.secret == rule.secret);
        operator.injections.iter().any(same)
    };
    let asked = manifest.injections.iter().filter(|rule| !replaced(rule));
    let granted = |rule: &&InjectionRule| {
        secrets.contains(&rule.secret) && hosts.access(&rule.host) == Some(HostAccess::Named)
    };
    operator.injections.iter().chain(asked).filter(granted).cloned().collect()
}
