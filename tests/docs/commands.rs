//! `docs/reference/commands.md`: what `-h` says of every command, or `--help` where values have a meaning of their own.

use super::generated;
use clap::{Command, CommandFactory};
use cofferdam::cli::Cli;
use std::fmt::Write;

/// Where the help of each command lists the options that all have.
const OF_EVERY_COMMAND: &str = "Options of every command:\n";

#[test]
fn the_generated_page_of_commands_is_current() {
    let mut program = Cli::command().mut_args(|argument| argument.hide_env_values(true));
    program.build();
    let mut text = format!("```text\n{}\n```\n", help(&mut program).trim());
    add_commands(&mut text, &mut program);
    generated::check("reference/commands.md", &text);
}

/// Adds the commands within a command, without the options of every command.
fn add_commands(text: &mut String, command: &mut Command) {
    let is_shown = |command: &&mut Command| command.get_name() != "help" && !command.is_hide_set();
    for command in command.get_subcommands_mut().filter(is_shown) {
        let help = help(command);
        let own = help.split(OF_EVERY_COMMAND).next().unwrap().trim();
        let name = command.get_bin_name().unwrap();
        write!(text, "\n## {name}\n\n```text\n{own}\n```\n").unwrap();
        add_commands(text, command);
    }
}

fn help(command: &mut Command) -> String {
    let long = command.render_long_help().to_string();
    let help = if long.contains("Possible values:") { long } else { command.render_help().to_string() };
    help.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
