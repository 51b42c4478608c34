//! Runs the programs of a toolchain, and this program as a process of its own, each within a limit
//! of time.

use std::io::{self, IsTerminal, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::start::{ask, pause};

/// Length limit of what a process writes to its standard output, if that is read.
const OUTPUT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How a process ended.
pub(super) enum Ended {
    Exited(ExitStatus),
    /// It was ended because its time was up.
    OutOfTime,
}

/// Runs a process to its end, or ends it when its time is up. On a terminal, `title` and the time so
/// far are shown.
pub(super) fn run(command: &mut Command, limit: Duration, title: &str) -> io::Result<Ended> {
    let mut child = command.spawn()?;
    wait(&mut child, limit, title)
}

/// Same as [`run`], and returns what it wrote to standard output.
pub(super) fn read(command: &mut Command, limit: Duration, title: &str) -> io::Result<(Ended, Vec<u8>)> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let reader = child.stdout.take().map(reader);
    let ended = wait(&mut child, limit, title)?;
    if matches!(ended, Ended::OutOfTime) {
        // A process that it started may hold the pipe open.
        return Ok((ended, Vec::new()));
    }
    let output = reader.and_then(|reader| reader.join().ok()).transpose()?;
    Ok((ended, output.unwrap_or_default()))
}

/// Reads on a thread of its own, so that a full pipe does not stop the process.
fn reader(stdout: ChildStdout) -> JoinHandle<io::Result<Vec<u8>>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

fn wait(child: &mut Child, limit: Duration, title: &str) -> io::Result<Ended> {
    let started = Instant::now();
    let mut line = Elapsed { wanted: !title.is_empty() && io::stderr().is_terminal(), shown: 0 };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        if started.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::OutOfTime);
        }
        line.show(title, started.elapsed().as_secs());
        pause();
    }
}

/// A line of the terminal that says what runs and for how long. Erased when dropped.
struct Elapsed {
    wanted: bool,
    shown: u64,
}

impl Elapsed {
    /// Nothing is shown for what ends within a second.
    fn show(&mut self, title: &str, seconds: u64) {
        if self.wanted && seconds > self.shown {
            self.shown = seconds;
            ask(&format!("\r{title}, {seconds} s\x1b[K"));
        }
    }
}

impl Drop for Elapsed {
    fn drop(&mut self) {
        if self.shown > 0 {
            ask("\r\x1b[K");
        }
    }
}
