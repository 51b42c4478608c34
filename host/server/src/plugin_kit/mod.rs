//! The commands for authors of plugins: `plugin new`, `build`, `check`, `test`, `inspect` and `wit`.
//! They work on a folder of the author and need neither a store nor a host.

mod build;
mod canaries;
mod cases;
mod check;
mod create;
mod declared;
mod examine;
mod process;
mod project;
mod recipe;
mod runs;
mod samples;
mod scripted;
mod suite;
mod trial;
mod wit;

use crate::command::{CommandOutcome, KitCommand};
use crate::failure::Failure;
use crate::options::Options;

/// Carries out a command. `Checked` says whether a check found something wrong.
pub(crate) fn carry_out(options: &Options, command: &KitCommand) -> Result<Checked, Failure> {
    let done = match command {
        KitCommand::New(arguments) => create::create(arguments),
        KitCommand::Build(project) => build::build(&project.dir),
        KitCommand::Check(project) => return check::check(options, &project.dir),
        KitCommand::Test(project) => return trial::test(&project.dir),
        KitCommand::Inspect { file } => declared::inspect(file),
        KitCommand::Wit { dir } => wit::write_out_to(dir),
        KitCommand::Examine(arguments) => examine::examine(arguments),
    };
    done.map(|outcome| Checked { outcome, wrong: 0, what: "" })
}

/// The outcome of a command, and how many things a check found wrong.
pub(crate) struct Checked {
    pub(crate) outcome: CommandOutcome,
    pub(crate) wrong: usize,
    /// What one of them is.
    pub(crate) what: &'static str,
}
