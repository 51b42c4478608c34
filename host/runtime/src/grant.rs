//! What one plugin may do: what its manifest asks AND the operator grants. A
//! refusal carries the exact line that would lift it, for the log and the list
//! of plugins; clients never see it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::manifest::{Import, Manifest};

/// What the operator grants to one plugin: the table `[plugins.NAME]`.
#[derive(Debug, Clone, Default)]
pub struct OperatorGrant {
    /// Hosts it may reach. Granting one grants the import `http`.
    pub hosts: Vec<String>,
    /// Secrets it may have placed.
    pub secrets: Vec<String>,
    /// Imports that cost money or show content: `model`, `tool-call`, `request`.
    pub imports: Vec<String>,
    /// Caps the memory it asks for, in MiB.
    pub memory_mib: Option<u32>,
    /// Caps the processor time per call it asks for, in milliseconds.
    pub deadline_ms: Option<u32>,
    /// Its settings, a JSON object; null for none.
    pub config: serde_json::Value,
}

/// Something a plugin wants and does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What it wants: an import, a host or a secret.
    pub wanted: String,
    /// The line that would allow it, ready to paste.
    pub line: String,
}

/// The effective grant of one plugin.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Imports its linker holds beyond log and config.
    pub imports: BTreeSet<Import>,
    /// Hosts it may reach.
    pub hosts: BTreeSet<String>,
    /// Secrets it may have placed.
    pub secrets: BTreeSet<String>,
    pub(crate) memory_bytes: usize,
    pub(crate) deadline: Duration,
    pub(crate) settings: Vec<u8>,
}

impl Grant {
    /// Joins what is asked with what is granted; what is left over is denied.
    /// `used` are the imports the component really has.
    pub(crate) fn join(
        manifest: &Manifest,
        operator: &OperatorGrant,
        used: &BTreeSet<Import>,
    ) -> (Self, Vec<Denial>) {
        let both = |asked: &BTreeSet<String>, granted: &[String]| {
            asked.iter().filter(|name| granted.contains(name)).cloned().collect::<BTreeSet<_>>()
        };
        let hosts = both(&manifest.hosts, &operator.hosts);
        let secrets = both(&manifest.secrets, &operator.secrets);
        let granted = |import: &Import| match import {
            Import::Http => !hosts.is_empty(),
            Import::Model | Import::ToolCall | Import::Request => {
                operator.imports.iter().any(|name| name == import.as_str())
            }
            // Coarse time, random bytes, the public list of models and the
            // plugin's own bytes harm nobody: asking is enough.
            Import::Clock | Import::Random | Import::Catalog | Import::Scratch => true,
        };
        let imports: BTreeSet<_> = manifest.imports.iter().copied().filter(granted).collect();
        let denials = denials(manifest, operator, used, &imports);
        let memory_mib = capped(manifest.memory_mib(), operator.memory_mib);
        let cap = operator.deadline_ms.map_or(Duration::MAX, |cap| Duration::from_millis(cap.into()));
        let settings =
            if operator.config.is_object() { operator.config.to_string() } else { "{}".to_owned() };
        let grant = Self {
            imports,
            hosts,
            secrets,
            memory_bytes: memory_mib as usize * 1024 * 1024,
            deadline: manifest.deadline().min(cap),
            settings: settings.into_bytes(),
        };
        (grant, denials)
    }
}

fn capped(asked: u32, cap: Option<u32>) -> u32 {
    cap.map_or(asked, |cap| asked.min(cap))
}

fn denials(
    manifest: &Manifest,
    operator: &OperatorGrant,
    used: &BTreeSet<Import>,
    granted: &BTreeSet<Import>,
) -> Vec<Denial> {
    let mut denials = Vec::new();
    for import in manifest.imports.iter().chain(used.difference(&manifest.imports)) {
        if !granted.contains(import) {
            denials.push(Denial { wanted: import.to_string(), line: line_for(manifest, operator, *import) });
        }
    }
    let lists =
        [("hosts", &manifest.hosts, &operator.hosts), ("secrets", &manifest.secrets, &operator.secrets)];
    for (key, asked, granted) in lists {
        for wanted in asked.iter().filter(|name| !granted.contains(name)) {
            let line = operator_line(&manifest.name, key, granted, [wanted]);
            denials.push(Denial { wanted: wanted.clone(), line });
        }
    }
    denials
}

/// The line that allows an import: in the manifest when it was not asked for,
/// else in the operator's configuration.
fn line_for(manifest: &Manifest, operator: &OperatorGrant, import: Import) -> String {
    if !manifest.imports.contains(&import) {
        let names = manifest.imports.iter().map(|import| import.as_str()).chain([import.as_str()]);
        return format!("{}.toml: imports = {}", manifest.name, list(names));
    }
    if import == Import::Http {
        let mut wanted: Vec<_> = manifest.hosts.iter().collect();
        let example = "api.example.com".to_owned();
        if wanted.is_empty() {
            wanted.push(&example);
        }
        return operator_line(&manifest.name, "hosts", &operator.hosts, wanted);
    }
    operator_line(&manifest.name, "imports", &operator.imports, [&import.to_string()])
}

/// One line of the operator's configuration that adds `wanted` to what is there.
pub(crate) fn operator_line<'a>(
    plugin: &str,
    key: &str,
    have: impl IntoIterator<Item = &'a String>,
    wanted: impl IntoIterator<Item = &'a String>,
) -> String {
    let all: BTreeSet<_> = have.into_iter().chain(wanted).map(String::as_str).collect();
    format!("[plugins.{plugin}] {key} = {}", list(all.into_iter()))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = names.map(|name| format!("{name:?}")).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(imports: &str, rest: &str) -> Manifest {
        let text = format!(
            "name = \"t\"\nkind = \"tool\"\nversion = \"1\"\nimports = {imports}\n{rest}\n[tool]\ntype = \"x\"\n"
        );
        Manifest::parse(&text).unwrap()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn nothing_is_granted_that_was_not_asked_for() {
        let manifest = tool("[\"clock\"]", "");
        let operator = OperatorGrant {
            hosts: names(&["a.test"]),
            imports: names(&["model"]),
            ..OperatorGrant::default()
        };
        let (grant, denials) = Grant::join(&manifest, &operator, &BTreeSet::from([Import::Clock]));
        assert_eq!(grant.imports, BTreeSet::from([Import::Clock]));
        assert!(grant.hosts.is_empty());
        assert!(denials.is_empty());
    }

    #[test]
    fn denials_print_the_line_that_allows_them() {
        let manifest = tool("[\"http\", \"model\"]", "hosts = [\"a.test\", \"b.test\"]\nsecrets = [\"k\"]");
        let (grant, denials) = Grant::join(&manifest, &OperatorGrant::default(), &BTreeSet::new());
        assert!(grant.imports.is_empty());
        let lines: Vec<_> = denials.iter().map(|denial| denial.line.as_str()).collect();
        assert_eq!(
            lines,
            [
                "[plugins.t] hosts = [\"a.test\", \"b.test\"]",
                "[plugins.t] imports = [\"model\"]",
                "[plugins.t] hosts = [\"a.test\"]",
                "[plugins.t] hosts = [\"b.test\"]",
                "[plugins.t] secrets = [\"k\"]",
            ]
        );
    }

    #[test]
    fn an_import_used_but_not_asked_for_points_to_the_manifest() {
        let manifest = tool("[\"clock\"]", "");
        let (grant, denials) =
            Grant::join(&manifest, &OperatorGrant::default(), &BTreeSet::from([Import::Random]));
        assert!(!grant.imports.contains(&Import::Random));
        assert_eq!(denials[0].line, "t.toml: imports = [\"clock\", \"random\"]");
    }

    #[test]
    fn the_operator_caps_and_never_raises() {
        let manifest = tool("[]", "[limits]\nmemory_mib = 100\ndeadline_ms = 1000");
        let operator =
            OperatorGrant { memory_mib: Some(50), deadline_ms: Some(5000), ..OperatorGrant::default() };
        let (grant, _) = Grant::join(&manifest, &operator, &BTreeSet::new());
        assert_eq!(grant.memory_bytes, 50 << 20);
        assert_eq!(grant.deadline.as_millis(), 1000);
    }

    #[test]
    fn settings_are_an_object_whatever_was_configured() {
        let manifest = tool("[]", "");
        let operator = OperatorGrant { config: serde_json::json!({"a": 1}), ..OperatorGrant::default() };
        assert_eq!(Grant::join(&manifest, &operator, &BTreeSet::new()).0.settings, b"{\"a\":1}");
        let none = Grant::join(&manifest, &OperatorGrant::default(), &BTreeSet::new()).0;
        assert_eq!(none.settings, b"{}");
    }
}
