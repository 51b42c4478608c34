//! `[plugins.NAME]`: the operator's grants to plugins. A plugin gets what its manifest asks for and
//! the operator grants.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use cofferdam_runtime::manifest::MEMORY_MIB_MAX;
use cofferdam_runtime::{
    Compile, InjectionRule, OnReflection, OperatorGrant, WrittenInjection, is_injectable_header,
};
use cofferdam_store::{HostName, SecretName};

use super::ConfigSpan;
use super::document::{ConfigValue, Table};

/// The most recordings of failing calls that are kept for one plugin.
pub(crate) const RECORDINGS_MAX: u32 = 1_000;
/// Stands for every public host.
const ANY: &str = "*";

/// The grants, and the position of each in the file.
pub(super) fn read(table: &Table<'_>) -> (BTreeMap<String, OperatorGrant>, BTreeMap<String, ConfigSpan>) {
    let grants = table.named_tables().into_iter().map(|(name, table)| {
        let place = table.value("", ()).place();
        ((name.clone(), grant(&table)), (name, place))
    });
    grants.unzip()
}

fn grant(table: &Table<'_>) -> OperatorGrant {
    let number = |key, most| table.integer(key, 1..=most).and_then(|number| u32::try_from(number).ok());
    let config = table.value("config", table.json("config"));
    if !config.value.is_object() {
        config.reject("expected a table");
    }
    let hosts: Vec<_> = table.texts("hosts");
    let mut grant = OperatorGrant {
        any_host: hosts.iter().any(|host| host.value == ANY),
        hosts: names(
            hosts.into_iter().filter(|host| host.value != ANY),
            |_| "expected an exact host name such as api.example.com, or `*`",
        ),
        secrets: names(table.texts("secrets").into_iter(), not_a_secret),
        operator_secrets: operator_secrets(table),
        injections: Vec::new(),
        placeholder_headers: placeholder_headers(table),
        on_reflection: table
            .choice("on_reflection", [("redact", OnReflection::Redact), ("block", OnReflection::Block)]),
        imports: imports(table),
        memory_mib: number("memory_mib", MEMORY_MIB_MAX.into()),
        deadline_ms: number("deadline_ms", 600_000),
        config: config.value,
        sha256: sha256(table),
        replaces: table.flag("replaces"),
        compile: table.choice("compile", [("background", Compile::Background), ("start", Compile::Start)]),
        record: number("record", RECORDINGS_MAX.into()),
    };
    let secrets = &grant.secrets | &grant.operator_secrets;
    grant.injections = injections(table, &grant.hosts, &secrets);
    grant
}

fn not_a_secret(written: &str) -> &'static str {
    match written {
        ANY => "name each secret; only a manifest may ask for `*`",
        _ => "expected the name of a secret: lower-case letters, digits and single underscores",
    }
}

/// Secrets of the operator's vault. A name in both lists is a mistake, because it would be unclear
/// whose secret is sent.
fn operator_secrets(table: &Table<'_>) -> BTreeSet<SecretName> {
    let callers: Vec<String> = table.texts("secrets").into_iter().map(|secret| secret.value).collect();
    let written = table.texts("operator_secrets").into_iter().filter(|secret| {
        let is_callers = callers.contains(&secret.value);
        if is_callers {
            secret.reject("`secrets` names it too, and it can be the caller's or the operator's only");
        }
        !is_callers
    });
    names(written, not_a_secret)
}

/// Parses names into a set; different spellings of a name become one entry.
fn names<'a, T: FromStr + Ord>(
    written: impl Iterator<Item = ConfigValue<'a, String>>,
    complaint: impl Fn(&str) -> &'static str,
) -> BTreeSet<T> {
    let mut names = BTreeSet::new();
    for name in written {
        match name.value.parse() {
            Ok(parsed) => drop(names.insert(parsed)),
            Err(_) => name.reject(complaint(&name.value)),
        }
    }
    names
}

fn placeholder_headers(table: &Table<'_>) -> BTreeSet<String> {
    let mut headers = BTreeSet::new();
    for header in table.texts("placeholder_headers") {
        let name = header.value.to_ascii_lowercase();
        if is_injectable_header(&name) {
            headers.insert(name);
        } else {
            header.reject("expected the name of a header that may carry a secret");
        }
    }
    headers
}

fn sha256(table: &Table<'_>) -> Option<String> {
    let written = table.text("sha256")?;
    let digest = written.value.to_ascii_lowercase();
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest {
        written.reject("expected 64 hexadecimal digits; `plugin list` shows the digest of each component");
    }
    is_digest.then_some(digest)
}

/// Reads the injections. Each must use a granted secret and host, and no two may write to the same
/// place of a request.
fn injections(
    table: &Table<'_>,
    hosts: &BTreeSet<HostName>,
    secrets: &BTreeSet<SecretName>,
) -> Vec<InjectionRule> {
    let mut rules: Vec<InjectionRule> = Vec::new();
    for table in table.tables("injections") {
        let Some(rule) = injection(&table) else { continue };
        let at = |key| table.value(key, ());
        if !secrets.contains(&rule.secret) {
            at("secret").reject("neither `secrets` nor `operator_secrets` names this secret");
        } else if !hosts.contains(&rule.host) {
            at("host").reject("`hosts` does not name this host");
        } else if rules.iter().any(|earlier| earlier.collides(&rule)) {
            at("").reject("an earlier injection puts a secret into the same place");
        } else {
            rules.push(rule);
        }
    }
    rules
}

fn injection(table: &Table<'_>) -> Option<InjectionRule> {
    let text = |key| table.text(key).map(|text| text.value);
    let (secret, host) = (table.required_text("secret"), table.required_text("host"));
    if text("secret").is_none() || text("host").is_none() {
        return None;
    }
    let written = WrittenInjection {
        secret: secret.value,
        host: host.value,
        header: text("header"),
        format: text("format"),
        query: text("query"),
        json: text("json"),
    };
    let rule = InjectionRule::try_from(written);
    rule.map_err(|error| table.value(error.key, ()).reject(error.message)).ok()
}

fn imports(table: &Table<'_>) -> Vec<String> {
    let mut imports = Vec::new();
    for import in table.texts("imports") {
        if !["model", "tool-call", "request"].contains(&import.value.as_str()) {
            import.reject(
                "expected `model`, `tool-call` or `request`; other imports need no grant of their own",
            );
        }
        imports.push(import.value);
    }
    imports
}
