//! Renders `tool_choice` in terms of the functions that represent the client's tools.

use super::super::json::{JsonKind, JsonValue, separate, write_key};
use super::names::FunctionNames;
use super::{Dialect, is_type, write_text_member};
use cofferdam_protocol::{Rendering, ToolKind};
use std::collections::BTreeSet;

/// Appends the rendered choice.
pub(super) fn write(choice: JsonValue<'_>, dialect: &Dialect<'_>, names: &FunctionNames, out: &mut Vec<u8>) {
    if choice.kind() != JsonKind::Object {
        return choice.write(out);
    }
    if !choice.get("type").is_some_and(|tag| tag.is("allowed_tools")) {
        match functions_of(choice, dialect, names).as_slice() {
            [] => choice.write(out),
            [name] => write_function(name, out),
            several => {
                out.extend_from_slice(br#"{"type":"allowed_tools","mode":"required","tools":["#);
                several.iter().for_each(|name| write_function(name, out));
                out.extend_from_slice(b"]}");
            }
        }
        return;
    }
    out.push(b'{');
    for (key, value) in choice.members() {
        write_key(key, out);
        if !key.is("tools") {
            value.write(out);
            continue;
        }
        out.push(b'[');
        write_allowed(value, dialect, names, out);
        out.push(b']');
    }
    out.push(b'}');
}

/// Appends the entries of a list of allowed tools; each function is listed once.
fn write_allowed(tools: JsonValue<'_>, dialect: &Dialect<'_>, names: &FunctionNames, out: &mut Vec<u8>) {
    let (mut seen, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
    for tool in tools.items() {
        if is_type(tool, "namespace") {
            let name = tool.get("name").map(|name| name.text().into_owned()).unwrap_or_default();
            if !namespaces.insert(name) {
                continue;
            }
        }
        let functions = functions_of(tool, dialect, names);
        if functions.is_empty() {
            separate(out);
            tool.write(out);
        }
        for name in functions {
            if seen.insert(name.clone()) {
                write_function(&name, out);
            }
        }
    }
}

fn write_function(name: &str, out: &mut Vec<u8>) {
    if out.last() == Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(br#"{"type":"function""#);
    write_text_member("name", name, out);
    out.push(b'}');
}

/// The functions that represent the tool which a choice names; empty where the choice is passed on
/// unchanged.
fn functions_of(choice: JsonValue<'_>, dialect: &Dialect<'_>, names: &FunctionNames) -> Vec<String> {
    let (Some(tag), name) = (choice.get("type"), choice.get("name")) else { return Vec::new() };
    let tag = tag.text();
    let namespace = choice.get("namespace").map(|namespace| namespace.text());
    let of = |kind: &ToolKind| {
        let name = name.map(|name| name.text()).unwrap_or_default();
        let known = names.known(kind, namespace.as_deref(), &name);
        known.or_else(|| names.anywhere(kind, &name)).map(str::to_owned).into_iter().collect()
    };
    match &*tag {
        // One of the client's own functions: it kept its name.
        "function" if name.is_some_and(|name| names.is_kept(&name.text())) && namespace.is_none() => {
            Vec::new()
        }
        "function" => of(&ToolKind::Function),
        "custom" => of(&ToolKind::Custom),
        "namespace" => {
            let name = name.map(|name| name.text()).unwrap_or_default();
            names.of_namespace(&name).to_vec()
        }
        kind if !(dialect.has_tool)(kind) => {
            let kind = ToolKind::of_type(kind).filter(|kind| kind.rendering() == Rendering::Functions);
            kind.map(|kind| names.of(kind, None, kind.type_name())).into_iter().collect()
        }
        _ => Vec::new(),
    }
}
