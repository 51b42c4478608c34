//! What `docs/threat-model.md` cites: tests that exist, and limits with the numbers of the code.

use super::assert_none;
use super::markdown::{Page, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where tests are. The corpora and the built guests have none.
const FOLDERS: [&str; 4] = ["host", "protocol", "tests", "guests"];

fn page() -> String {
    Page::read(root().join("docs/threat-model.md")).text
}

/// The cells of the rows of all tables whose head begins so.
fn rows(page: &str, head: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    let mut rows = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.starts_with(head) {
            rows.extend(lines.by_ref().skip(1).take_while(|line| line.starts_with('|')).map(cells));
        }
    }
    rows
}

fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") && !path.ends_with("node_modules") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The names of all functions that an attribute marks as a test, or that `proptest!` makes one.
fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&root().join(folder), &mut files);
    }
    let mut tests = BTreeSet::new();
    for file in files {
        collect_tests(&std::fs::read_to_string(file).unwrap(), &mut tests);
    }
    tests
}

fn collect_tests(source: &str, tests: &mut BTreeSet<String>) {
    let mut is_marked = false;
    for line in source.lines().map(str::trim) {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let name = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next());
        tests.extend(name.filter(|_| is_marked).map(str::to_owned));
        is_marked &= name.is_none();
        is_marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    }
}

#[test]
fn the_threat_model_names_tests_that_exist() {
    let page = page();
    let rows = rows(&page, "| holds |");
    assert!(rows.len() > 30, "{} rows", rows.len());
    let known = tests();
    let mut wrong = Vec::new();
    for row in rows {
        let [holds, shown] = &row[..] else { panic!("{row:?}") };
        if code(shown).next().is_none() {
            wrong.push(format!("no test shows: {holds}"));
        }
        wrong
            .extend(code(shown).filter(|name| !known.contains(*name)).map(|name| format!("no test: {name}")));
    }
    // Tests that are named in the text, in brackets.
    let named = page.split("(`").skip(1).filter_map(|rest| rest.split_once("`)")).map(|(name, _)| name);
    let named = named.filter(|name| name.matches('_').count() > 3);
    wrong.extend(named.filter(|name| !known.contains(*name)).map(|name| format!("no test: {name}")));
    assert_none(wrong);
}

/// A number with its unit, in items, bytes or milliseconds: `10,000`, `32 KiB`, `30 s`, `60 a minute`.
fn number(text: &str) -> u64 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number: u64 = number.replace(',', "").parse().unwrap_or_else(|_| panic!("no number: {text}"));
    number
        * match unit {
            "" | "a minute" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "s" => 1000,
            "min" => 60_000,
            other => panic!("no unit: {other}"),
        }
}

/// The value of a constant: a product or a shift of numbers, or a duration in milliseconds.
fn value(expression: &str) -> Option<u64> {
    if let Some(seconds) = expression.strip_prefix("Duration::from_secs(") {
        return Some(1000 * value(seconds.strip_suffix(')')?)?);
    }
    if let Some((number, bits)) = expression.split_once(" << ") {
        return Some(value(number)? << value(bits)?);
    }
    expression.split(" * ").map(|number| number.replace('_', "").parse::<u64>().ok()).product()
}

fn constant(place: &str) -> Option<u64> {
    let (file, name) = place.split_once("::")?;
    let text = std::fs::read_to_string(root().join("host").join(file)).ok()?;
    let line = text.lines().find(|line| line.contains(&format!("const {name}: ")))?;
    value(line.split_once(" = ")?.1.strip_suffix(';')?)
}

/// The default on the page of the configuration, which is made from the code.
fn configured(key: &str) -> Option<u64> {
    let page = Page::read(root().join("docs/configuration.md")).text;
    let row = page.lines().find(|line| line.starts_with(&format!("| `{key}` |")))?.to_owned();
    let default: u64 = code(&row).nth(1)?.parse().ok()?;
    Some(if key.ends_with("_mib") { default << 20 } else { default })
}

#[test]
fn the_limits_of_the_threat_model_are_those_of_the_code() {
    let page = page();
    let rows = rows(&page, "| what is bounded |");
    assert!(rows.len() > 30, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let [what, most, _, place] = &row[..] else { panic!("{row:?}") };
        let place = code(place).next().unwrap();
        let found = if place.contains("::") { constant(place) } else { configured(place) };
        if found != Some(number(most)) {
            wrong.push(format!("{what}: {most} on the page, {found:?} at {place}"));
        }
    }
    assert_none(wrong);
}
