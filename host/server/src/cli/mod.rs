//! The definition of the command line. `command` carries commands out; `run` decides whether they
//! run in this process or in the running host.

mod prepare;
mod run;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tracing_subscriber::filter::LevelFilter;

use crate::command::Command;

pub(crate) use run::execute;
pub use run::run;

/// A WebAssembly plugin host that serves a Responses API.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub options: Options,
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
            Some(Action::Command(_)) => LevelFilter::WARN,
        }
    }
}

/// The heading in the help text.
const OF_EVERY_COMMAND: &str = "Options of every command";

/// Options of every command; they may stand before or after it.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The data directory
    #[arg(long, global = true, help_heading = OF_EVERY_COMMAND, value_name = "DIR", env = "COFFERDAM_DATA", default_value = "data")]
    pub data: PathBuf,
    /// The configuration file [default: cofferdam.toml in the data directory, if it exists]
    #[arg(long, global = true, help_heading = OF_EVERY_COMMAND, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print one JSON document on standard output
    #[arg(long, global = true, help_heading = OF_EVERY_COMMAND)]
    pub json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Serve the API until told to stop; this is also what no command means
    Serve(Serve),
    /// What is done to a store, by this process or by the one that serves.
    #[command(flatten)]
    Command(Command),
}

/// Options of `serve`.
#[derive(Debug, Clone, Default, Args)]
pub struct Serve {
    /// Where clients connect, in place of the configuration's `server.listen`
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where health checks and metrics are, in place of `server.admin`
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// Plugins that are added to the built-in ones, or replace those that the configuration names
    #[arg(long, value_name = "DIR")]
    pub plugins: Option<PathBuf>,
    /// Check configuration and plugins, then exit
    #[arg(long)]
    pub check: bool,
    /// Open a store that is older than its anchor says, at this sequence number
    #[arg(long, value_name = "SEQ")]
    pub accept_rollback: Option<u64>,
}

#[cfg(test)]
mod tests;
