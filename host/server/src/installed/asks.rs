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

/// What `new` asks for and `old` does not, with limits that are higher than those of `old` and those
/// of the kind.
pub(crate) fn beyond(new: &Manifest, old: &Manifest) -> Vec<String> {
    let had = asks(old);
    let is_covered = |line: &String| {
        let kind = line.split(' ').next().unwrap_or_default();
        had.contains(line) || (["host", "secret"].contains(&kind) && had.contains(&format!("{kind} *")))
    };
    let mut more: Vec<String> = asks(new).into_iter().filter(|line| !is_covered(line)).collect();
    let plain = Manifest { limits: LimitsTable::default(), ..new.clone() };
    let ceiling = |of: LimitOf| of(old).max(of(&plain));
    let limits: [(&str, LimitOf); 2] = [
        ("memory_mib", |manifest| manifest.memory_mib().into()),
        ("deadline_ms", |manifest| manifest.deadline().as_millis()),
    ];
    let raised = limits.into_iter().filter(|(_, of)| of(new) > ceiling(*of));
    more.extend(raised.map(|(key, of)| format!("limit {key} {}, was {}", of(new), of(old))));
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
            assert_eq!(beyond(&manifest(new), &manifest(old)), more, "{old} to {new}");
        }
    }

    #[test]
    fn a_type_or_phase_that_brings_more_content_is_more() {
        let head = "name = \"h\"\nkind = \"hook\"\nversion = \"1.0.0\"\n[hook]\nid = \"h\"\n";
        let old = Manifest::parse(&format!("{head}phases = [\"on-request\"]")).unwrap();
        let new = Manifest::parse(&format!("{head}phases = [\"on-request\", \"on-response\"]")).unwrap();
        assert_eq!(beyond(&new, &old), ["hook phase on-response"]);
        assert!(beyond(&old, &new).is_empty());
        let mut new = manifest("");
        new.tool.as_mut().unwrap().client_types = vec!["web_search".to_owned()];
        assert_eq!(beyond(&new, &manifest("")), ["client tool type web_search"]);
    }
}
