//! The host of the tour: this program as a process of its own, with a data directory that is
//! deleted afterwards.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The longest first line of the host, in bytes.
const GREETING_BYTES_MAX: u64 = 64 * 1024;
/// How much of the host's log an error shows, in lines.
const LOG_LINES_SHOWN: usize = 5;

/// A running host; it is killed when dropped.
pub(super) struct HostProcess {
    child: Child,
    log: PathBuf,
}

impl HostProcess {
    /// Starts the host. Its log goes to a file in the directory. Compiled plugins are kept in
    /// `cache` if that exists, so that a second tour need not compile them.
    pub(super) fn start(directory: &Path, data: &Path, config: &Path, cache: &Path) -> std::io::Result<Self> {
        let log = directory.join("log.jsonl");
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--json").arg("--data").arg(data).arg("--config").arg(config);
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        if let Some(cache) = std::path::absolute(cache).ok().filter(|cache| cache.is_dir()) {
            command.env("COFFERDAM_CACHE", cache);
        }
        Ok(Self { child: command.spawn()?, log })
    }

    /// The address for clients, from the host's first line.
    pub(super) async fn listen(&mut self) -> Result<String, String> {
        let pipe = self.child.stdout.take().ok_or("its standard output is gone")?;
        let line = tokio::task::spawn_blocking(move || first_line(pipe)).await;
        let line = line.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let greeting: Option<Value> = serde_json::from_str(&line).ok();
        let listen = greeting.as_ref().and_then(|greeting| greeting["listen"].as_str());
        listen.map(str::to_owned).ok_or_else(|| format!("it ended at once; its log:\n{}", self.log_end()))
    }

    /// Stops the host and waits until it has ended. Its log is complete afterwards.
    pub(super) async fn stop(&mut self) -> Result<(), String> {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("it has no process id")?;
        kill_process(pid, Signal::TERM).map_err(|error| error.to_string())?;
        loop {
            match self.child.try_wait() {
                Ok(None) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(format!("it ended with {status}; its log:\n{}", self.log_end()));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or_default().join("\n")
    }
}

fn first_line(pipe: ChildStdout) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new(pipe.take(GREETING_BYTES_MAX)).read_line(&mut line)?;
    Ok(line)
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // It is killed because the tour failed. An error here means that it has just ended.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
