//! A server of its own for a test.

use crate::log::Log;
use crate::options::quoted;
use crate::process::{Process, remove_shared_memory};
use crate::programs::Programs;
use crate::session::{Rows, Session};
use crate::{Options, PATIENCE, Result, search, template};
use anyhow::{Context, bail};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tempfile::TempDir;

/// A few tries: another process can take a port between the look at it and the server's start.
pub(crate) const PORT_TRIES: usize = 20;

/// The role of [`Server::database`].
const ROLE: &str = "cofferdam";

/// A PostgreSQL server with its data in a temporary folder, on a free port of 127.0.0.1. It ends with this value, and
/// when the test process ends in any other way.
pub struct Server {
    programs: Programs,
    folder: TempDir,
    port: u16,
    password: String,
    log: Arc<Log>,
    /// `None` after [`Server::kill9`].
    process: Option<Process>,
}

/// A database of a server, as a client addresses it.
#[derive(Clone, Debug)]
pub struct Database {
    pub name: String,
    pub user: String,
    pub password: String,
    pub port: u16,
}

impl Database {
    /// With the password. For loopback without TLS; parameters can be appended after a `?`.
    pub fn url(&self) -> String {
        let Self { name, user, password, port } = self;
        format!("postgres://{user}:{password}@127.0.0.1:{port}/{name}")
    }

    /// The same database behind another port: that of a [`Proxy`](crate::Proxy) or of a standby.
    pub fn at(&self, port: u16) -> Self {
        Self { port, ..self.clone() }
    }
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// PostgreSQL is not installed or does not start; the end of its log is in the error.
    pub fn start() -> Result<Self> {
        Self::start_with(&Options::new())
    }

    /// One server for all tests of this process that give it no orders: tests share it by a [`Database`] each.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<Server, String>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| Self::start().map_err(|error| format!("{error:#}")));
        shared.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    pub(crate) fn start_with(options: &Options) -> Result<Self> {
        let (programs, folder) = folder()?;
        template::fill(&programs, folder.path())?;
        let server = Self::run_in(programs, folder, random_hex()?, options)?;
        let password = &server.password;
        server.query(&format!(
            "ALTER ROLE postgres PASSWORD '{password}'; CREATE ROLE {ROLE} LOGIN PASSWORD '{password}'"
        ))?;
        Ok(server)
    }

    /// Starts a server on the data in `folder/data`.
    pub(crate) fn run_in(
        programs: Programs,
        folder: TempDir,
        password: String,
        options: &Options,
    ) -> Result<Self> {
        let data = folder.path().join("data");
        std::fs::write(data.join("pg_hba.conf"), options.access())?;
        if let Some(certificate) = &options.tls {
            certificate.write(folder.path(), &programs)?;
        }
        let log = Log::new(folder.path().join("log"));
        let mut server = Self { programs, folder, port: 0, password, log, process: None };
        for _ in 0..PORT_TRIES {
            server.port = free_port()?;
            let place = server.folder.path().to_str().context("the temporary folder is no UTF-8")?;
            std::fs::write(data.join("postgresql.conf"), options.configuration(server.port, place))?;
            if server.launch()? {
                return Ok(server);
            }
        }
        bail!("{PORT_TRIES} ports in a row were taken by others:\n{}", server.log())
    }

    /// Starts the server's processes and waits until it answers. `false`: its port is taken.
    fn launch(&mut self) -> Result<bool> {
        let from = self.log.length();
        let program = self.programs.path("postgres");
        let process = Process::start(
            &self.programs,
            self.folder.path(),
            &[program, "-D".into(), "data".into()],
            &self.log,
        )?;
        if self.log.until(from, "is ready to accept")?.is_some() {
            self.process = Some(process);
            self.query("SELECT 1").context("a server that is ready does not answer")?;
            return Ok(true);
        }
        process.end(true)?;
        let log = self.log();
        let said = log.get(from..).unwrap_or_default();
        if said.contains("could not bind") {
            return Ok(false);
        }
        bail!("the server did not start:\n{said}")
    }

    /// The database `postgres` as superuser `postgres`, by TCP and with the password.
    pub fn url(&self) -> String {
        let [name, user] = ["postgres"; 2].map(str::to_owned);
        Database { name, user, password: self.password.clone(), port: self.port }.url()
    }

    /// Makes an empty database. Its owner, who has no other rights on the server, is the user of the result.
    ///
    /// # Errors
    /// The name has other characters than `a` to `z`, `0` to `9` and `_`, or is taken.
    pub fn database(&self, name: &str) -> Result<Database> {
        let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        if !name.bytes().all(is_plain) {
            bail!("a database cannot be called {name:?}");
        }
        self.query(&format!("CREATE DATABASE \"{name}\" OWNER {ROLE}"))?;
        let (name, user) = (name.to_owned(), ROLE.to_owned());
        Ok(Database { name, user, password: self.password.clone(), port: self.port })
    }

    /// Runs statements in the database `postgres` as superuser, past TCP and without a password.
    ///
    /// # Errors
    /// That of the server, or no answer within [`PATIENCE`].
    pub fn query(&self, sql: &str) -> Result<Rows> {
        self.query_in("postgres", sql)
    }

    /// The same in another database.
    ///
    /// # Errors
    /// Those of [`Server::query`].
    pub fn query_in(&self, database: &str, sql: &str) -> Result<Rows> {
        self.session(database)?.query(sql)
    }

    fn session(&self, database: &str) -> Result<Session> {
        Session::open(&self.socket_folder().join(format!(".s.PGSQL.{}", self.port)), database)
    }

    /// Repeats a query until it gives this one value. Between two tries other tasks of this thread go on.
    ///
    /// # Errors
    /// Another value for longer than [`PATIENCE`].
    pub async fn until(&self, sql: &str, wanted: &str) -> Result<()> {
        let mut wait = self.wait_for(sql, wanted)?;
        while !wait.is_over()? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// The same for code without tasks.
    pub(crate) fn until_blocking(&self, sql: &str, wanted: &str) -> Result<()> {
        let mut wait = self.wait_for(sql, wanted)?;
        while !wait.is_over()? {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn wait_for<'w>(&self, sql: &'w str, wanted: &'w str) -> Result<Wait<'w>> {
        Ok(Wait { session: self.session("postgres")?, sql, wanted, end: Instant::now() + PATIENCE })
    }

    /// Changes a setting that needs no restart. Processes of the server learn of it a little later.
    ///
    /// # Errors
    /// The server does not know the setting or is down.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let mut session = self.session("postgres")?;
        // `ALTER SYSTEM` is refused in the transaction that two statements would be.
        session.query(&format!("ALTER SYSTEM SET {name} = {}", quoted(value)))?;
        session.query("SELECT pg_reload_conf()")?;
        Ok(())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The password of `postgres` and of the owner of databases, drawn for this server.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The folder of the server's socket file.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's first process.
    ///
    /// # Errors
    /// It was killed.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.process()?.pid())
    }

    fn process(&self) -> Result<&Process> {
        self.process.as_ref().context("the server was killed and not restarted")
    }

    /// Tables, indexes and the log of changes (`pg_wal`).
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What the server has logged since it first started.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until the log has this text.
    ///
    /// # Errors
    /// It does not come within [`PATIENCE`].
    pub async fn until_logged(&self, wanted: &str) -> Result<()> {
        let waited = tokio::time::timeout(PATIENCE, self.log.has(wanted)).await;
        waited.with_context(|| format!("no {wanted:?} within {PATIENCE:?} in the log:\n{}", self.log()))
    }

    /// The files of the server, its log among them, that contain these bytes. A server that runs writes its buffers
    /// first. Values of more than about 2 kB may be compressed in tables; their changes in `pg_wal` are not.
    ///
    /// # Errors
    /// A file cannot be read, or the server does not answer.
    pub fn files_containing(&self, bytes: &[u8]) -> Result<Vec<PathBuf>> {
        if self.process.is_some() {
            self.query("CHECKPOINT")?;
        }
        search::files_containing(self.folder.path(), bytes)
    }

    /// Kills all processes of the server at once and waits for their end. It stays down until [`Server::restart`].
    ///
    /// # Errors
    /// It was killed before.
    pub fn kill9(&mut self) -> Result<()> {
        self.process()?.kill()?;
        self.process.take().map_or(Ok(()), |process| process.end(true))
    }

    /// Stops all processes of the server (`SIGSTOP`): connections stay, nothing is answered.
    ///
    /// # Errors
    /// It was killed.
    pub fn stop_signal(&self) -> Result<()> {
        self.process()?.stop()
    }

    /// Lets them go on (`SIGCONT`).
    ///
    /// # Errors
    /// The server was killed.
    pub fn continue_signal(&self) -> Result<()> {
        self.process()?.resume()
    }

    /// Starts the server again on the same data and port, after a shutdown in order if it still runs.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart(&mut self) -> Result<()> {
        if let Some(process) = self.process.take() {
            let down = process.shut_down();
            process.end(true)?;
            down?;
        }
        for _ in 0..PORT_TRIES {
            if self.launch()? {
                return Ok(());
            }
        }
        bail!("port {} was taken by another process while the server was down", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failure here leaves processes to the guard, which ends with this process at the latest.
        match self.process.take() {
            Some(process) => drop(process.end(false)),
            None => remove_shared_memory(&self.data_dir()),
        }
    }
}

/// A wait for the answer to a query.
struct Wait<'w> {
    session: Session,
    sql: &'w str,
    wanted: &'w str,
    end: Instant,
}

impl Wait<'_> {
    fn is_over(&mut self) -> Result<bool> {
        let rows = self.session.query(self.sql)?;
        let value = rows.first().and_then(|row| row.first()?.as_deref());
        let is_over = value == Some(self.wanted);
        if !is_over && Instant::now() > self.end {
            bail!("{}: {value:?} instead of {:?} after {PATIENCE:?}", self.sql, self.wanted);
        }
        Ok(is_over)
    }
}

/// A temporary folder of the server's user.
pub(crate) fn folder() -> Result<(Programs, TempDir)> {
    let programs = Programs::find()?;
    let folder = tempfile::Builder::new().prefix("cofferdam-postgres-").tempdir()?;
    programs.hand_over(folder.path())?;
    Ok((programs, folder))
}

/// A port below those that the system gives to clients, so that none of their connections can take it while the
/// server is down.
pub(crate) fn free_port() -> Result<u16> {
    for _ in 0..PORT_TRIES {
        let mut drawn = [0; 2];
        getrandom::fill(&mut drawn)?;
        let port = 10_240 + u16::from_le_bytes(drawn) % 22_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port in {PORT_TRIES} tries")
}

fn random_hex() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
