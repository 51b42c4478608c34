//! The commands for authors of plugins: `plugin new`, `build`, `check`, `test`, `dev`, `inspect`,
//! `wit` and `replay`. They work on files of the author. Only `dev` has a store and a host, both of its
//! own.

mod build;
mod canaries;
mod case_of_recording;
mod cases;
mod check;
mod create;
mod declared;
mod dev;
mod dev_host;
mod dev_recordings;
mod examination;
mod examine;
mod output;
mod package;
mod process;
mod project;
mod recipe;
mod replay;
mod rerun;
mod runs;
mod samples;
mod scripted;
mod suite;
mod trial;
mod watch;
mod wit;

use cofferdam_runtime::ContractLine;

use crate::command::{CommandOutcome, KitCommand};
use crate::failure::Failure;
use crate::options::Options;

pub(crate) use package::stage;
use process::OutputTo;

/// Carries out a command. `Checked` says whether a check found something wrong.
pub(crate) fn carry_out(options: &Options, command: &KitCommand) -> Result<Checked, Failure> {
    let runs_processes = matches!(
        command,
        KitCommand::Build(_) | KitCommand::Check(_) | KitCommand::Test(_) | KitCommand::Replay(_)
    );
    if runs_processes {
        process::stop_on_signals().map_err(Failure::system("signals"))?;
    }
    let done = match command {
        KitCommand::New(arguments) => create::create(arguments),
        KitCommand::Build(project) => build::build(&project.dir, OutputTo::Screen),
        KitCommand::Check(project) => return check::check(options, &project.dir),
        KitCommand::Test(project) => return trial::test(&project.dir),
        KitCommand::Dev(arguments) => dev::dev(options, arguments),
        KitCommand::Inspect { file } => return declared::inspect(file),
        KitCommand::Wit { line, dir } => wit::write_out_to(dir, line.unwrap_or(ContractLine::newest())),
        KitCommand::Replay(arguments) => return replay::replay(options, arguments),
        KitCommand::Rerun(arguments) => rerun::rerun(arguments),
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
