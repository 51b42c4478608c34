//! The definition of the command line. `prepare` reads what only this process can read; `run`
//! starts the host or runs a command.

mod create;
mod generate;
mod health;
mod prepare;
mod run;
mod tour;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::aot::Shell;
use http::Uri;
use tracing_subscriber::filter::LevelFilter;

use crate::command::Command;
use crate::options::{Options, Serve};

pub use run::run;

/// A WebAssembly plugin host that serves a Responses API.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub options: Options,
    /// The process that started this one and that it ends with; this program sets it for its own
    /// children.
    #[arg(long, global = true, hide = true, value_name = "PID")]
    pub parent: Option<u32>,
    /// What to do; without one, `serve`.
    #[command(subcommand)]
    pub action: Option<Action>,
}

impl Cli {
    /// The log level unless `COFFERDAM_LOG` sets one. Commands log only warnings and errors.
    #[must_use]
    pub fn log_level(&self) -> LevelFilter {
        match self.action {
            None | Some(Action::Serve(_)) => LevelFilter::INFO,
            // What would be a warning is a finding.
            Some(Action::Command(Command::Doctor(_))) => LevelFilter::ERROR,
            Some(_) => LevelFilter::WARN,
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Serve the API until told to stop; this is also what no command means
    Serve(Serve),
    /// What is done to a store, by this process or by the one that serves.
    #[command(flatten)]
    Command(Command),
    /// Show in two seconds, offline, how a model uses a secret that it cannot see
    Tour,
    /// Ask the running host whether it is ready: exit status 0 if it is, else 1
    Health {
        /// What is asked, in place of `/readyz` of the configured `server.admin`
        #[arg(long, value_name = "URL", value_parser = health::url)]
        url: Option<Uri>,
    },
    /// Print the script that completes commands and options in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write a manual page for each command into a directory
    Man {
        /// The directory; it is created if it does not exist
        directory: PathBuf,
    },
}

#[cfg(test)]
mod tests;
