//! `DATA/admin.sock`: one command per connection, one JSON line each way. Only
//! the owner of the data directory can reach it. A path that is too long for a
//! socket address is reached through the directory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::command::{Command, CommandError, Outcome, carry_out};

const FILE_NAME: &str = "admin.sock";
/// The longest path a socket address holds on Linux, its final zero included.
const PATH_BYTES_MAX: usize = 108;
/// The longest command line, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// The longest answer that is read, in bytes.
const REPLY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Commands at once.
const COMMANDS_MAX: usize = 8;
/// A command must arrive, and its answer must be taken, within this.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the sender waits for the outcome.
const OUTCOME_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Done(Outcome),
    Failed(CommandError),
}

/// Why a command that was sent elsewhere has no outcome.
#[derive(Debug)]
pub(crate) enum SendError {
    /// Nobody listens (yet); nothing was sent.
    NotListening,
    /// The connection broke after sending. The command may have been carried out.
    OutcomeUnknown,
}

/// A path of the socket that fits a socket address, and what keeps it valid.
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

/// Makes the socket. To be called by the holder of the store's lock only: then a
/// socket that is already there is a leftover.
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

/// Removes the socket.
///
/// # Errors
///
/// The system refuses.
pub(crate) fn remove(data: &Path) -> io::Result<()> {
    std::fs::remove_file(data.join(FILE_NAME))
}

/// Sends a command to the process that holds the store and waits for its outcome.
///
/// # Errors
///
/// Nobody listens, or nobody knows the outcome.
pub(crate) fn send(data: &Path, command: &Command) -> Result<Result<Outcome, CommandError>, SendError> {
    let reachable = reach(data).map_err(|_| SendError::NotListening)?;
    let mut stream = UnixStream::connect(&reachable.path).map_err(|_| SendError::NotListening)?;
    let unknown = |_: io::Error| SendError::OutcomeUnknown;
    stream.set_read_timeout(Some(OUTCOME_PATIENCE)).map_err(unknown)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(unknown)?;
    let mut line = serde_json::to_vec(command).map_err(|error| unknown(error.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(unknown)?;
    let mut reply = Vec::new();
    stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply).map_err(unknown)?;
    match serde_json::from_slice(&reply).map_err(|error| unknown(error.into()))? {
        Reply::Done(outcome) => Ok(Ok(outcome)),
        Reply::Failed(error) => Ok(Err(error)),
    }
}

/// Carries out commands until stopped; commands that run then are finished.
///
/// # Errors
///
/// The listener cannot be used.
pub(crate) async fn serve(listener: UnixListener, app: Arc<App>, stop: CancellationToken) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let permits = Arc::new(Semaphore::new(COMMANDS_MAX));
    let tasks = tokio_util::task::TaskTracker::new();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { break };
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(take_command(stream, Arc::clone(&app), permit));
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

async fn take_command(stream: tokio::net::UnixStream, app: Arc<App>, permit: OwnedSemaphorePermit) {
    if let Err(error) = converse(stream, app).await {
        tracing::debug!(%error, "an operator's connection ended early");
    }
    drop(permit);
}

async fn converse(mut stream: tokio::net::UnixStream, app: Arc<App>) -> io::Result<()> {
    let line = tokio::time::timeout(PATIENCE, read_line(&mut stream)).await??;
    let reply = match serde_json::from_slice::<Command>(&line) {
        Ok(command) => execute(command, app).await,
        Err(_) => Reply::Failed(CommandError {
            message: "the running process does not know this command; is it another version?".to_owned(),
        }),
    };
    let line = serde_json::to_vec(&reply)?;
    tokio::time::timeout(PATIENCE, async {
        stream.write_all(&line).await?;
        stream.shutdown().await
    })
    .await?
}

async fn read_line(stream: &mut tokio::net::UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut bounded = stream.take(REQUEST_BYTES_MAX);
    let mut chunk = [0; 4096];
    while line.last() != Some(&b'\n') {
        let count = bounded.read(&mut chunk).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend(chunk.iter().take(count));
    }
    Ok(line)
}

/// The store blocks until a change is durable, which has no place on a worker.
async fn execute(command: Command, app: Arc<App>) -> Reply {
    let done = tokio::task::spawn_blocking(move || carry_out(&command, Some(&app.store), &app.facts())).await;
    match done {
        Ok(Ok(outcome)) => Reply::Done(outcome),
        Ok(Err(error)) => Reply::Failed(error),
        Err(_) => Reply::Failed(CommandError { message: "the command failed inside the host".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{SendError, bind, send};
    use crate::command::Command;

    #[test]
    fn socket_is_reached_through_the_directory_when_its_path_is_long() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&data).unwrap();
        let listener = bind(&data).unwrap();
        let mode = std::fs::metadata(data.join("admin.sock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(listener);
        // Nobody accepts any more: the command was not sent.
        assert!(matches!(send(&data, &Command::Status), Err(SendError::NotListening)));
    }

    #[test]
    fn leftover_socket_is_replaced() {
        let data = tempfile::tempdir().unwrap();
        drop(bind(data.path()).unwrap());
        bind(data.path()).unwrap();
    }

    #[test]
    fn connection_that_breaks_after_sending_has_no_known_outcome() {
        let data = tempfile::tempdir().unwrap();
        let listener = bind(data.path()).unwrap();
        listener.set_nonblocking(false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = [0; 64];
                let count = std::io::Read::read(&mut stream, &mut line).unwrap();
                assert_eq!(&line[..count], b"\"status\"\n");
            });
            assert!(matches!(send(data.path(), &Command::Status), Err(SendError::OutcomeUnknown)));
        });
    }
}
