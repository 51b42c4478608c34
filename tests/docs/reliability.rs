//! Every test that the page on reliability names exists.

use super::{assert_none, markdown};
use std::collections::BTreeSet;
use std::path::Path;

/// Adds the names of all functions and modules in the sources below a folder.
fn names_in(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            names_in(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let words = text.split("fn ").skip(1).map(|rest| {
                rest.split(|char: char| !char.is_ascii_alphanumeric() && char != '_')
                    .next()
                    .unwrap_or_default()
            });
            names.extend(words.map(str::to_owned));
        }
    }
}

#[test]
fn every_test_that_the_page_on_reliability_names_exists() {
    let root = markdown::root();
    let mut known = BTreeSet::new();
    for folder in ["host", "protocol", "tests"] {
        names_in(&root.join(folder), &mut known);
    }
    let text = std::fs::read_to_string(root.join("docs/reliability.md")).unwrap();
    // Tests are in the last column.
    let rows = text.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit(" | ").next());
    let quoted = rows.flat_map(|line| line.split('`').skip(1).step_by(2));
    let tests: Vec<&str> = quoted.filter(|name| name.contains('_') && !name.contains(':')).collect();
    assert!(tests.len() > 60, "{} tests", tests.len());
    let unknown: BTreeSet<&str> = tests.into_iter().filter(|name| !known.contains(*name)).collect();
    assert_none(unknown.into_iter().map(|name| format!("docs/reliability.md names {name}")).collect());
}
