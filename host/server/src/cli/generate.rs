//! What is generated from the definition of the command line: completion scripts for shells, and
//! manual pages.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::aot::{Shell, generate};
use serde_json::json;

use super::Cli;
use crate::failure::Failure;
use crate::options::Options;
use crate::start::write_out;

/// Prints the completion script of a shell.
///
/// # Errors
///
/// Standard output cannot be written.
pub(super) fn completions(options: &Options, shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(shell, &mut definition(), "cofferdam", &mut script);
    let script = String::from_utf8_lossy(&script);
    if options.json {
        return write_out(&format!("{}\n", json!({"shell": shell.to_string(), "script": script})));
    }
    write_out(&script)
}

/// Writes one manual page for each command into a directory, which is created if it does not exist.
///
/// # Errors
///
/// The directory or a file in it cannot be written.
pub(super) fn manual(options: &Options, directory: &Path) -> Result<(), Failure> {
    let failed = || Failure::system(directory.display().to_string());
    std::fs::create_dir_all(directory).map_err(failed())?;
    clap_mangen::generate_to(definition(), directory).map_err(failed())?;
    let shown = directory.join("cofferdam.1");
    if options.json {
        return write_out(&format!("{}\n", json!({"directory": directory, "page": shown})));
    }
    write_out(&format!(
        "Wrote the manual pages into {}. To read the first one: man -l {}\n",
        directory.display(),
        shown.display()
    ))
}

/// The command line, without the values that environment variables have on this machine.
fn definition() -> Command {
    Cli::command().mut_args(|argument| argument.hide_env_values(true))
}
