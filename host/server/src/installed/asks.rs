//! What a version of a plugin asks for, as lines of text, and what it asks for beyond another one.
//! Everything counts that takes effect without the operator, or that a grant of the operator opens.

use std::collections::BTreeSet;

use cofferdam_runtime::Manifest;
use cofferdam_runtime::manifest::{LimitsTable, ProviderTable, ToolTable};

use crate::command::injection_text;
use crate::facts::PluginReach;

/// Reads one limit of a manifest.
type LimitOf = fn(&Manifest) -> u128;

/// What a manifest asks for.
pub(crate) fn asks(manifest: &Manifest) -> BTreeSet<String> {
    let mut lines = lines(&PluginReach::asked(manifest));
    let mut add = |line: String| {
        lines.insert(line);
    };
    if let Some(hook) = &manifest.hook {
        hook.phases.iter().for_each(|phase| add(format!("hook phase {}", phase.as_str())));
        add(format!("entries of the id {}", hook.id));
        if hook.judges {
            add("judging requests".to_owned());
        }
    }
    if let Some(router) = &manifest.router {
        add(format!("entries of the id {}", router.id));
    }
    if let Some(ToolTable { tool_type, client_types, .. }) = &manifest.tool {
        add(format!("tool type {tool_type}"));
        client_types.iter().for_each(|name| add(format!("client tool type {name}")));
    }
    if let Some(provider) = &manifest.provider {
        of_provider(provider, &mut add);
    }
    lines
}

/// What decides about the operator's credential, about what clients may set and what they may spend.
fn of_provider(provider: &ProviderTable, add: &mut impl FnMut(String)) {
    let ProviderTable { credential, models, response_headers, hosted_tools, options, betas, .. } = provider;
    if let Some(slot) = credential {
        add(format!("credential as {}: {}", slot.header, slot.format));
    }
    if let Some(route) = models {
        add(format!("models at {}", route.path));
        route.headers.iter().for_each(|(name, value)| add(format!("models header {name}: {value}")));
    }
    for (what, names) in [("answer header", response_headers), ("option", options), ("beta", betas)] {
        names.iter().for_each(|name| add(format!("{what} {name}")));
    }
    for (tool, members) in hosted_tools {
        add(format!("hosted tool {tool}"));
        members.iter().for_each(|member| add(format!("member {member} of hosted tool {tool}")));
    }
}

/// What a plugin is granted.
pub(crate) fn granted(reach: &PluginReach) -> BTreeSet<String> {
    lines(reach)
}

/// What an installed version asks for.
pub(crate) struct InstalledAsks {
    lines: BTreeSet<String>,
    /// Absent if this program does not accept its manifest, or cannot read it.
    manifest: Option<Manifest>,
}

impl InstalledAsks {
    pub(super) fn of(manifest: Manifest) -> Self {
        Self { lines: asks(&manifest), manifest: Some(manifest) }
    }

    /// For a manifest that cannot be used: what the lock noted when the version was installed.
    pub(super) fn noted(lines: &BTreeSet<String>) -> Self {
        Self { lines: lines.clone(), manifest: None }
    }

    /// Whether it asks for what this line says.
    pub(crate) fn covers(&self, line: &str) -> bool {
        let kind = line.split(' ').next().unwrap_or_default();
        let any = ["host", "secret"].contains(&kind).then(|| format!("{kind} *"));
        self.lines.contains(line) || any.is_some_and(|any| self.lines.contains(&any))
    }
}

/// What `new` asks for and `old` does not, with limits that are higher than those of `old` and those
/// of the kind.
pub(crate) fn beyond(new: &Manifest, old: &InstalledAsks) -> Vec<String> {
    let mut more: Vec<String> = asks(new).into_iter().filter(|line| !old.covers(line)).collect();
    let plain = Manifest { limits: LimitsTable::default(), ..new.clone() };
    let limits: [(&str, LimitOf); 2] = [
        ("memory_mib", |manifest| manifest.memory_mib().into()),
        ("deadline_ms", |manifest| manifest.deadline().as_millis()),
    ];
    for (key, of) in limits {
        let before = old.manifest.as_ref().map(of);
        if of(new) > before.unwrap_or_default().max(of(&plain)) {
            let was = before.map(|before| format!(", was {before}")).unwrap_or_default();
            more.push(format!("limit {key} {}{was}", of(new)));
        }
    }
    more
}

fn lines(reach: &PluginReach) -> BTreeSet<String> {
    let PluginReach { imports, hosts, secrets, injections, placeholder_headers } = reach;
    let lists = [
        ("import", imports),
        ("host", hosts),
        ("secret", secrets),
        ("placeholder header", placeholder_headers),
    ];
    let named =
        lists.into_iter().flat_map(|(what, names)| names.iter().map(move |name| format!("{what} {name}")));
    named.chain(injections.iter().map(|rule| format!("injection of {}", injection_text(rule)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(more: &str) -> Manifest {
        let head = "name = \"t\"\nkind = \"tool\"\nversion = \"1.0.0\"\n";
        Manifest::parse(&format!("{head}{more}\n[tool]\ntype = \"t\"\n")).unwrap()
    }

    fn had(more: &str) -> InstalledAsks {
        InstalledAsks::of(manifest(more))
    }

    #[test]
    fn what_the_lock_noted_stands_for_a_manifest_that_is_not_accepted() {
        let old = "imports = [\"http\"]\nhosts = [\"a.test\"]\n[limits]\nmemory_mib = 65";
        let noted = InstalledAsks::noted(&asks(&manifest(old)));
        assert_eq!(beyond(&manifest(old), &noted), ["limit memory_mib 65"]);
        let new = "imports = [\"http\"]\nhosts = [\"a.test\", \"b.test\"]";
        assert_eq!(beyond(&manifest(new), &noted), ["host b.test"]);
    }

    #[test]
    fn only_what_is_new_is_more() {
        let http = "imports = [\"http\"]\nhosts = [\"a.test\", \"b.test\"]\nsecrets = [\"k\"]";
        let any = "imports = [\"http\"]\nhosts = [\"*\"]\nsecrets = [\"*\"]";
        let place = "[[injections]]\nsecret = \"k\"\nhost = \"a.test\"\nquery = \"key\"";
        for (old, new, more) in [
            ("", "imports = [\"clock\"]", vec!["import clock"]),
            ("imports = [\"clock\"]", "", vec![]),
            (http, http, vec![]),
            (any, http, vec![]),
            (http, any, vec!["host *", "secret *"]),
            (http, &format!("{http}\n{place}"), vec!["injection of k to a.test as query parameter key"]),
            (http, &format!("{http}\nplaceholder_headers = [\"x-key\"]"), vec!["placeholder header x-key"]),
            ("", "[limits]\nmemory_mib = 65\ndeadline_ms = 1000", vec!["limit memory_mib 65, was 64"]),
            ("[limits]\nmemory_mib = 8", "[limits]\nmemory_mib = 64", vec![]),
        ] {
            assert_eq!(beyond(&manifest(new), &had(old)), more, "{old} to {new}");
        }
    }

    #[test]
    fn a_type_or_phase_that_brings_more_content_is_more() {
        let head = "name = \"h\"\nkind = \"hook\"\nversion = \"1.0.0\"\n[hook]\nid = \"h\"\n";
        let old = Manifest::parse(&format!("{head}phases = [\"on-request\"]")).unwrap();
        let new = Manifest::parse(&format!("{head}phases = [\"on-request\", \"on-response\"]")).unwrap();
        assert_eq!(beyond(&new, &InstalledAsks::of(old.clone())), ["hook phase on-response"]);
        assert!(beyond(&old, &InstalledAsks::of(new)).is_empty());
        let mut new = manifest("");
        new.tool.as_mut().unwrap().client_types = vec!["web_search".to_owned()];
        assert_eq!(beyond(&new, &had("")), ["client tool type web_search"]);
    }
}
