//! The program under test, and where it runs.

use super::{database, deadline};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program of this version.
pub const EXECUTABLE: &str = env!("CARGO_BIN_EXE_cofferdam");

/// A program, and where it runs.
#[derive(Clone)]
pub struct Place {
    pub executable: PathBuf,
    /// The process whose user and mount namespaces it has.
    pub namespaces: Option<u32>,
    /// The file that takes a process into its control group.
    pub group: Option<PathBuf>,
}

impl Default for Place {
    fn default() -> Self {
        Self { executable: EXECUTABLE.into(), namespaces: None, group: None }
    }
}

impl Place {
    /// The program there, with the environment that every test needs.
    pub fn program(&self) -> Command {
        let executable = self.executable.to_str().unwrap();
        equipped(match (&self.group, self.namespaces) {
            (Some(group), _) => super::memory_group::command(group, executable),
            (None, None) => Command::new(executable),
            (None, Some(holder)) => {
                let mut command = Command::new("nsenter");
                command.args([
                    "--user",
                    "--mount",
                    "--preserve-credentials",
                    "--target",
                    &holder.to_string(),
                ]);
                command.arg(executable);
                command
            }
        })
    }
}

/// The cache of compiled guests, shared by all tests so that each guest is compiled once.
fn cache_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled")
}

/// The program with the environment that every test needs.
pub fn program() -> Command {
    Place::default().program()
}

/// The program for a data directory, without a test's own configuration.
pub fn program_at(data: &Path) -> Command {
    let mut command = program();
    command.arg("--data").arg(data);
    if let Some(config) = database::config_of(data) {
        command.arg("--config").arg(config);
    }
    command
}

fn equipped(mut command: Command) -> Command {
    deadline::set();
    command
        .env("COFFERDAM_CACHE", cache_dir())
        .env_remove("COFFERDAM_DATA")
        .env_remove("COFFERDAM_LOG")
        .env_remove("COFFERDAM_LOG_FORMAT")
        .stdin(Stdio::null());
    command
}
