//! The modules of a crate import each other in one direction: `lib.rs` lists them from the entry of a request down
//! to what all of them share, and each module imports only modules below it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The crates under `host/` whose `lib.rs` promises this order.
const ORDERED: [&str; 5] = ["egress", "engine", "runtime", "server", "store"];

#[test]
fn modules_import_only_modules_below_them() {
    for name in ORDERED {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        let root = Root::read(&src.join("lib.rs"));
        assert!(root.modules.len() > 5, "{name}: no list of modules was found");
        let files = sources(&src);
        let imports: usize = files.iter().map(|file| root.check(name, &src, file)).sum();
        assert!(imports > 20, "{name}: only {imports} imports were found");
    }
}

#[test]
fn the_architecture_page_lists_the_modules_of_each_crate() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(host.join("../docs/architecture.md")).unwrap();
    for name in ORDERED {
        let heading = format!("\n**{name}** (");
        let (_, section) = page.split_once(&heading).unwrap_or_else(|| panic!("no table of {name}"));
        let table = section.lines().skip_while(|line| !line.starts_with('|'));
        let lines = table.take_while(|line| line.starts_with('|'));
        let cells = lines.filter_map(|row| row.split('|').nth(1)).filter(|cell| cell.contains('`'));
        let rows: Vec<Vec<&str>> = cells.map(|cell| cell.split('`').skip(1).step_by(2).collect()).collect();
        let mut listed = rows.concat();
        let mut modules = Root::read(&host.join(name).join("src/lib.rs")).modules;
        modules.retain(|module| {
            !["canaries", "fuzzing", "guest_memory", "loaded", "scratch"].contains(&module.as_str())
        });
        if section.starts_with("by subject") {
            listed.sort_unstable();
            modules.sort_unstable();
        } else {
            // Within a row the order is free.
            let at = |module: &str| modules.iter().position(|it| it == module);
            listed = rows
                .iter()
                .flat_map(|row| {
                    let mut row = row.clone();
                    row.sort_by_key(|module| at(module));
                    row
                })
                .collect();
        }
        assert_eq!(listed, modules, "docs/architecture.md, table of {name}");
    }
}

/// The names that a `lib.rs` declares.
struct Root {
    /// In their order.
    modules: Vec<String>,
    /// The module that each exported name comes from.
    exported: BTreeMap<String, String>,
    code: String,
}

impl Root {
    fn read(path: &Path) -> Self {
        let code = code(path);
        let mut modules = Vec::new();
        let mut exported = BTreeMap::new();
        for statement in code.split(';') {
            let words: Vec<&str> =
                statement.split_whitespace().skip_while(|word| word.starts_with('#')).collect();
            match words.as_slice() {
                ["mod", name] | [_, "mod", name] => modules.push((*name).to_owned()),
                ["pub", "use", path @ ..] => {
                    let path = path.concat();
                    let path = path.strip_prefix("self::").unwrap_or(&path);
                    let (module, names) = path.split_once("::").unwrap();
                    exported.extend(identifiers(names).map(|name| (name.to_owned(), module.to_owned())));
                }
                _ => {}
            }
        }
        Self { modules, exported, code }
    }

    /// The number of other modules that a file imports, all of which stand below its own.
    fn check(&self, name: &str, src: &Path, file: &Path) -> usize {
        let path = file.strip_prefix(src).unwrap();
        let module = path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let Some(own) = self.position(module) else { return 0 };
        let mut others = 0;
        for imported in imports(&code(file)) {
            let Some(other) = self.position(self.home_of(&imported)) else {
                assert!(!self.defines(&imported), "{name}: {path:?} imports {imported} from the root");
                continue;
            };
            others += usize::from(own != other);
            assert!(own <= other, "{name}: {path:?} imports {imported}, which stands above {module}");
        }
        others
    }

    fn position(&self, module: &str) -> Option<usize> {
        self.modules.iter().position(|known| known == module)
    }

    /// The module that a name below `crate::` belongs to.
    fn home_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.exported.get(name).map_or(name, String::as_str)
    }

    /// Whether the root itself defines an item of this name.
    fn defines(&self, name: &str) -> bool {
        let kinds = ["struct", "enum", "trait", "fn", "const", "type"];
        kinds.iter().any(|kind| self.code.contains(&format!("{kind} {name}")))
    }
}

/// All Rust files below a folder, without those of tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            files.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "lib.rs" && name != "main.rs" {
            files.push(path);
        }
    }
    files
}

/// A file without its comments, without attributes on lines of their own, and without the tests at its end.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let is_attribute = |line: &str| line.trim_start().starts_with("#[") && line.ends_with(']');
    text.lines()
        .filter(|line| !is_attribute(line))
        .map(|line| line.split("//").next().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The first names after `crate::`, of single paths and of lists in braces.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            found.extend(identifiers(rest).next().map(str::to_owned));
            continue;
        };
        let mut depth = 0_usize;
        let mut at_start = true;
        for (index, letter) in list.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => at_start = true,
                letter if at_start && depth == 0 && letter.is_alphabetic() => {
                    found.extend(identifiers(&list[index..]).next().map(str::to_owned));
                    at_start = false;
                }
                _ => {}
            }
        }
    }
    found
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|name| !name.is_empty())
}
