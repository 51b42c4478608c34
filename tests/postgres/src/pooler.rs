//! A real PgBouncer before a server.

use crate::Result;
use crate::log::Log;
use crate::process::Process;
use crate::programs::Programs;
use crate::server::{Database, PORT_TRIES, folder, free_port};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where Debian's package has the program.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A PgBouncer that gives each transaction to any connection of its pool, on a free port of 127.0.0.1. It ends with
/// this value.
pub struct Pooler {
    database: Database,
    process: Option<Process>,
    _folder: TempDir,
}

impl Pooler {
    /// Starts one with so many connections to the server. `None` where PgBouncer is not installed, which is printed.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(database: &Database, connections: u32) -> Result<Option<Self>> {
        if !Path::new(PROGRAM).is_file() {
            eprintln!("SKIPPED: there is no {PROGRAM}; Debian: apt-get install pgbouncer");
            return Ok(None);
        }
        let (programs, folder) = folder()?;
        let Database { name, user, password, port } = database;
        std::fs::write(folder.path().join("users"), format!("\"{user}\" \"{password}\"\n"))?;
        let log = Log::new(folder.path().join("log"));
        let plain = if knows_prepared_statements(&programs, folder.path())? {
            "max_prepared_statements = 0\n"
        } else {
            ""
        };
        for _ in 0..PORT_TRIES {
            let listens = free_port()?;
            // The newest connection first would give one connection to all transactions that do not overlap.
            let settings = format!(
                "[databases]\n{name} = host=127.0.0.1 port={port} user={user} password={password}\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listens}\nunix_socket_dir =\n\
                 auth_type = scram-sha-256\nauth_file = users\npool_mode = transaction\n\
                 default_pool_size = {connections}\nmin_pool_size = {connections}\nserver_round_robin = 1\n{plain}"
            );
            std::fs::write(folder.path().join("settings"), settings)?;
            let from = log.length();
            let command = [PathBuf::from(PROGRAM), "settings".into()];
            let process = Process::start(&programs, folder.path(), &command, &log)?;
            if log.until(from, "process up")?.is_some() {
                let database = database.at(listens);
                return Ok(Some(Self { database, process: Some(process), _folder: folder }));
            }
            process.end(true)?;
        }
        bail!("PgBouncer did not start:\n{}", log.text())
    }

    /// The database behind the pooler.
    pub fn database(&self) -> &Database {
        &self.database
    }
}

/// Whether this version can keep prepared statements, as since 1.21. Older ones refuse the setting.
fn knows_prepared_statements(programs: &Programs, folder: &Path) -> Result<bool> {
    let shown = programs.command(Path::new(PROGRAM), folder).arg("--version").output()?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let version = shown.split_whitespace().nth(1).context("PgBouncer does not tell its version")?;
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor) >= (1, 21)),
        _ => bail!("PgBouncer tells a version that is none: {shown}"),
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // A failure here leaves the process to its guard, which ends with this process at the latest.
        if let Some(process) = self.process.take() {
            // A background process of a shell ignores the signal that the guard sends, if it does not handle it.
            drop(process.kill().and_then(|()| process.end(false)));
        }
    }
}
