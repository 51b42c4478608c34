//! What the program generates from its own command line: completion scripts and manual pages.

use crate::kit::host::program;
use clap::{Command as Definition, CommandFactory};
use cofferdam::cli::Cli;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

fn script(shell: &str) -> String {
    let output = program().args(["completions", shell]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What bash offers for these words, the last of which is not finished.
fn offered(words: &[&str]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cofferdam.bash");
    std::fs::write(&path, script("bash")).unwrap();
    let typed = words.join(" ");
    let (last, before) = words.split_last().unwrap();
    let line = format!(
        "source '{}' && COMP_WORDS=({typed}) && COMP_CWORD={} && _cofferdam cofferdam '{last}' '{}' && \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        path.display(),
        before.len(),
        before.last().unwrap()
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-euc", &line]).stdin(Stdio::null());
    let Output { status, stdout, stderr } = bash.output().unwrap();
    assert!(status.success() && stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_subcommands_and_options() {
    assert_eq!(offered(&["cofferdam", "vau"]), ["vault"]);
    assert_eq!(offered(&["cofferdam", "vault", "back"]), ["backup"]);
    assert_eq!(offered(&["cofferdam", "serve", "--che"]), ["--check"]);
}

#[test]
fn every_shell_has_a_script_that_names_every_command() {
    let definition = Cli::command();
    for shell in SHELLS {
        let script = script(shell);
        for command in definition.get_subcommands() {
            let name = command.get_name();
            assert!(script.contains(name), "{name} is not in the script for {shell}");
        }
    }
}

#[test]
fn generated_text_does_not_name_the_directory_of_this_machine() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = program().env("COFFERDAM_DATA", "/somewhere/here").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["man", directory.path().to_str().unwrap()]);
    let page = std::fs::read_to_string(directory.path().join("cofferdam.1")).unwrap();
    for text in [run(&["completions", "zsh"]), page] {
        assert!(!text.contains("/somewhere/here"), "{text}");
    }
}

/// The names of the pages that a command and its subcommands need. Commands that the program gives to itself have none.
fn pages(command: &Definition, name: &str, all: &mut Vec<String>) {
    all.push(format!("{name}.1"));
    let is_shown = |command: &&Definition| command.get_name() != "help" && !command.is_hide_set();
    for command in command.get_subcommands().filter(is_shown) {
        pages(command, &format!("{name}-{}", command.get_name()), all);
    }
}

#[test]
fn every_command_has_a_manual_page_that_renders() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("new/man1");
    let output = program().args(["man", folder.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(
        String::from_utf8(output.stdout).unwrap().contains("man -l "),
        "the output says how to read a page"
    );

    let mut expected = Vec::new();
    pages(&Cli::command(), "cofferdam", &mut expected);
    let mut written: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    written.sort();
    expected.sort();
    let names: Vec<&str> = written.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, expected);
    written.iter().for_each(|path| assert_page(path));
}

/// Has groff render the page where it is installed, else looks for the parts of a manual page.
fn assert_page(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    for part in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"] {
        assert!(text.contains(part), "{}: no {part}", path.display());
    }
    let mut groff = Command::new("groff");
    groff.args(["-man", "-Tutf8", "-ww"]).arg(path);
    let Ok(Output { status, stdout, stderr }) = groff.output() else { return };
    assert!(
        status.success() && stderr.is_empty(),
        "{}: {}",
        path.display(),
        String::from_utf8_lossy(&stderr)
    );
    let rendered = String::from_utf8(stdout).unwrap();
    let name = path.file_stem().unwrap().to_str().unwrap();
    assert!(rendered.contains(name), "{rendered}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let output = program().args(["man", "/dev/null/pages"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("/dev/null/pages"));
}
