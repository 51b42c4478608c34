//! A host as a child process of this one, for `tour` and `plugin dev`: this program with `serve` on
//! free loopback ports. It ends with this process, however this process ends.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The longest first line of the host, in bytes.
const GREETING_BYTES_MAX: u64 = 64 * 1024;
/// How much of the host's log an error shows, in lines and in bytes.
const LOG_LINES_SHOWN: usize = 5;
const LOG_BYTES_READ: u64 = 64 * 1024;
/// The time between two looks at whether the host has ended.
const LOOK: Duration = Duration::from_millis(5);

/// What a host is started with.
pub(crate) struct HostSetup<'a> {
    pub(crate) data: &'a Path,
    pub(crate) config: &'a Path,
    /// The file for its log, which is replaced.
    pub(crate) log: &'a Path,
    /// Where compiled plugins are kept if that directory exists, so that a second start need not
    /// compile them.
    pub(crate) cache: &'a Path,
    /// Further arguments of `serve`.
    pub(crate) arguments: &'a [&'a Path],
}

/// A running host; it is killed when dropped.
pub(crate) struct HostProcess {
    child: Child,
    log: PathBuf,
}

impl HostProcess {
    /// Starts a host. It has a process group of its own: a terminal sends its interrupt to this
    /// process only, which then stops the host. Call it on a thread that lives as long as the host.
    pub(crate) fn start(setup: &HostSetup<'_>) -> std::io::Result<Self> {
        let HostSetup { data, config, log, cache, arguments } = setup;
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--json", "--parent"]).arg(std::process::id().to_string());
        command.arg("--data").arg(data).arg("--config").arg(config);
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).args(*arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).process_group(0);
        if let Some(cache) = std::path::absolute(cache).ok().filter(|cache| cache.is_dir()) {
            command.env("COFFERDAM_CACHE", cache);
        }
        Ok(Self { child: command.spawn()?, log: log.to_path_buf() })
    }

    /// What the host prints when it listens: addresses, a command to try, and a key if it made one.
    ///
    /// # Errors
    ///
    /// The host ended before.
    pub(crate) async fn greeting(&mut self) -> Result<Value, String> {
        let pipe = self.child.stdout.take().ok_or("its standard output is gone")?;
        let line = tokio::task::spawn_blocking(move || first_line(pipe)).await;
        let line = line.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        serde_json::from_str(&line).map_err(|_| format!("it ended at once; its log:\n{}", self.log_end()))
    }

    /// Makes the host read configuration and plugins again.
    pub(crate) fn reload(&self) -> Result<(), String> {
        self.signal(Signal::HUP)
    }

    /// How the host ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Stops the host and waits until it has ended. Its log is complete afterwards.
    pub(crate) async fn stop(&mut self) -> Result<(), String> {
        self.signal(Signal::TERM)?;
        loop {
            match self.child.try_wait() {
                Ok(None) => tokio::time::sleep(LOOK).await,
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(format!("it ended with {status}; its log:\n{}", self.log_end()));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of the host's log.
    pub(crate) fn log_end(&self) -> String {
        let bytes = self.log_bytes().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or_default().join("\n")
    }

    fn log_bytes(&self) -> std::io::Result<Vec<u8>> {
        let mut file = File::open(&self.log)?;
        let start = file.metadata()?.len().saturating_sub(LOG_BYTES_READ);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_READ).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("it has no process id")?;
        kill_process(pid, signal).map_err(|error| error.to_string())
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
            // An error here means that it has just ended.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
