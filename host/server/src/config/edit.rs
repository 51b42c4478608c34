//! Adds grants to a configuration file. Everything else in the file stays as it is, including
//! comments and spaces.

use std::collections::BTreeSet;
use std::fmt::Write;

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

/// Names to grant to one plugin, spelled as they will be in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Additions {
    pub(crate) hosts: BTreeSet<String>,
    pub(crate) secrets: BTreeSet<String>,
    pub(crate) imports: BTreeSet<String>,
    pub(crate) placeholder_headers: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Edited {
    pub(crate) text: String,
    /// The changed lines of `[plugins.NAME]` with their new content; empty if nothing changed.
    pub(crate) lines: String,
}

/// The file has a form that cannot be edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not what it should be: run `serve --check`")]
pub(crate) struct NotEditable(&'static str);

/// Adds names to the lists of `[plugins.NAME]`. A missing table is added at the end of the file.
///
/// # Errors
///
/// The text is not valid TOML, or a table or list on the path has another type. A valid
/// configuration never fails.
pub(crate) fn add(text: &str, plugin: &str, additions: &Additions) -> Result<Edited, NotEditable> {
    let mut document: DocumentMut = text.parse().map_err(|_| NotEditable("the file"))?;
    let is_new = document.get("plugins").and_then(|plugins| plugins.get(plugin)).is_none();
    let table = plugin_table(&mut document, plugin)?;
    let mut lines = String::new();
    let lists = [
        ("hosts", &additions.hosts),
        ("secrets", &additions.secrets),
        ("imports", &additions.imports),
        ("placeholder_headers", &additions.placeholder_headers),
    ];
    for (key, names) in lists {
        if let Some(list) = extend(table, key, names)? {
            // Writing to a `String` cannot fail.
            writeln!(lines, "{key} = {list}").unwrap_or_default();
        }
    }
    if lines.is_empty() {
        return Ok(Edited { text: text.to_owned(), lines });
    }
    lines.insert_str(0, &format!("[plugins.{plugin}]\n"));
    // For a new table the lines are appended as text: toml_edit would put the table before a
    // comment at the end of the file.
    let appended = Some(append(text, &lines)).filter(|text| is_new && text.parse::<DocumentMut>().is_ok());
    Ok(Edited { text: appended.unwrap_or_else(|| document.to_string()), lines })
}

/// Takes `[plugins.NAME]` out, with everything in it and the comment above it.
///
/// # Errors
///
/// As for [`add`].
pub(crate) fn remove(text: &str, plugin: &str) -> Result<String, NotEditable> {
    let mut document: DocumentMut = text.parse().map_err(|_| NotEditable("the file"))?;
    if let Some(plugins) = document.get_mut("plugins") {
        plugins.as_table_like_mut().ok_or(NotEditable("plugins"))?.remove(plugin);
    }
    Ok(document.to_string())
}

/// Appends a new table after everything else, including a comment at the end.
fn append(text: &str, lines: &str) -> String {
    let between = match text {
        "" => "",
        _ if text.ends_with("\n\n") => "",
        _ if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{text}{between}{lines}")
}

fn plugin_table<'d>(
    document: &'d mut DocumentMut,
    plugin: &str,
) -> Result<&'d mut dyn TableLike, NotEditable> {
    let plugins = document.entry("plugins").or_insert_with(|| {
        let mut table = Table::new();
        // An implicit table has no `[plugins]` header of its own.
        table.set_implicit(true);
        Item::Table(table)
    });
    let is_inline = plugins.is_inline_table();
    let plugins = plugins.as_table_like_mut().ok_or(NotEditable("plugins"))?;
    let made = || match is_inline {
        true => Item::Value(Value::InlineTable(toml_edit::InlineTable::new())),
        false => Item::Table(Table::new()),
    };
    let table = plugins.entry(plugin).or_insert_with(made);
    table.as_table_like_mut().ok_or(NotEditable("plugins.NAME"))
}

/// Adds names to a list. Returns the new list if a name was missing.
fn extend(
    table: &mut dyn TableLike,
    key: &'static str,
    names: &BTreeSet<String>,
) -> Result<Option<String>, NotEditable> {
    if names.is_empty() {
        return Ok(None);
    }
    let list = table.entry(key).or_insert_with(|| toml_edit::value(Array::new()));
    let list = list.as_array_mut().ok_or(NotEditable("a list of the plugin"))?;
    let mut changed = false;
    for name in names {
        let is_there = |value: &Value| value.as_str().is_some_and(|there| is_same(there, name));
        if !list.iter().any(is_there) {
            push(list, name);
            changed = true;
        }
    }
    if !changed {
        return Ok(None);
    }
    let quoted: Vec<String> = list.iter().filter_map(Value::as_str).map(|name| format!("{name:?}")).collect();
    Ok(Some(format!("[{}]", quoted.join(", "))))
}

/// Compares names ignoring case and a final dot, which host names may differ in. Names of secrets
/// and imports are always lower case.
fn is_same(there: &str, name: &str) -> bool {
    there.strip_suffix('.').unwrap_or(there).eq_ignore_ascii_case(name)
}

/// Adds a name on a line of its own if the other names have their own lines.
fn push(list: &mut Array, name: &str) {
    let before = list.iter().last().and_then(|value| value.decor().prefix()).and_then(|text| text.as_str());
    let own_line = before.map(|text| text.rsplit_once('\n').map_or("", |(_, indent)| indent).to_owned());
    let has_lines = before.is_some_and(|text| text.contains('\n'));
    match own_line.filter(|_| has_lines) {
        Some(indent) => list.push_formatted(Value::from(name).decorated(format!("\n{indent}"), "")),
        None => list.push(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Additions {
        Additions { hosts: names.iter().map(|name| (*name).to_owned()).collect(), ..Additions::default() }
    }

    fn added(text: &str, additions: &Additions) -> String {
        add(text, "t", additions).unwrap().text
    }

    #[test]
    fn missing_table_is_appended() {
        let all = Additions {
            hosts: ["b.test".to_owned(), "a.test".to_owned()].into(),
            secrets: ["k".to_owned()].into(),
            imports: ["model".to_owned()].into(),
            placeholder_headers: BTreeSet::new(),
        };
        let edited = add("[server]\nlisten = \"127.0.0.1:1\"\n", "tool-x", &all).unwrap();
        let lines =
            "[plugins.tool-x]\nhosts = [\"a.test\", \"b.test\"]\nsecrets = [\"k\"]\nimports = [\"model\"]\n";
        assert_eq!(edited.text, format!("[server]\nlisten = \"127.0.0.1:1\"\n\n{lines}"));
        assert_eq!(edited.lines, lines);
        for (text, between) in [("", ""), ("# end", "\n\n"), ("# end\n\n", "")] {
            assert_eq!(add(text, "tool-x", &all).unwrap().text, format!("{text}{between}{lines}"));
        }
    }

    #[test]
    fn existing_lines_stay_as_they_are() {
        let text = "# mine\n[plugins.t]   # this one\nhosts = ['a.test',  \"B.test.\"] # two\nmemory_mib = 5\n\n[limits]\nstreams=5\n";
        let edited = add(text, "t", &hosts(&["b.test", "c.test"])).unwrap();
        assert_eq!(edited.text, text.replace("\"B.test.\"]", "\"B.test.\", \"c.test\"]"));
        assert_eq!(edited.lines, "[plugins.t]\nhosts = [\"a.test\", \"B.test.\", \"c.test\"]\n");
    }

    #[test]
    fn new_name_gets_its_own_line_like_the_others() {
        let text = "[plugins.t]\nhosts = [\n  # first\n  \"a.test\",\n]\n";
        let edited = added(text, &hosts(&["b.test"]));
        assert!(edited.contains("  # first\n  \"a.test\",\n  \"b.test\""), "{edited}");
    }

    #[test]
    fn nothing_changes_if_all_names_exist() {
        let text = "plugins = { t = { hosts = [\"A.test\"] } }";
        let edited = add(text, "t", &hosts(&["a.test"])).unwrap();
        assert_eq!((edited.text.as_str(), edited.lines.as_str()), (text, ""));
    }

    #[test]
    fn tables_in_every_toml_form_can_be_extended() {
        for text in [
            "plugins = { t = { hosts = [\"a.test\"] } }\n",
            "plugins = { u = { hosts = [] } }\n",
            "plugins.t.hosts = [\"a.test\"]\n",
            "[plugins]\nt = { hosts = [\"a.test\"] }\n",
            "[plugins]\nt.memory_mib = 5\n",
            "[plugins.u]\nhosts = [\"x.test\"]\n",
            "[[plugins.t.injections]]\nsecret = \"k\"\n",
        ] {
            let edited = added(text, &hosts(&["b.test"]));
            let read: toml::Table = toml::from_str(&edited).unwrap();
            let list = read["plugins"]["t"]["hosts"].as_array().unwrap();
            assert!(list.iter().any(|host| host.as_str() == Some("b.test")), "{edited}");
            let before: toml::Table = toml::from_str(text).unwrap();
            assert_eq!(
                before["plugins"].as_table().unwrap().contains_key("u"),
                read["plugins"].as_table().unwrap().contains_key("u")
            );
        }
    }

    #[test]
    fn a_table_is_taken_out_and_the_rest_stays() {
        for (text, left) in [
            (
                "[plugins.t]\nhosts = []\n[[plugins.t.injections]]\nsecret = \"k\"\n\n# kept\n[limits]\nstreams=5\n",
                "\n# kept\n[limits]\nstreams=5\n",
            ),
            ("plugins = { t = { hosts = [] }, u = {} }\n", "plugins = { u = {} }\n"),
            ("plugins.t.hosts = []\n[limits]\n", "[limits]\n"),
            ("[limits]\n", "[limits]\n"),
        ] {
            assert_eq!(remove(text, "t").unwrap(), left);
        }
    }

    #[test]
    fn files_with_other_types_are_refused() {
        for text in ["plugins = 1", "[plugins]\nt = 1", "[plugins.t]\nhosts = 1", "[plugins"] {
            assert!(add(text, "t", &hosts(&["a.test"])).is_err(), "{text}");
        }
    }
}
