//! Which commands the admin API carries out. A command is remote only if its definition says so:
//! it then reads and writes no path, starts no process, asks nothing on a terminal, and prints no
//! credential but a new API key.

use clap::Subcommand;
use clap::builder::CommandExt;

use super::Command;

/// The mark of a remote command in its definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    /// The command changes nothing: `GET`.
    Reads,
    /// The command may change something: `POST`.
    Changes,
}

impl CommandExt for Remote {}

/// All commands that reach the store or the host, with their marks.
#[must_use]
pub fn definition() -> clap::Command {
    plain(Command::augment_subcommands(clap::Command::new("cofferdam")))
}

/// Takes away what is for people at a terminal: help texts in the place of errors.
fn plain(command: clap::Command) -> clap::Command {
    let command = command.arg_required_else_help(false).disable_help_flag(true).disable_help_subcommand(true);
    command.mut_subcommands(plain)
}

/// A remote command: its names, its definition and its mark.
pub struct RemoteCommand {
    /// The words of the command line, such as `key` and `create`.
    pub words: Vec<String>,
    /// The definition of its arguments.
    pub definition: clap::Command,
    /// How it is marked.
    pub remote: Remote,
}

/// All remote commands, in the order of the help text.
#[must_use]
pub fn all() -> Vec<RemoteCommand> {
    let mut found = Vec::new();
    gather(&definition(), &mut Vec::new(), &mut found);
    found
}

fn gather(command: &clap::Command, words: &mut Vec<String>, found: &mut Vec<RemoteCommand>) {
    for command in command.get_subcommands() {
        words.push(command.get_name().to_owned());
        if let Some(remote) = command.get::<Remote>() {
            found.push(RemoteCommand { words: words.clone(), definition: command.clone(), remote: *remote });
        }
        gather(command, words, found);
        words.pop();
    }
}
