//! `[[providers]]`: the upstream services. A `base_url` is the operator's grant of that one origin;
//! the egress crate checks it.

use std::collections::BTreeSet;

use cofferdam_egress::{EgressConfig, Origin};
use cofferdam_store::SecretName;

use super::ConfigSpan;
use super::document::{ConfigValue, Table};

/// The source of a provider's credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    Env(String),
    Operator(SecretName),
}

#[derive(Debug, Clone)]
pub struct ProviderConfig {
    pub name: String,
    /// The dialect: the name of its plugin without `provider-`.
    pub adapter: String,
    /// `None` for a provider that sends no requests, such as the demo.
    pub origin: Option<Origin>,
    /// The source of its credential, and the position in the file.
    pub key: Option<(KeySource, ConfigSpan)>,
    /// The secret of the caller's vault that is used instead of `key` if it is bound to the
    /// origin's host.
    pub byok: Option<SecretName>,
    /// Fields of `provider.options` that clients may set in addition to those in the adapter's
    /// manifest.
    pub options: Vec<String>,
    /// Values of `betas` that clients may set in addition to those in the adapter's manifest.
    pub betas: Vec<String>,
    pub place: ConfigSpan,
}

pub(super) fn read(tables: &[Table<'_>], egress: &EgressConfig) -> Vec<ProviderConfig> {
    let mut providers: Vec<ProviderConfig> = Vec::new();
    for table in tables {
        let name = table.required_text("name");
        if providers.iter().any(|provider| provider.name == name.value) {
            name.reject(format!("a provider named `{}` exists already", name.value));
        }
        let adapter = table.required_text("adapter");
        if !is_plain_name(&adapter.value) {
            adapter.reject("expected lower-case letters, digits and hyphens");
        }
        let key = table.text("key").and_then(|written| Some((key_source(&written)?, written.place())));
        let byok = table.text("byok").and_then(|written| secret_name(&written, &written.value));
        let host_bound = byok.is_some() || matches!(key, Some((KeySource::Operator(_), _)));
        providers.push(ProviderConfig {
            origin: origin(table, key.is_some() || byok.is_some(), host_bound, egress),
            name: name.value,
            adapter: adapter.value,
            key,
            byok,
            options: names(table, "options"),
            betas: names(table, "betas"),
            place: table.value("", ()).place(),
        });
    }
    providers
}

/// Reads a list of names in which no name appears twice, whatever its case.
fn names(table: &Table<'_>, key: &str) -> Vec<String> {
    let mut known = BTreeSet::new();
    let written = table.texts(key);
    for name in &written {
        if name.value.is_empty() || !known.insert(name.value.to_lowercase()) {
            name.reject("expected a name that is not in the list yet, in whatever case");
        }
    }
    written.into_iter().map(|name| name.value).collect()
}

fn origin(
    table: &Table<'_>,
    with_credential: bool,
    host_bound: bool,
    egress: &EgressConfig,
) -> Option<Origin> {
    let written = table.text("base_url")?;
    match Origin::parse(&written.value, with_credential, host_bound, egress) {
        Ok(origin) => Some(origin),
        Err(error) => {
            written.reject(error.to_string());
            None
        }
    }
}

pub(super) fn key_source(written: &ConfigValue<'_, String>) -> Option<KeySource> {
    match written.value.split_once(':') {
        Some(("env", name)) if is_variable(name) => return Some(KeySource::Env(name.to_owned())),
        Some(("env", _)) => written.reject("expected the name of an environment variable after `env:`"),
        Some(("operator", name)) => return secret_name(written, name).map(KeySource::Operator),
        // The text is not repeated in the message: it may be a credential in the wrong place.
        _ => written
            .reject("expected env:NAME or operator:NAME; a credential itself does not belong in this file"),
    }
    None
}

/// The text is not repeated in the message: it may be a credential in the wrong place.
fn secret_name(written: &ConfigValue<'_, String>, name: &str) -> Option<SecretName> {
    name.parse().map_err(|error: cofferdam_store::SecretNameError| written.reject(error.to_string())).ok()
}

fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_plain_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
