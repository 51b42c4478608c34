//! Reads what only the process of the operator can read: standard input, environment variables,
//! descriptors and relative paths differ in the running host.

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use cofferdam_store::{PassphraseSource, RootKeySource};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::command::{
    Command, SecretCommand, Sensitive, UsageArguments, UsageCommand, VaultCommand, WorkspaceCommand,
    not_a_regular_file,
};
use crate::failure::Failure;
use crate::start::ask;

/// The maximum length of a value, in bytes: 65,536 characters of four bytes and a line end.
const VALUE_BYTES_MAX: usize = 65_536 * 4 + 2;

/// The maximum length of an answer to a question, in bytes.
const ANSWER_BYTES_MAX: u64 = 64;

/// Completes a command with input that must be read in this process.
///
/// # Errors
///
/// Standard input or the source of a key cannot be read, or the question is not answered with yes.
pub(super) fn prepare(command: &mut Command) -> Result<(), Failure> {
    match command {
        Command::Secret(SecretCommand::Put { name, value, .. }) => *value = Some(read_value(name)?.into()),
        Command::Workspace(WorkspaceCommand::Delete { workspace, yes: false }) => confirm(&format!(
            "Delete workspace `{workspace}` with its members, its interns, its keys and all secrets? It cannot be \
             undone. [y/N] "
        ))?,
        Command::Usage(UsageArguments {
            command: Some(UsageCommand::Drop { before, yes: false }), ..
        }) => {
            confirm(&format!(
                "Delete the usage rows of all requests of days before {before}? It cannot be undone. [y/N] "
            ))?;
        }
        Command::Vault(VaultCommand::RotateRoot { source, material }) => {
            let absolute = absolute_source(source)?;
            *material = Some(Sensitive::from(absolute.read_or_make()?.expose()));
            // The output of the command also shows this path, for the configuration.
            *source = absolute.to_string();
        }
        Command::Vault(VaultCommand::Backup { file } | VaultCommand::Restore { file }) => {
            *file = absolute(file)?
        }
        Command::Vault(VaultCommand::ImportLegacy { file, .. }) => *file = regular(file)?,
        _ => {}
    }
    Ok(())
}

/// Asks a question on standard error and reads the answer from standard input.
fn confirm(question: &str) -> Result<(), Failure> {
    ask(question);
    let mut answer = String::new();
    let mut source = io::stdin().lock().take(ANSWER_BYTES_MAX);
    io::BufRead::read_line(&mut source, &mut answer).map_err(Failure::system("standard input"))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::NotConfirmed),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(Failure::system(path.display().to_string()))
}

/// The path of a regular file without links: `/dev/stdin` and links of `/proc` name other files in the running
/// host.
fn regular(path: &Path) -> Result<PathBuf, Failure> {
    let failed = || Failure::system(path.display().to_string());
    if !std::fs::metadata(path).map_err(failed())?.is_file() {
        return Err(not_a_regular_file(path).into());
    }
    std::fs::canonicalize(path).map_err(failed())
}

fn absolute_source(text: &str) -> Result<RootKeySource, Failure> {
    let source = text.parse().map_err(Failure::Source)?;
    Ok(match source {
        RootKeySource::File(path) => RootKeySource::File(absolute(&path)?),
        RootKeySource::Passphrase { from: PassphraseSource::File(path) } => {
            RootKeySource::Passphrase { from: PassphraseSource::File(absolute(&path)?) }
        }
        source => source,
    })
}

/// Reads a value from standard input, without one final line end (LF or CRLF). On a terminal it prompts and does
/// not show what is typed.
fn read_value(name: &str) -> Result<Zeroizing<String>, Failure> {
    let failed = |error| Failure::system("standard input")(error);
    let stdin = io::stdin();
    let hidden = if stdin.is_terminal() {
        ask(&format!("Value of {name} (not shown): "));
        Some(Hidden::new().map_err(failed)?)
    } else {
        None
    };
    // Allocated at full size: a buffer that grows would leave copies of the value behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(VALUE_BYTES_MAX + 1));
    let source = stdin.lock();
    let read = match hidden {
        Some(_) => io::BufRead::read_until(&mut source.take(VALUE_BYTES_MAX as u64 + 1), b'\n', &mut bytes),
        None => source.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes),
    };
    drop(hidden);
    read.map_err(failed)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    if bytes.len() >= VALUE_BYTES_MAX {
        return Err(failed(io::Error::other("a secret's value has 1 to 65536 characters")));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| failed(io::Error::other("the value is not UTF-8")))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Switches the echo of the terminal off until dropped.
struct Hidden(Termios);

impl Hidden {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // An error here means that the terminal is gone.
        tcsetattr(io::stdin(), OptionalActions::Flush, &self.0).unwrap_or_default();
    }
}
