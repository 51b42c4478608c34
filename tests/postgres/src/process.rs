//! One run of a server, and the shell that ends it when the test is gone.

use crate::log::Log;
use crate::programs::Programs;
use crate::{PATIENCE, Result};
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// The parent of the server. Its standard input ends when the test ends it or dies, however that happens; then it
/// ends the server and, unless it is told to keep it, removes its folder. Debian's shell does not reap in `read`, so
/// the server's id belongs to no other process before `wait`. In the background of a shell the server has a
/// standard input of its own.
const GUARD: &str = r#"
folder=$1; shift
"$@" >&2 &
server=$!
echo "$server"
exec >/dev/null 2>&1
read -r word
kill -QUIT "$server"
kill -CONT "$server"
wait "$server"
[ "$word" = keep ] || rm -rf "$folder"
"#;

pub(crate) struct Process {
    guard: Child,
    input: Option<ChildStdin>,
    pid: Pid,
    log: Arc<Log>,
}

impl Process {
    /// Starts a command in this folder.
    pub(crate) fn start(
        programs: &Programs,
        folder: &Path,
        command: &[PathBuf],
        log: &Arc<Log>,
    ) -> Result<Self> {
        let mut guard = programs
            .command(Path::new("/bin/sh"), folder)
            .args(["-c", GUARD, "guard"])
            .arg(folder)
            .args(command)
            // A signal for the group of the test does not reach the guard.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start /bin/sh")?;
        log.follow(guard.stderr.take().context("the guard has a standard error")?)?;
        let mut line = String::new();
        BufReader::new(guard.stdout.take().context("the guard has a standard output")?)
            .read_line(&mut line)?;
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let input = guard.stdin.take();
        let pid = pid.with_context(|| format!("the guard tells no process id but {line:?}"))?;
        Ok(Self { guard, input, pid, log: Arc::clone(log) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Stops every process of the server: none of them starts another one after the first has stopped.
    pub(crate) fn stop(&self) -> Result<()> {
        stop(self.pid)?;
        children(self.pid).into_iter().try_for_each(stop)
    }

    pub(crate) fn resume(&self) -> Result<()> {
        for pid in children(self.pid).into_iter().chain([self.pid]) {
            signal(pid, Signal::CONT)?;
        }
        Ok(())
    }

    /// Ends every process of the server at once.
    pub(crate) fn kill(&self) -> Result<()> {
        self.stop()?;
        for pid in children(self.pid).into_iter().chain([self.pid]) {
            signal(pid, Signal::KILL)?;
        }
        if !self.log.until_closed() {
            bail!("processes of the server run {PATIENCE:?} after they were killed");
        }
        Ok(())
    }

    /// PostgreSQL's fast shutdown: clients are cut off, a checkpoint is written.
    pub(crate) fn shut_down(&self) -> Result<()> {
        self.resume()?;
        signal(self.pid, Signal::INT)?;
        if !self.log.until_closed() {
            bail!("the server has not shut down within {PATIENCE:?}");
        }
        Ok(())
    }

    /// Ends the guard, and the server if it still runs. The folder stays where the server is to run again.
    pub(crate) fn end(mut self, keeps_folder: bool) -> Result<()> {
        // The server may be stopped; what is stopped ends only when it goes on.
        self.resume()?;
        let mut input = self.input.take().context("a guard is ended once")?;
        if keeps_folder {
            input.write_all(b"keep\n")?;
        }
        drop(input);
        if !self.log.until_closed() {
            self.kill()?;
        }
        self.guard.wait()?;
        Ok(())
    }
}

/// Removes the few bytes of shared memory that a killed server leaves behind; a server that runs again does so itself.
pub(crate) fn remove_shared_memory(data: &Path) {
    let Ok(lock) = std::fs::read_to_string(data.join("postmaster.pid")) else { return };
    // The seventh line: key and id of the segment.
    if let Some(id) = lock.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
        let removed = Command::new("ipcrm").args(["-m", id]).stderr(Stdio::null()).status();
        // Without `ipcrm` the segment stays until the machine starts anew.
        drop(removed);
    }
}

fn signal(pid: Pid, signal: Signal) -> Result<()> {
    match kill_process(pid, signal) {
        // It has ended meanwhile.
        Err(error) if error != rustix::io::Errno::SRCH => Err(error.into()),
        _ => Ok(()),
    }
}

fn stop(pid: Pid) -> Result<()> {
    signal(pid, Signal::STOP)?;
    let end = Instant::now() + PATIENCE;
    while state(pid).is_some_and(|(state, _)| !"TtZX".contains(state)) {
        if Instant::now() > end {
            bail!("process {pid:?} does not stop");
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// The state and the parent of a process.
fn state(pid: Pid) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before the last bracket may have spaces.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// All processes of a server are children of its first.
fn children(parent: Pid) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let parent = parent.as_raw_nonzero().get();
    pids.filter(|pid| state(*pid).is_some_and(|(_, of)| of == parent)).collect()
}
