//! `DATA/admin.sock`: carries one command per connection. The command is one JSON line; the reply
//! is any number of progress lines and a last line with the outcome. Only the owner of the data
//! directory can connect. If the path is too long for a socket address, the directory's descriptor
//! is used instead.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BufMut;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::dispatch::dispatch;
use crate::app::App;
use crate::command::{Command, CommandError, CommandOutcome, Progress};
use crate::failure::UntrustedDirectory;

const FILE_NAME: &str = "admin.sock";
/// The longest path in a socket address on Linux, with its final zero.
const PATH_BYTES_MAX: usize = 108;
/// The maximum length of a command, in bytes: a secret of 65,536 characters, escaped, with 100
/// hosts.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// The buffer size for a reply line, in bytes. Every reply that contains a key is shorter.
const KEY_REPLY_BYTES: usize = 16 * 1024;
/// The maximum length of a reply line, in bytes.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Commands that run at the same time.
const COMMANDS_MAX: usize = 8;
/// The time in which a command must arrive, and the time in which each reply line must be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the sender waits for the next reply line.
const OUTCOME_PATIENCE: Duration = Duration::from_secs(60);
/// A running command sends a progress line at least this often.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// The minimum time between two progress lines.
const BETWEEN_LINES: Duration = Duration::from_millis(250);
/// Progress lines that may wait to be sent; further ones are dropped.
const PROGRESS_LINES_MAX: usize = 16;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SocketReply {
    /// What is counted, how many so far, and the total or 0 if it is unknown.
    Progress(String, u64, u64),
    Done(CommandOutcome),
    Failed(CommandError),
}

/// Why a command sent to the running host has no outcome.
#[derive(Debug)]
pub(crate) enum SendError {
    /// No process listens, or not yet; nothing was sent.
    NotListening,
    /// Another user can have made the socket; nothing was sent.
    Untrusted(UntrustedDirectory),
    /// The connection broke after sending. The command may have been carried out.
    OutcomeUnknown,
}

/// Checks that only this user, or for root the owner of the directory, can have made the socket.
fn check(data: &Path) -> Result<(), SendError> {
    let metadata = std::fs::metadata(data).map_err(|_| SendError::NotListening)?;
    let (user, owner) = (rustix::process::geteuid().as_raw(), metadata.uid());
    if user != owner && user != 0 {
        let untrusted = UntrustedDirectory::WrongOwner { path: data.to_owned(), owner };
        return Err(SendError::Untrusted(untrusted));
    }
    if metadata.permissions().mode() & 0o022 != 0 {
        return Err(SendError::Untrusted(UntrustedDirectory::TooOpen(data.to_owned())));
    }
    Ok(())
}

/// A path to the socket that fits a socket address, and the directory descriptor that keeps it
/// valid.
struct Reachable {
    path: PathBuf,
    _directory: Option<File>,
}

fn reach(data: &Path) -> io::Result<Reachable> {
    let path = data.join(FILE_NAME);
    if path.as_os_str().len() < PATH_BYTES_MAX {
        return Ok(Reachable { path, _directory: None });
    }
    let directory = File::open(data)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{FILE_NAME}", directory.as_raw_fd()));
    Ok(Reachable { path, _directory: Some(directory) })
}

/// Creates the socket. Only the holder of the store's lock may call this, so that an existing
/// socket is known to be a leftover.
///
/// # Errors
///
/// The system refuses.
pub(crate) fn bind(data: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(data.join(FILE_NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&reach(data)?.path)?;
    std::fs::set_permissions(data.join(FILE_NAME), std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

pub(crate) fn remove(data: &Path) -> io::Result<()> {
    std::fs::remove_file(data.join(FILE_NAME))
}

/// Sends a command to the process that holds the store and waits for the outcome. Progress lines
/// are passed to `progress`.
///
/// # Errors
///
/// No process listens, another user can have made the socket, or the outcome is unknown.
pub(crate) fn send(
    data: &Path,
    command: &Command,
    progress: &mut Progress<'_>,
) -> Result<Result<CommandOutcome, CommandError>, SendError> {
    let reachable = reach(data).map_err(|_| SendError::NotListening)?;
    let mut stream = UnixStream::connect(&reachable.path).map_err(|_| SendError::NotListening)?;
    check(data)?;
    let unknown = |_: io::Error| SendError::OutcomeUnknown;
    stream.set_read_timeout(Some(OUTCOME_PATIENCE)).map_err(unknown)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(unknown)?;
    stream.write_all(&line_of(command).map_err(unknown)?).map_err(unknown)?;
    let mut replies = BufReader::new(stream.take(0));
    loop {
        replies.get_mut().set_limit(REPLY_BYTES_MAX as u64);
        // A reply line with a key fits into this buffer, so the buffer does not grow and leave a
        // copy behind.
        let mut reply = Zeroizing::new(Vec::with_capacity(KEY_REPLY_BYTES));
        replies.read_until(b'\n', &mut reply).map_err(unknown)?;
        if reply.last() != Some(&b'\n') && replies.get_ref().limit() == 0 {
            return Ok(Err(too_long()));
        }
        match serde_json::from_slice(&reply).map_err(|error| unknown(error.into()))? {
            // The result of `progress` is ignored: the command goes on without its reader.
            SocketReply::Progress(what, done, of) => drop(progress(&what, done, of)),
            SocketReply::Done(outcome) => return Ok(Ok(outcome)),
            SocketReply::Failed(error) => return Ok(Err(error)),
        }
    }
}

/// Carries out commands until stopped. Commands that are running then are finished.
///
/// # Errors
///
/// The listener cannot be used.
pub(crate) async fn serve(listener: UnixListener, app: Arc<App>, stop: CancellationToken) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let permits = Arc::new(Semaphore::new(COMMANDS_MAX));
    let tasks = tokio_util::task::TaskTracker::new();
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((listener.accept().await, permit))
        };
        let (accepted, permit) = tokio::select! {
            () = stop.cancelled() => break,
            next = next => next?,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(take_command(stream, Arc::clone(&app), stop.clone(), permit));
            }
            Err(error) => {
                tracing::warn!(%error, "an operator's connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    tasks.close();
    tasks.wait().await;
    Ok(())
}

async fn take_command(
    stream: tokio::net::UnixStream,
    app: Arc<App>,
    stop: CancellationToken,
    permit: OwnedSemaphorePermit,
) {
    if let Err(error) = converse(stream, app, stop).await {
        tracing::debug!(%error, "an operator's connection ended early");
    }
    drop(permit);
}

async fn converse(
    mut stream: tokio::net::UnixStream,
    app: Arc<App>,
    stop: CancellationToken,
) -> io::Result<()> {
    let line = tokio::select! {
        line = tokio::time::timeout(PATIENCE, read_line(&mut stream)) => line??,
        () = stop.cancelled() => return Ok(()),
    };
    let Ok(command) = serde_json::from_slice::<Command>(&line) else {
        let message = "the running process does not know this command; is it another version?";
        return write_line(&mut stream, &SocketReply::Failed(CommandError::new(message))).await;
    };
    drop(line);
    let (lines, mut told) = tokio::sync::mpsc::channel(PROGRESS_LINES_MAX);
    let mut running = tokio::task::spawn_blocking(move || execute(&command, &app, &stop, &lines));
    // The command is finished even if the operator disconnects.
    let mut listening = true;
    let reply = loop {
        let progress = tokio::select! {
            done = &mut running => break done,
            Some(progress) = told.recv() => progress,
            () = tokio::time::sleep(SIGN_OF_LIFE) => SocketReply::Progress(String::new(), 0, 0),
        };
        if listening {
            listening = write_line(&mut stream, &progress).await.is_ok();
        }
    };
    let reply = reply
        .unwrap_or_else(|_| SocketReply::Failed(CommandError::new("the command failed inside the host")));
    write_line(&mut stream, &reply).await?;
    stream.shutdown().await
}

async fn write_line(stream: &mut tokio::net::UnixStream, reply: &SocketReply) -> io::Result<()> {
    let line = reply_line(reply, REPLY_BYTES_MAX)?;
    tokio::time::timeout(PATIENCE, stream.write_all(&line)).await?
}

/// The line of a reply. The sender does not read one that is too long, so an error is sent in its place.
fn reply_line(reply: &SocketReply, bytes_max: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let line = line_of(reply)?;
    if line.len() <= bytes_max { Ok(line) } else { line_of(&SocketReply::Failed(too_long())) }
}

fn too_long() -> CommandError {
    CommandError::new(format!(
        "the command was carried out, but its reply is longer than {} MiB: list fewer records with `--limit N`",
        REPLY_BYTES_MAX / 1024 / 1024
    ))
}

/// One line of JSON in a buffer of its exact length: a buffer that grows would leave copies of a
/// secret behind.
fn line_of(content: &impl Serialize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut length = Length(1);
    serde_json::to_writer(&mut length, content)?;
    let mut line = Zeroizing::new(Vec::with_capacity(length.0));
    serde_json::to_writer(&mut *line, content)?;
    line.push(b'\n');
    Ok(line)
}

/// A writer that only counts bytes.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn read_line(stream: &mut tokio::net::UnixStream) -> io::Result<Zeroizing<Vec<u8>>> {
    // Allocated at full size: a buffer that grows would leave copies of a secret behind.
    let mut line = Zeroizing::new(Vec::with_capacity(REQUEST_BYTES_MAX));
    while line.last() != Some(&b'\n') {
        let room = REQUEST_BYTES_MAX - line.len();
        if room == 0 || stream.read_buf(&mut (&mut *line).limit(room)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(line)
}

/// Runs on a blocking thread: the store blocks until a change is durable.
fn execute(
    command: &Command,
    app: &App,
    stop: &CancellationToken,
    lines: &Sender<SocketReply>,
) -> SocketReply {
    let mut last = Instant::now();
    let mut progress = |what: &str, done, of| {
        if last.elapsed() >= BETWEEN_LINES {
            last = Instant::now();
            // A progress line that finds the queue full is dropped.
            drop(lines.try_send(SocketReply::Progress(what.to_owned(), done, of)));
        }
        if stop.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match dispatch(command, app, &mut progress) {
        Ok(outcome) => SocketReply::Done(outcome),
        Err(error) => SocketReply::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::os::unix::fs::PermissionsExt;

    use super::{REPLY_BYTES_MAX, SendError, SocketReply, bind, line_of, reply_line, send};
    use crate::command::{Command, CommandError, CommandOutcome};

    fn ignore(_: &str, _: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn socket_is_reached_through_the_directory_when_its_path_is_long() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&data).unwrap();
        let listener = bind(&data).unwrap();
        let mode = std::fs::metadata(data.join("admin.sock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(listener);
        // The listener is closed: the command was not sent.
        assert!(matches!(send(&data, &Command::Status, &mut ignore), Err(SendError::NotListening)));
    }

    #[test]
    fn line_is_built_in_a_buffer_that_never_grows() {
        for text in ["", "plain", "\"\\\n\u{1F511}\u{1}"] {
            let line = line_of(&text).unwrap();
            assert_eq!((line.len(), line.last()), (line.capacity(), Some(&b'\n')));
            assert_eq!(serde_json::from_slice::<String>(&line).unwrap(), text);
        }
    }

    #[test]
    fn reply_that_is_too_long_says_so() {
        let outcome = CommandOutcome { document: "long".repeat(100).into(), text: String::new() };
        let reply = SocketReply::Done(outcome);
        let whole = reply_line(&reply, 1000).unwrap();
        assert_eq!(*whole, *line_of(&reply).unwrap());
        let SocketReply::Failed(error) = serde_json::from_slice(&reply_line(&reply, 400).unwrap()).unwrap()
        else {
            panic!("the reply is no error");
        };
        assert!(error.message.contains("longer than 64 MiB") && error.message.contains("--limit"), "{error}");

        // A host of another version sends it nevertheless.
        let sent = sent_to(|mut stream| {
            // The reader leaves before the end.
            drop(std::io::Write::write_all(&mut stream, &vec![b'"'; REPLY_BYTES_MAX + 1]));
        });
        assert!(sent.unwrap().unwrap_err().message.contains("longer than 64 MiB"));
    }

    /// The outcome of a command that is sent to a host which does this with the connection.
    fn sent_to(
        host: impl FnOnce(std::os::unix::net::UnixStream) + Send,
    ) -> Result<Result<CommandOutcome, CommandError>, SendError> {
        let data = tempfile::tempdir().unwrap();
        let listener = bind(data.path()).unwrap();
        listener.set_nonblocking(false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| host(listener.accept().unwrap().0));
            send(data.path(), &Command::Status, &mut ignore)
        })
    }

    #[test]
    fn leftover_socket_is_replaced() {
        let data = tempfile::tempdir().unwrap();
        drop(bind(data.path()).unwrap());
        bind(data.path()).unwrap();
    }

    #[test]
    fn connection_that_breaks_after_sending_has_no_known_outcome() {
        let sent = sent_to(|mut stream| {
            let mut line = [0; 64];
            let count = std::io::Read::read(&mut stream, &mut line).unwrap();
            assert_eq!(&line[..count], b"\"status\"\n");
        });
        assert!(matches!(sent, Err(SendError::OutcomeUnknown)));
    }
}
