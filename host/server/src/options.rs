//! Options of the command line that the rest of the program needs: of every command, and of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::config::Config;

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
    /// Open a store that is older than its anchor says, at this sequence number; or accept that its database
    /// lost commits, at this position of the audit log
    #[arg(long, value_name = "SEQ")]
    pub accept_rollback: Option<u64>,
}

impl Serve {
    /// Options of the command line take precedence over the configuration file.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.server.listen = self.listen.unwrap_or(config.server.listen);
        config.server.admin = self.admin.unwrap_or(config.server.admin);
    }
}
