//! Runs the programs of a toolchain, and this program as a process of its own, each within a limit
//! of time. A process that is run leads a group: the group ends when its time is up, and when a
//! signal asks this program to stop.

use std::io::{self, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::signal::unix::{SignalKind, signal};

use super::output::{Elapsed, OutputText, ScreenOutput};
use crate::start::pause;

/// Length limit of what a process writes to its standard output, if that is read.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a group may take to end after the first signal.
const END_TIME: Duration = Duration::from_secs(2);
/// How long output is awaited after the process has ended: a process that it left behind may hold
/// the pipe open.
const REST_TIME: Duration = Duration::from_secs(1);
/// The time between two looks at a process.
const LOOK: Duration = Duration::from_millis(50);
const CHUNK_BYTES: usize = 16 * 1024;

/// Whether a signal asked this program to stop.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// How a process ended.
pub(super) enum Ended {
    Exited(ExitStatus),
    /// It was ended because its time was up.
    OutOfTime,
}

/// Where the output of a process goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputTo {
    /// To standard error, as it comes.
    Screen,
    /// Into the text that is returned.
    Text,
}

/// From now on SIGINT, SIGTERM and SIGHUP end the processes that run, and only then this program.
///
/// # Errors
///
/// The system refuses.
pub(super) fn stop_on_signals() -> io::Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.set(()).is_err() {
        return Ok(());
    }
    let (ready, is_ready) = sync_channel(1);
    thread::Builder::new().name("signals".to_owned()).spawn(move || listen(&ready))?;
    is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for signals ended")))
}

/// Whether a signal asked this program to stop.
pub(super) fn is_stopped() -> bool {
    STOPPED.load(Ordering::Acquire)
}

fn listen(ready: &SyncSender<io::Result<()>>) {
    let waiting = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(waiting) => waiting,
        Err(error) => return ready.send(Err(error)).unwrap_or_default(),
    };
    waiting.block_on(async {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let signals: io::Result<Vec<_>> = kinds.into_iter().map(signal).collect();
        let mut signals = match signals {
            Ok(signals) => signals,
            Err(error) => return ready.send(Err(error)).unwrap_or_default(),
        };
        ready.send(Ok(())).unwrap_or_default();
        std::future::poll_fn(|context| {
            let any = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if any { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        STOPPED.store(true, Ordering::Release);
    });
}

/// Runs a process to its end, or ends it when its time is up. On a terminal, `title` and the time so
/// far are shown. Returns the output if it goes to a text.
///
/// # Errors
///
/// The process does not start, or a signal stopped this program.
pub(super) fn run(
    command: &mut Command,
    limit: Duration,
    title: &str,
    output: OutputTo,
) -> io::Result<(Ended, String)> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.process_group(0).spawn();
    // The command holds the pipe open until its own ends of it are replaced.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child?;
    let mut line = Elapsed::new(title);
    let (mut text, mut screen) = (OutputText::default(), ScreenOutput::default());
    let mut take = |line: &mut Elapsed, bytes: &[u8]| match output {
        OutputTo::Text => text.push(bytes),
        OutputTo::Screen => screen.write(line, bytes),
    };
    let ended = wait(&mut child, reader, limit, &mut line, &mut take)?;
    Ok((ended, text.into_text()))
}

/// Same as [`run`], and returns what it wrote to standard output. Standard error is that of this
/// program.
pub(super) fn read(command: &mut Command, limit: Duration, title: &str) -> io::Result<(Ended, Vec<u8>)> {
    let (reader, writer) = io::pipe()?;
    let child = command.stdout(writer).process_group(0).spawn();
    command.stdout(Stdio::null());
    let mut answer = Vec::new();
    let mut take = |_: &mut Elapsed, bytes: &[u8]| {
        let left = ANSWER_BYTES_MAX - answer.len();
        answer.extend_from_slice(bytes.get(..left).unwrap_or(bytes));
    };
    let ended = wait(&mut child?, reader, limit, &mut Elapsed::new(title), &mut take)?;
    Ok((ended, answer))
}

/// Takes the output of a process until it has ended.
fn wait(
    child: &mut Child,
    pipe: PipeReader,
    limit: Duration,
    line: &mut Elapsed,
    take: &mut dyn FnMut(&mut Elapsed, &[u8]),
) -> io::Result<Ended> {
    let started = Instant::now();
    let (sender, chunks) = sync_channel(16);
    thread::spawn(move || send_chunks(pipe, &sender));
    loop {
        if let Some(status) = child.try_wait()? {
            take_rest(&chunks, line, take);
            return Ok(Ended::Exited(status));
        }
        if is_stopped() {
            end_group(child)?;
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by a signal"));
        }
        if started.elapsed() >= limit {
            end_group(child)?;
            take_rest(&chunks, line, take);
            return Ok(Ended::OutOfTime);
        }
        match chunks.recv_timeout(LOOK) {
            Ok(chunk) => take(line, &chunk),
            Err(RecvTimeoutError::Timeout) => {}
            // It has closed its output and still runs.
            Err(RecvTimeoutError::Disconnected) => pause(),
        }
        line.show();
    }
}

fn send_chunks(mut pipe: PipeReader, sender: &SyncSender<Vec<u8>>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        let chunk = buffer.get(..count).unwrap_or_default().to_vec();
        if sender.send(chunk).is_err() {
            return;
        }
    }
}

fn take_rest(chunks: &Receiver<Vec<u8>>, line: &mut Elapsed, take: &mut dyn FnMut(&mut Elapsed, &[u8])) {
    let until = Instant::now() + REST_TIME;
    while let Ok(chunk) = chunks.recv_timeout(until.saturating_duration_since(Instant::now())) {
        take(line, &chunk);
    }
}

/// Ends a process and all processes of its group.
fn end_group(child: &mut Child) -> io::Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(group) = group else { return child.kill() };
    // An error of a signal means that the group has just ended.
    kill_process_group(group, Signal::TERM).unwrap_or_default();
    let until = Instant::now() + END_TIME;
    // Its status is left for the wait below: until then its number cannot be that of another group.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while Instant::now() < until && matches!(waitid(WaitId::Pid(group), options), Ok(None)) {
        pause();
    }
    kill_process_group(group, Signal::KILL).unwrap_or_default();
    child.wait().map(drop)
}
