//! The table of `docs/plugins/lines.md`, held against the lines that the program serves.

use super::markdown::{Page, root};
use crate::kit::host::{Setup, program};
use crate::plugin_kit::{Workshop, text};

#[test]
fn the_page_of_lines_lists_those_that_the_program_serves() {
    let page = Page::read(root().join("docs/plugins/lines.md")).text;
    let (_, table) = page.split_once("\n| line | newest version | served until |\n|---|---|---|\n").unwrap();
    let mut names = Vec::new();
    let workshop = Workshop::new();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let written = workshop.document(&["plugin", "wit", "--line", cells[1], cells[1]]);
        assert_eq!((&written["line"], &written["package"]), (&cells[1].into(), &cells[2].into()), "{row}");
        names.push(cells[1].to_owned());
    }
    let output = program().args(["plugin", "wit", "--line", "9.9", "contract"]).output().unwrap();
    let complaint = text(&output);
    let served = format!("this program serves {}\n", names.join(" and "));
    assert!(complaint.contains(&served), "the page lists {names:?}: {complaint}");
    // Without a line, the newest is written. The table begins with it.
    assert_eq!(workshop.document(&["plugin", "wit"])["line"], names[0].as_str());
}

#[test]
fn each_installed_plugin_is_listed_with_its_line() {
    let listed = Setup::new().start().command(&["plugin", "list"]);
    for plugin in listed.as_array().unwrap() {
        assert_eq!(plugin["line"], "0.1", "{plugin}");
    }
}
