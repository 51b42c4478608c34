//! The program `cofferdam`: seal the process, read the command line, do it.

use std::process::ExitCode;

use clap::Parser;
use cofferdam::cli::{Cli, run};
use cofferdam::failure::Failure;
use cofferdam::{hygiene, telemetry};
use mimalloc::MiMalloc;

/// A request allocates some hundred times, much of it on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let sealed = hygiene::seal_process();
    let cli = Cli::parse();
    let as_json = cli.options.json;
    let (logging, mistake) = match telemetry::start(cli.log_level()) {
        Ok(started) => started,
        Err(error) => {
            complain(&Failure::system("the log")(error).describe(as_json));
            return ExitCode::FAILURE;
        }
    };
    if let Some(telemetry::Mistake { variable, error }) = mistake {
        tracing::warn!(mistake = error, "{variable} is not a filter and not used");
    }
    if let Err(error) = sealed {
        tracing::warn!(%error, "the process cannot be sealed against debuggers and core files");
    }
    let outcome = run(cli);
    // The log ends before the last word.
    drop(logging);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure.describe(as_json));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Errors of the command line go to standard error, for people; the log is for what serves.
#[expect(clippy::print_stderr, reason = "the one place where the program speaks to whoever typed a command")]
fn complain(message: &str) {
    eprintln!("{message}");
}
