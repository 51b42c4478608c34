//! What README.md and the pages below `docs/` say, tried: their commands, configurations and links, and the
//! parts that are made from the code.
//!
//! - `console run=NAME`: the commands behind `$ ` are run, in order, with all blocks of that name on the page, in
//!   one directory that is empty at first. What they print is compared with the other lines, in which `[..]` stands
//!   for any text and a line `...` for any lines. A command that shows no output has to succeed.
//! - `console`: calls of `cofferdam` have subcommands and options that exist; so in `sh` and `bash`.
//! - the guide to a first plugin and the pages that go on from it are followed by `first_plugin.rs`.
//! - the threat model names tests that exist, and limits with the numbers of the code.
//! - `toml`: a whole configuration that `serve --check` accepts; `toml fragment` is only read.

mod commands;
mod configuration;
mod expect;
mod first_plugin;
mod generated;
mod lines;
mod manifest;
mod markdown;
mod metrics;
mod reliability;
mod requests;
mod session;
mod shell;
mod threat_model;

use crate::kit::host::program;
use markdown::{Block, Page, pages};
use session::Session;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

/// So that it can be read in a few minutes.
const README_LINES_MAX: usize = 150;
/// How paths begin that mean something on one machine only.
const MACHINE_PATHS: [&str; 5] = ["/home/", "/root/", "/Users/", "/work/", "/tmp/"];

/// Fails with everything that is wrong, one paragraph each.
fn assert_none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The blocks of all pages whose info has this word first.
fn blocks<'p>(pages: &'p [Page], kinds: &'p [&str]) -> impl Iterator<Item = &'p Block> {
    let is_meant = |block: &&Block| kinds.contains(&block.info.split(' ').next().unwrap_or_default());
    pages.iter().flat_map(|page| &page.blocks).filter(is_meant)
}

#[test]
fn readme_has_at_most_150_lines() {
    let readme = Page::read(markdown::root().join("README.md"));
    let lines = readme.text.lines().count();
    assert!(lines <= README_LINES_MAX, "README.md has {lines} lines: what is more belongs into docs/");
}

#[test]
fn no_page_has_a_path_of_one_machine() {
    let mut wrong = Vec::new();
    for page in pages() {
        let is_wrong = |line: &str| MACHINE_PATHS.iter().any(|path| line.contains(path));
        let lines = page.text.lines().enumerate().filter(|(_, line)| is_wrong(line));
        wrong.extend(lines.map(|(index, line)| format!("{}:{}: {line}", page.name, index + 1)));
    }
    assert_none(wrong);
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut wrong = Vec::new();
    for page in pages() {
        for (link, line) in &page.links {
            if let Err(problem) = follow(&page, link) {
                wrong.push(format!("{}:{line}: {link}: {problem}", page.name));
            }
        }
    }
    assert_none(wrong);
}

fn follow(page: &Page, link: &str) -> Result<(), &'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { page.path.clone() } else { page.path.with_file_name(file) };
    let Ok(path) = path.canonicalize() else { return Err("there is no such file") };
    if !path.starts_with(markdown::root()) {
        return Err("it leaves the repository");
    }
    match anchor {
        None => Ok(()),
        Some(_) if path.extension().is_none_or(|extension| extension != "md") => {
            Err("only pages have headings")
        }
        Some(anchor) if Page::read(path).anchors.iter().any(|known| known == anchor) => Ok(()),
        Some(_) => Err("there is no such heading"),
    }
}

#[test]
fn blocks_say_how_they_are_checked() {
    let known = |info: &str| {
        let name = info.strip_prefix("console run=");
        matches!(info, "console" | "toml" | "toml fragment")
            || name.is_some_and(|name| !name.is_empty() && !name.contains(' '))
    };
    let pages = pages();
    let unknown = blocks(&pages, &["console", "toml"]).filter(|block| !known(&block.info));
    assert_none(unknown.map(|block| format!("{}: ```{}", block.place, block.info)).collect());
}

#[test]
fn configurations_are_accepted() {
    let mut wrong = Vec::new();
    let pages = pages();
    for Block { place, info, text } in blocks(&pages, &["toml"]) {
        let result = match info.as_str() {
            "toml" => check(text),
            _ => toml::from_str::<toml::Table>(text).map(drop).map_err(|error| error.to_string()),
        };
        if let Err(problem) = result {
            wrong.push(format!("{place}: {problem}"));
        }
    }
    assert_none(wrong);
}

/// Gives this to `serve --check` as a configuration.
fn check(config: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cofferdam.toml");
    std::fs::write(&file, config).unwrap();
    let password = directory.path().join("db.password");
    std::fs::write(&password, "a password\n").unwrap();
    std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = program();
    command.arg("--data").arg(directory.path().join("data")).arg("--config").arg(file);
    let output = command.args(["serve", "--check"]).output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    let complaints = complaints.replace(&format!("{}/", directory.path().display()), "");
    if output.status.success() { Ok(()) } else { Err(complaints) }
}

#[test]
fn commands_have_subcommands_and_options_that_exist() {
    let mut wrong = Vec::new();
    let pages = pages();
    for Block { place, info, text } in blocks(&pages, &["console", "sh", "bash"]) {
        // Story blocks and scripts: every line that is no command is one of its continuation lines.
        let commands = match info.as_str() {
            "sh" | "bash" => Ok(vec![text.clone()]),
            _ => shell::steps(text).map(|steps| steps.into_iter().map(|step| step.command).collect()),
        };
        match commands {
            Ok(commands) => {
                let mistakes = commands.iter().filter_map(|command| shell::mistake(command));
                wrong.extend(mistakes.map(|mistake| format!("{place}: {mistake}")));
            }
            Err(problem) => wrong.push(format!("{place}: {problem}")),
        }
    }
    assert_none(wrong);
}

#[test]
fn consoles_print_what_pages_show() {
    let mut wrong = Vec::new();
    for page in pages() {
        // Blocks of one name share a shell.
        let mut sessions: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
        for block in &page.blocks {
            if let Some(name) = block.info.strip_prefix("console run=") {
                sessions.entry(name).or_default().push(block);
            }
        }
        wrong.extend(sessions.values().filter_map(|blocks| run(blocks).err()));
    }
    assert_none(wrong);
}

/// Runs blocks in one shell, up to the first command that does not do what its page says.
fn run(blocks: &[&Block]) -> Result<(), String> {
    let mut session = Session::start();
    for Block { place, text, .. } in blocks {
        for step in shell::steps(text).map_err(|problem| format!("{place}: {problem}"))? {
            session.run(&step).map_err(|problem| {
                let expected = step.expected.join("\n");
                let logs = session.logs();
                format!("{place}: $ {}\n{problem}\nexpected:\n{expected}\nlogs:\n{logs}", step.command)
            })?;
        }
    }
    Ok(())
}
