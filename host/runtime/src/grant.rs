//! The grant of a plugin: what its manifest requests and the operator allows, and which of its
//! requests to other hosts may carry which secrets. A refusal comes with the exact configuration
//! line that would lift it, for the log and the list of plugins; clients never see it.

mod denials;
mod hosts;
mod operator;
mod plan;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use cofferdam_store::{HostName, SecretName};

use crate::injection::InjectionRule;
use crate::manifest::{Import, MEMORY_MIB_MAX, Manifest};
use crate::recording::RecordedGrant;

pub use denials::Denial;
use hosts::HostAccess;
pub use hosts::HostGrant;
pub use operator::{Compile, OnReflection, OperatorGrant};
pub use plan::SecretPlan;
pub use refusal::UnsentRequest;

/// Processor time for each byte of a long input, in nanoseconds: about three times what the slowest
/// provider dialect takes for a request of 32 MB on the processor that it was measured on.
const NANOSECONDS_PER_BYTE: u64 = 100;

/// The vault from which a plugin's secret is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretSource {
    /// For an intern its own secret of the name, if it has one; otherwise the workspace's.
    Caller,
    /// The workspace's secret, even if the caller is an intern with a secret of the same name.
    Workspace,
    /// The operator's secret.
    Operator,
}

/// The effective grant of one plugin.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Imports that it may use beyond `log` and `config`.
    pub imports: BTreeSet<Import>,
    /// Hosts that it may reach.
    pub hosts: HostGrant,
    /// Secrets that it may have sent, to hosts that are granted by name only.
    pub secrets: BTreeSet<SecretName>,
    /// Places of secrets in every request to a host (egress rule R1). The guest cannot change them.
    pub injections: Vec<InjectionRule>,
    /// Headers in whose value it may write placeholders (egress rule R2).
    pub placeholder_headers: BTreeSet<String>,
    /// How an answer is handled in which a host sends a secret back.
    pub on_reflection: OnReflection,
    /// When the plugin is compiled.
    pub compile: Compile,
    pub(crate) memory_bytes: usize,
    /// The operator set the memory limit, so long requests do not raise it.
    pub(crate) is_memory_set: bool,
    /// Processor time of a call with a short input.
    pub(crate) deadline: Duration,
    /// The operator set the deadline, so long inputs do not raise it.
    is_deadline_set: bool,
    pub(crate) settings: Vec<u8>,
    /// Manifest and operator's table, to render the lines that would grant more.
    sides: Box<(Manifest, OperatorGrant)>,
}

/// The result of combining a manifest with the operator's table.
pub(crate) struct Joined {
    pub(crate) grant: Grant,
    /// Requested and not granted.
    pub(crate) denials: Vec<Denial>,
    /// Granted and not requested.
    pub(crate) idle: Vec<String>,
}

impl Grant {
    /// Combines requests and grants. Requests that are not granted are denied. `used` are the
    /// imports that the component really has.
    pub(crate) fn join(manifest: &Manifest, operator: &OperatorGrant, used: &BTreeSet<Import>) -> Joined {
        let hosts = HostGrant::join(&manifest.hosts, &operator.hosts, operator.any_host);
        let granted = |import: &Import| match import {
            Import::Http => !hosts.is_empty(),
            Import::Model | Import::ToolCall | Import::Request => {
                operator.imports.iter().any(|name| name == import.as_str())
            }
            // These need no grant: coarse time, random bytes, the public list of models, the
            // plugin's own bytes, and functions that the client gave it to search, are harmless.
            Import::Clock | Import::Random | Import::Catalog | Import::Scratch | Import::DeferredTools => {
                true
            }
        };
        let imports: BTreeSet<_> = manifest.imports.iter().copied().filter(granted).collect();
        let denials = denials::denials(manifest, operator, used, &imports);
        let idle = denials::idle(manifest, operator);
        let secrets = operator.secrets.union(&operator.operator_secrets);
        let secrets = secrets.filter(|name| manifest.secrets.covers(name));
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
            is_deadline_set: deadline.is_some(),
            deadline: deadline.unwrap_or_else(|| manifest.deadline()),
            settings: settings.into_bytes(),
            sides: Box::new((manifest.clone(), operator.clone())),
        };
        Joined { grant, denials, idle }
    }

    /// Processor time of a call with `input_bytes` bytes of input: more for a long input, unless the
    /// operator set the deadline.
    pub(crate) fn deadline_for(&self, input_bytes: usize) -> Duration {
        if self.is_deadline_set {
            return self.deadline;
        }
        let nanoseconds = NANOSECONDS_PER_BYTE.saturating_mul(u64::try_from(input_bytes).unwrap_or(u64::MAX));
        self.deadline.saturating_add(Duration::from_nanos(nanoseconds))
    }

    /// The most that one call of the tool costs by the operator's configuration, in dollars. `None`
    /// unless the manifest names a key for it and the configuration has that key.
    #[must_use]
    pub fn call_price(&self) -> Option<f64> {
        let (manifest, operator) = &*self.sides;
        let key = manifest.tool.as_ref().and_then(|tool| tool.price.as_ref());
        operator.config.get(key?)?.as_f64()
    }

    /// The imports that are linked: those that are granted, and those that the plugin can run
    /// without, which are linked but answer "denied".
    pub(crate) fn linked_imports(&self) -> impl Iterator<Item = Import> {
        self.imports.union(&self.sides.0.optional_imports).copied()
    }

    /// What of the grant the guest can notice, for a recording.
    pub(crate) fn recorded(&self) -> RecordedGrant {
        let (_, operator) = &*self.sides;
        RecordedGrant {
            imports: operator.imports.clone(),
            hosts: operator.hosts.iter().map(ToString::to_string).collect(),
            any_host: operator.any_host,
            memory_mib: operator.memory_mib,
            deadline_ms: u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX),
            settings: operator.config.clone(),
        }
    }

    /// The lines that would grant these imports.
    pub(crate) fn denials_of(&self, imports: &BTreeSet<Import>) -> Vec<Denial> {
        let (manifest, operator) = &*self.sides;
        denials::of_imports(manifest, operator, imports)
    }

    /// The vault from which a secret of this name is released. A hook that judges does not get
    /// secrets of an intern: the intern could break the hook with a wrong secret of the same name.
    #[must_use]
    pub fn source(&self, secret: &SecretName) -> SecretSource {
        let (manifest, operator) = &*self.sides;
        if operator.operator_secrets.contains(secret) {
            SecretSource::Operator
        } else if manifest.hook.as_ref().is_some_and(|hook| hook.judges) {
            SecretSource::Workspace
        } else {
            SecretSource::Caller
        }
    }

    /// The line that would let the plugin reach this host by name.
    fn line_for_host(&self, host: &HostName) -> String {
        let (manifest, operator) = &*self.sides;
        denials::line_for_host(manifest, &operator.hosts, host)
    }

    /// The line that would let the plugin use this secret.
    fn line_for_secret(&self, secret: &SecretName) -> String {
        let (manifest, operator) = &*self.sides;
        denials::line_for_secret(manifest, &operator.secrets, secret)
    }

    /// The line that would let the plugin write placeholders into this header.
    fn line_for_header(&self, header: &str) -> String {
        let (manifest, operator) = &*self.sides;
        denials::line_for_header(manifest, &operator.placeholder_headers, header)
    }
}

/// What the manifest asks for and the operator does not grant, each with the line that would grant
/// it.
#[must_use]
pub fn missing_grants(manifest: &Manifest, operator: &OperatorGrant) -> Vec<Denial> {
    Grant::join(manifest, operator, &manifest.imports).denials
}

/// The operator's injections, and those of the manifest that do not conflict with them: the
/// operator decides where a secret is sent. Limited to granted secrets and to hosts that are
/// granted by name.
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
