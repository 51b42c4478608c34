//! The program `cofferdam`: protects the process against debuggers, reads the command line and runs
//! the command.

use std::process::ExitCode;

use clap::Parser;
use cofferdam::cli::{Cli, run};
use cofferdam::failure::Failure;
use cofferdam::{hygiene, telemetry};
use mimalloc::MiMalloc;

/// A request makes some hundred allocations, and many of them are freed on another thread. mimalloc
/// is fast in both cases.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let sealed = hygiene::seal_process();
    let cli = Cli::parse();
    let as_json = cli.options.json;
    let lines = telemetry::PluginLines::default();
    let (logging, mistakes) = match telemetry::start(cli.log_level(), &lines) {
        Ok(started) => started,
        Err(error) => {
            complain(&Failure::system("the log")(error).describe(as_json));
            return ExitCode::FAILURE;
        }
    };
    for telemetry::Mistake { variable, error } in mistakes {
        tracing::warn!(variable, mistake = error, "the value of {variable} is ignored");
    }
    if let Err(error) = sealed {
        tracing::warn!(%error, "the process cannot be sealed against debuggers and core files");
    }
    let outcome = run(cli, lines);
    // The logger writes from a thread of its own. It is flushed here, so that the error below is
    // the last line.
    drop(logging);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure.describe(as_json));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Prints the error that ends a command to standard error. The log is for running hosts.
#[expect(clippy::print_stderr, reason = "errors of commands go to standard error")]
fn complain(message: &str) {
    eprintln!("{message}");
}
