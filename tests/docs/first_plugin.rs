//! The guide to a first plugin, `docs/plugins/index.md`, and the page about publishing it: their commands are run as
//! they stand there, from an empty folder. The guide needs the toolchain of Rust and downloads its packages.

use super::markdown::{Block, Page, root};
use super::session::Session;
use super::shell::{Step, steps};
use crate::plugin_kit::{Workshop, is_tried, tool_module};
use std::path::Path;

/// The blocks of a page from a heading to the next one of its level or above.
fn section(page: &str, heading: &str) -> Vec<Block> {
    let page = Page::read(root().join("docs/plugins").join(page));
    let begin = page.text.lines().position(|line| line == heading).unwrap() + 1;
    let level = |line: &str| line.split(' ').next().filter(|marks| marks.starts_with("##")).map(str::len);
    let ends =
        |line: &str| level(line).is_some_and(|level| level <= heading.split(' ').next().unwrap().len());
    let end = begin + page.text.lines().skip(begin).position(ends).unwrap();
    let line_of = |block: &Block| block.place.rsplit(':').next().unwrap().parse::<usize>().unwrap();
    page.blocks.into_iter().filter(|block| (begin..=end).contains(&line_of(block))).collect()
}

/// Runs a command that has to print these lines, or to succeed if there are none.
fn run(session: &mut Session, command: &str, expected: &[&str]) {
    let expected = expected.iter().map(|line| (*line).to_owned()).collect();
    done(session, &Step { command: command.to_owned(), expected });
}

fn done(session: &mut Session, step: &Step) {
    session.run(step).unwrap_or_else(|wrong| panic!("$ {}\n{wrong}\n{}", step.command, session.logs()));
}

/// Follows the commands of a section from an empty folder to an answer like this one. Other blocks are files of the
/// project, named by the first word of their info.
fn guide(page: &str, heading: &str, files: &[(&str, &str)], answer: &str) {
    if !is_tried("rust", &["cargo"]) {
        return;
    }
    let mut session = Session::start();
    // The shell has a home of its own, in which neither packages nor compilers are.
    for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let home =
            std::env::var(name).unwrap_or_else(|_| format!("{}/{folder}", std::env::var("HOME").unwrap()));
        run(&mut session, &format!("export {name}='{home}'"), &[]);
    }
    let mut is_asked = false;
    for Block { place, info, text } in section(page, heading) {
        let kind = info.split(' ').next().unwrap();
        if let Some((_, file)) = files.iter().find(|(known, _)| *known == kind) {
            std::fs::write(session.home().join(file), text).unwrap();
        } else if kind == "console" {
            for step in steps(&text).unwrap_or_else(|wrong| panic!("{place}: {wrong}")) {
                is_asked |= step.command.starts_with("curl ");
                follow(&mut session, step, answer);
            }
        }
    }
    assert!(is_asked, "{page} has no call of the plugin");
}

/// Does what a reader does with a command of a guide.
fn follow(session: &mut Session, mut step: Step, answer: &str) {
    match step.command.as_str() {
        // A terminal of its own.
        command if command.starts_with("cofferdam serve --plugins") => step.command.push_str(" &"),
        "KEY=cfd_..." => {
            let printed = session.printed();
            let key = printed.split_whitespace().find(|word| word.starts_with("cfd_")).unwrap();
            step.command = format!("KEY={key}");
        }
        "cofferdam plugin test" => step.expected = vec!["...".to_owned(), "[..] passed, 0 failed".to_owned()],
        command if command.starts_with("curl ") => step.expected = vec![answer.to_owned()],
        _ => {}
    }
    done(session, &step);
}

#[test]
fn the_guide_leads_from_an_empty_folder_to_a_tool_that_a_model_calls() {
    let files = [("rust", "dice/src/lib.rs"), ("toml", "dice/cases/first.toml")];
    let answer = "[..]\"type\":\"service:dice\"[..]\"status\":\"completed\"[..]The die shows [..]";
    guide("index.md", "## Write a tool in ten minutes", &files, answer);
}

#[test]
fn a_first_hook_refuses_a_request_as_its_page_says() {
    guide("hook.md", "## How do I begin?", &[], "[..]the request has a word that is forbidden here[..]");
}

#[test]
fn a_first_router_takes_the_place_of_the_built_in_one_as_its_page_says() {
    guide("router.md", "## How do I begin?", &[("toml", "router/own.toml")], "[..]I am local/demo[..]");
}

#[test]
fn a_first_provider_is_configured_as_its_page_says() {
    // Nothing listens at the address that the page shows.
    let files = [("toml", "provider-mine/own.toml")];
    guide("provider.md", "## How do I begin?", &files, "[..]my-server[..]");
}

/// A plugin `dice` of this version in a folder, with its manifest beside it.
fn dice(folder: &Path, component: &[u8], version: &str, asks: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("dice.wasm"), component).unwrap();
    let manifest = format!(
        "name = \"dice\"\nkind = \"tool\"\nversion = \"{version}\"\ndescription = \"Rolls dice.\"\n{asks}[tool]\n\
         type = \"dice\"\n"
    );
    std::fs::write(folder.join("dice.toml"), manifest).unwrap();
}

/// A shell with a host, and versions of `dice` in their folders, of which the later ones ask for more hosts.
fn shop() -> Session {
    let workshop = Workshop::new();
    workshop.prebuilt_of("tool-dice", &tool_module("0.1.0", b"text"));
    workshop.document(&["plugin", "build", "tool-dice"]);
    let component = std::fs::read(workshop.path("tool-dice/plugins/tool-dice.wasm")).unwrap();
    let mut session = Session::start();
    let api = "\"api.random.example\"";
    for (folder, version, hosts) in [
        ("dice/plugins", "0.1.0", api.to_owned()),
        ("dice-0.2.0", "0.2.0", api.to_owned()),
        ("dice-0.3.0", "0.3.0", format!("{api}, \"b.example\"")),
        ("dice-0.4.0", "0.4.0", format!("{api}, \"b.example\", \"c.example\"")),
    ] {
        let asks = format!("imports = [\"http\"]\nhosts = [{hosts}]\n");
        dice(&session.home().join(folder), &component, version, &asks);
    }
    run(&mut session, "cofferdam serve &", &[]);
    session
}

/// The commands of the first block of a shell in a section of the page about publishing.
fn commands(heading: &str) -> Vec<Step> {
    let blocks = section("publishing.md", heading);
    steps(&blocks.iter().find(|block| block.info == "console").unwrap().text).unwrap()
}

#[test]
fn a_plugin_is_installed_updated_and_removed_by_the_commands_of_the_page() {
    let mut session = shop();
    for heading in ["install a plugin?", "update a plugin?", "go back, and how do I remove a plugin?"] {
        for step in commands(&format!("## How do I {heading}")) {
            done(&mut session, &step);
        }
    }
}

#[test]
fn an_update_that_asks_for_more_is_accepted_and_dropped_by_the_commands_of_the_page() {
    let mut session = shop();
    let steps = commands("### What happens to an update that asks for more?");
    let [print, accept, remove] = steps.as_slice() else { panic!("{} commands", steps.len()) };
    for (command, step) in [
        ("cofferdam plugin install dice/plugins && cofferdam plugin update dice-0.3.0/dice.wasm", print),
        ("true", accept),
        ("cofferdam plugin update dice-0.4.0/dice.wasm", remove),
    ] {
        run(&mut session, command, &[]);
        done(&mut session, step);
    }
}
