//! The hosts, each a process with a data directory of its own.

use anyhow::{Context, Result, bail};
use cofferdam_test_postgres::Database;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// What all hosts have in common.
pub(crate) struct Site {
    program: PathBuf,
    folder: TempDir,
}

/// A host that runs. Dropping it ends the process.
pub(crate) struct Host {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) process: Child,
}

impl Site {
    /// Writes the configuration for a database behind these ports, of which one takes writes.
    pub(crate) fn new(program: PathBuf, database: &Database, ports: &[u16]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("cofferdam-cluster-").tempdir()?;
        let Database { name, user, password, .. } = database;
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let config = format!(
            "[store]\nurl = \"postgres://{user}@{}/{name}\"\npassword = \"file:db.password\"\n\
             [vault]\nroot_key = \"file:root.key\"\n",
            hosts.join(",")
        );
        fs::write(folder.path().join("cofferdam.toml"), config)?;
        let mut file = OpenOptions::new();
        let mut file =
            file.write(true).create_new(true).mode(0o600).open(folder.path().join("db.password"))?;
        file.write_all(password.as_bytes())?;
        Ok(Self { program, folder })
    }

    fn command(&self, data: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let config = self.folder.path().join("cofferdam.toml");
        command.arg("--json").arg("--config").arg(config).arg("--data").arg(data);
        command
    }

    /// Makes the store. Returns its first key.
    pub(crate) fn create_store(&self) -> Result<String> {
        let made = self.command(&self.folder.path().join("first")).args(["store", "create"]).output();
        let made = made.with_context(|| format!("{} does not start", self.program.display()))?;
        if !made.status.success() {
            bail!("the store was not made: {}", String::from_utf8_lossy(&made.stderr));
        }
        let made: Value = serde_json::from_slice(&made.stdout)?;
        Ok(made.get("key").and_then(Value::as_str).context("no key was shown")?.to_owned())
    }

    /// Starts a host and waits until it listens. Its log goes to the standard error of this program.
    pub(crate) fn start(&self, name: &str) -> Result<Host> {
        let parent = std::process::id().to_string();
        let mut command = self.command(&self.folder.path().join(name));
        command.args(["--parent", &parent, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("no output")?).read_line(&mut line)?;
        let said: Value =
            serde_json::from_str(&line).with_context(|| format!("host {name} did not start"))?;
        let address = |member: &str| -> Result<SocketAddr> {
            Ok(said.get(member).and_then(Value::as_str).context("no address")?.parse()?)
        };
        Ok(Host { listen: address("listen")?, admin: address("admin")?, process })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.process.kill().is_ok() {
            let _ended = self.process.wait();
        }
    }
}
