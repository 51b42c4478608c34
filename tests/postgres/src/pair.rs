//! A primary and its standbys.

use crate::programs::Programs;
use crate::server::folder;
use crate::{Options, Result, Server};
use std::path::Path;

/// A primary whose commits wait for its only standby, `b`. Both are servers like any other: what is killed, stopped
/// or restarted is done to `primary` or `standby`.
pub struct Pair {
    pub primary: Server,
    pub standby: Server,
}

/// The name of the standby and of its replication slot.
const STANDBY: &str = "b";

impl Pair {
    /// Starts both, and waits until commits wait for the standby.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn start() -> Result<Self> {
        Self::start_with(&Options::new())
    }

    pub(crate) fn start_with(options: &Options) -> Result<Self> {
        let primary = Server::start_with(options)?;
        let standby = follow(&primary, STANDBY, options)?;
        let pair = Self { primary, standby };
        pair.wait_for_standby(true)?;
        Ok(pair)
    }

    /// Whether commits wait until the standby has them on disk. Returns when all processes of the primary know.
    ///
    /// # Errors
    /// One of them does not answer, or the standby is not connected.
    pub fn wait_for_standby(&self, waits: bool) -> Result<()> {
        if waits {
            self.primary.set("synchronous_standby_names", "ANY 1 (b)")?;
            self.primary.until_blocking("SELECT sync_state FROM pg_stat_replication", "quorum")?;
        } else {
            self.primary.set("synchronous_standby_names", "")?;
            self.primary.until_blocking("SELECT current_setting('synchronous_standby_names')", "")?;
        }
        // Commits go by what the checkpointer knows, and it reads the settings before it does what it is asked.
        self.primary.query("CHECKPOINT")?;
        Ok(())
    }

    /// Ends the stream to the standby and no longer waits for it: what is committed from now on it does not get.
    /// Promoted, it lacks acknowledged commits.
    ///
    /// # Errors
    /// One of them does not answer.
    pub fn detach(&self) -> Result<()> {
        self.wait_for_standby(false)?;
        self.standby.set("primary_conninfo", "")?;
        self.primary.until_blocking("SELECT count(*) FROM pg_stat_replication", "0")
    }

    /// The end of [`Pair::detach`]: the standby catches up, commits wait for it.
    ///
    /// # Errors
    /// One of them does not answer.
    pub fn attach(&self) -> Result<()> {
        self.standby.set("primary_conninfo", &conninfo(&self.primary, STANDBY))?;
        self.primary
            .until_blocking("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "1")?;
        self.wait_for_standby(true)
    }

    /// Whether the standby applies what it gets. It has it on disk nevertheless: commits go on, its readers lag.
    ///
    /// # Errors
    /// It does not answer or was promoted.
    pub fn replay(&self, replays: bool) -> Result<()> {
        let (call, is_paused) = if replays { ("resume", "f") } else { ("pause", "t") };
        self.standby.query(&format!("SELECT pg_wal_replay_{call}()"))?;
        self.standby.until_blocking("SELECT pg_is_wal_replay_paused()", is_paused)?;
        let version = self.standby.query("SHOW server_version_num")?;
        // Before version 14 there is no difference between a pause and the wish for one.
        if !replays && version.first().and_then(|row| row.first()) >= Some(&Some("140000".to_owned())) {
            self.standby.until_blocking("SELECT pg_get_wal_replay_pause_state()", "paused")?;
        }
        Ok(())
    }

    /// Waits until readers of the standby see everything that the primary acknowledged before: a commit waits until the
    /// standby has it on disk, not until it is applied.
    ///
    /// # Errors
    /// The standby does not answer, was promoted, or does not replay.
    pub fn until_replayed(&self) -> Result<()> {
        self.standby.until_blocking("SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()", "t")
    }

    /// Makes the standby a primary, and waits until it takes writes. It waits for no standby of its own. The old
    /// primary is not told.
    ///
    /// # Errors
    /// It does not become one.
    pub fn promote(&self) -> Result<()> {
        self.standby.query("SELECT pg_promote(true, 60)")?;
        self.standby.until_blocking("SELECT pg_is_in_recovery()", "f")
    }
}

/// Starts a standby on a copy of the primary. `name` is that of the standby and of its replication slot.
pub(crate) fn follow(primary: &Server, name: &str, options: &Options) -> Result<Server> {
    let (programs, folder) = folder()?;
    copy(primary, name, &programs, folder.path())?;
    std::fs::write(folder.path().join("data/standby.signal"), "")?;
    let options = options
        .clone()
        .setting("primary_conninfo", &conninfo(primary, name))
        .setting("primary_slot_name", name);
    Server::run_in(programs, folder, primary.password().to_owned(), &options)
}

fn copy(primary: &Server, name: &str, programs: &Programs, folder: &Path) -> Result<()> {
    let host = format!("--host={}", primary.socket_folder().display());
    let port = format!("--port={}", primary.port());
    let slot = format!("--slot={name}");
    let arguments = [&host, &port, "--username=postgres", "--pgdata=data", "--wal-method=stream", &slot];
    let quick = ["--create-slot", "--checkpoint=fast", "--no-sync"];
    programs.run("pg_basebackup", folder, &[&arguments[..], &quick].concat())
}

/// By TCP: the way that a [`Proxy`](crate::Proxy) can be put into.
fn conninfo(primary: &Server, name: &str) -> String {
    format!(
        "host=127.0.0.1 port={} user=postgres password={} application_name={name}",
        primary.port(),
        primary.password()
    )
}
