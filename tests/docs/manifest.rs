//! `docs/reference/manifest.md` is written by hand; here its keys are held against the reader of manifests.

use super::markdown::{Page, root};
use cofferdam_runtime::Manifest;

/// A manifest of each kind with an unknown key `?` in one table, which the reader refuses with a list of the
/// keys that it knows there. By the heading of the table on the page.
const TABLES: [(&str, &str); 12] = [
    ("The top of the file", "? = 1\n"),
    ("`[limits]`", "[limits]\n? = 1\n"),
    ("`[[injections]]`", "[[injections]]\n? = 1\n"),
    ("`[router]`", "[router]\n? = 1\n"),
    ("`[provider]`", "[provider]\n? = 1\n"),
    ("`[provider.credential]`", "[provider.credential]\n? = 1\n"),
    ("`[provider.models]`", "[provider.models]\n? = 1\n"),
    ("`[hook]`", "[hook]\n? = 1\n"),
    ("`[tool]`", "[tool]\n? = 1\n"),
    ("`[[tool.items]]`", "[[tool.items]]\n? = 1\n"),
    ("`[tool.items.text]`", "[[tool.items]]\n[tool.items.text]\n? = 1\n"),
    ("`[tool.items.asks]`", "[[tool.items]]\n[tool.items.asks]\n? = 1\n"),
];

#[test]
fn the_page_of_the_manifest_has_the_keys_that_are_read() {
    let page = Page::read(root().join("docs/reference/manifest.md")).text;
    for (heading, text) in TABLES {
        let text = text.replace('?', "unknown");
        let message = Manifest::parse(&text).unwrap_err().to_string();
        let (_, known) = message.split_once("expected ").unwrap_or_else(|| panic!("{text}: {message}"));
        let mut known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let (_, section) =
            page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
        let section = section.split("\n## ").next().unwrap();
        let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let mut written: Vec<&str> = cells.map(|(key, _)| key).collect();
        known.sort_unstable();
        written.sort_unstable();
        assert_eq!(written, known, "{heading}: the keys on the page, and those that are read");
    }
}
