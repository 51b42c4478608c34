//! `build.toml`: how a project is built, and which programs that needs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::process::{self, Ended};
use super::project::{read_text, wrong};
use crate::failure::Failure;

/// Number of commands in one list, and of arguments of one command.
const COMMANDS_MAX: usize = 32;
const ARGUMENTS_MAX: usize = 256;
/// For how long a program may take to say its version.
const VERSION_TIME_MAX: Duration = Duration::from_secs(30);

/// The file `build.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    /// Programs that have to be installed.
    #[serde(default)]
    pub(super) needs: Vec<Need>,
    /// What is run before the first build, and when a file in the project's folder itself has changed.
    #[serde(default)]
    pub(super) setup: Commands,
    /// What builds it.
    pub(super) command: Commands,
    /// The file that this makes: a component, or a core module with the names of the canonical ABI.
    pub(super) output: String,
    /// Files and folders on which the output depends.
    #[serde(default)]
    pub(super) watch: Vec<String>,
}

/// A program that has to be installed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Need {
    program: String,
    /// The lowest version that will do, such as `1.85`.
    at_least: Option<String>,
    /// The packages of Debian that have it.
    debian: Option<String>,
}

/// One command with its arguments, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "takes a command as a list of texts, or a list of such lists")]
pub(super) enum Commands {
    One(Vec<String>),
    Several(Vec<Vec<String>>),
}

impl Default for Commands {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl Commands {
    /// Each command: a program and its arguments.
    pub(super) fn each(&self) -> impl Iterator<Item = &[String]> {
        let (one, several) = match self {
            Self::One(command) => (Some(command.as_slice()), [].as_slice()),
            Self::Several(commands) => (None, commands.as_slice()),
        };
        one.into_iter().chain(several.iter().map(Vec::as_slice)).filter(|command| !command.is_empty())
    }

    fn is_small(&self) -> bool {
        self.each().count() <= COMMANDS_MAX && self.each().all(|command| command.len() <= ARGUMENTS_MAX)
    }
}

impl Recipe {
    /// Reads the `build.toml` of a project.
    ///
    /// # Errors
    ///
    /// There is none, or it has a mistake.
    pub(super) fn read(dir: &Path) -> Result<Self, Failure> {
        let file = dir.join("build.toml");
        let text = read_text(&file)?;
        let place = |offset: usize| text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        let recipe: Self = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| place(span.start));
            let message = error.message().lines().next().unwrap_or_default();
            wrong(format!("{}:{line}: {message}", file.display()))
        })?;
        let refused = |problem: String| Err(wrong(format!("{}: {problem}", file.display())));
        if recipe.command.each().next().is_none() {
            return refused("`command` is empty: it takes the command that builds the plugin".to_owned());
        }
        if !recipe.command.is_small() || !recipe.setup.is_small() || recipe.needs.len() > COMMANDS_MAX {
            return refused(format!(
                "more than {COMMANDS_MAX} commands, or {ARGUMENTS_MAX} arguments of one"
            ));
        }
        Ok(recipe)
    }

    /// Checks that the programs are installed and new enough.
    ///
    /// # Errors
    ///
    /// The first that is not, with the packages that have it.
    pub(super) fn check_needs(&self) -> Result<(), Failure> {
        self.needs.iter().try_for_each(Need::check)
    }
}

impl Need {
    fn check(&self) -> Result<(), Failure> {
        let mut command = Command::new(&self.program);
        command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
        let answer = match process::read(&mut command, VERSION_TIME_MAX, "") {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(self.missing("")),
            Err(error) => return Err(Failure::system(self.program.clone())(error)),
            Ok((Ended::OutOfTime, _)) => {
                return Err(wrong(format!("`{} --version` does not end", self.program)));
            }
            Ok((Ended::Exited(_), answer)) => answer,
        };
        let found = version_in(&String::from_utf8_lossy(&answer));
        match (&self.at_least, found) {
            (Some(wanted), Some(found)) if numbers(&found) < numbers(wanted) => {
                Err(self.missing(&format!(", this is {found}")))
            }
            _ => Ok(()),
        }
    }

    fn missing(&self, found: &str) -> Failure {
        let or_newer = self.at_least.as_ref().map(|wanted| format!(" {wanted} or newer")).unwrap_or_default();
        let packages = self.debian.as_ref().map(|names| format!("; Debian: apt-get install {names}"));
        wrong(format!("{}{or_newer} is not on the PATH{found}{}", self.program, packages.unwrap_or_default()))
    }
}

/// The first version number in a text.
fn version_in(text: &str) -> Option<String> {
    let start = text.find(|character: char| character.is_ascii_digit())?;
    let rest = text.get(start..)?;
    let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.');
    rest.get(..end.unwrap_or(rest.len())).map(str::to_owned)
}

fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map_while(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{numbers, version_in};

    #[test]
    fn versions_are_found_and_compared() {
        for (text, version) in [
            ("v18.20.4", Some("18.20.4")),
            ("Python 3.11.2", Some("3.11.2")),
            ("Debian LLD 14.0.6 (compatible with GNU linkers)", Some("14.0.6")),
            ("cargo 1.96.0 (abc 2026-05-01)", Some("1.96.0")),
            ("no number", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version);
        }
        assert!(numbers("9.2") < numbers("18"));
        assert!(numbers("1.85") <= numbers("1.85.0"));
        assert!(numbers("1.100") > numbers("1.85.1"));
    }
}
