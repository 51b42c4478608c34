//! What the operator grants to one plugin.

use std::collections::BTreeSet;

use cofferdam_store::{HostName, SecretName};

use crate::injection::InjectionRule;

/// What the operator grants to one plugin: the table `[plugins.NAME]`.
#[derive(Debug, Clone, Default)]
pub struct OperatorGrant {
    /// Hosts that the plugin may reach. Granting a host grants the import `http`.
    pub hosts: BTreeSet<HostName>,
    /// Whether it may reach every public host, without secrets: `hosts = ["*"]`.
    pub any_host: bool,
    /// Secrets that it may have sent in its requests, from the vault of the caller.
    pub secrets: BTreeSet<SecretName>,
    /// Secrets of the operator's vault that it may have sent in its requests, for any caller.
    pub operator_secrets: BTreeSet<SecretName>,
    /// Places of secrets in every request to a host.
    pub injections: Vec<InjectionRule>,
    /// Headers in whose value it may write `{{secret:NAME}}`, in lower case.
    pub placeholder_headers: BTreeSet<String>,
    /// How an answer is handled in which a host sends a secret back.
    pub on_reflection: OnReflection,
    /// Imports that are granted by name because they cost money or reveal content: `model`,
    /// `tool-call`, `request`.
    pub imports: Vec<String>,
    /// Memory limit in MiB, instead of the one that it requests.
    pub memory_mib: Option<u32>,
    /// Processor time per call in milliseconds, instead of the one that it requests.
    pub deadline_ms: Option<u32>,
    /// The plugin's settings, a JSON object; null for none.
    pub config: serde_json::Value,
    /// The SHA-256 that its component must have, in lower-case hexadecimal.
    pub sha256: Option<String>,
    /// Whether a plugin of this name may replace the built-in one.
    pub replaces: bool,
    /// When the plugin is compiled.
    pub compile: Compile,
    /// How many recordings of failing calls are kept; `None` records none.
    pub record: Option<u32>,
}

/// When a plugin is compiled. Routers, and providers of configured models, are always compiled
/// before the host is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compile {
    /// After the host is ready, one plugin at a time.
    #[default]
    Background,
    /// Before the host is ready.
    Start,
}

/// How an answer is handled in which the host sends a secret back (egress rule R19). It is audited
/// in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnReflection {
    /// The value is replaced by the secret's name.
    #[default]
    Redact,
    /// The guest gets an error instead of the answer.
    Block,
}
