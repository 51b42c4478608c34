//! Installed plugins: `plugin install`, `update`, `remove`, `rollback` and the lock that a start holds
//! their files against.

mod changes;
mod logs;
mod mending;
mod steps;
mod swaps;
mod tampering;
mod updates;

use crate::kit::host::Setup;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

/// The plugin of these tests: a tool that tells the time.
pub const NAME: &str = "tool-clockwork";

/// The weekdays as they stand in the component of the first edition. The second one has capitals.
const WEEKDAYS: &str = "MondayTuesdayWednesdayThursdayFridaySaturdaySunday";

/// How the answer of each edition to the model ends.
pub const EDITIONS: [&str; 2] = ["day\"}", "DAY\"}"];

/// An edition of the plugin in a folder of its own.
pub struct Edition(TempDir);

impl Edition {
    /// `more` are lines of the manifest.
    pub fn new(edition: usize, version: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let manifest = format!(
            "name = \"{NAME}\"\nkind = \"tool\"\nversion = \"{version}\"\n{more}\n\
             [tool]\ntype = \"clockwork\"\n"
        );
        std::fs::write(folder.path().join(format!("{NAME}.toml")), manifest).unwrap();
        std::fs::write(folder.path().join(format!("{NAME}.wasm")), component(edition)).unwrap();
        Self(folder)
    }

    pub fn plain(edition: usize, version: &str) -> Self {
        Self::new(edition, version, "imports = [\"clock\"]")
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The path of the component.
    pub fn file(&self) -> String {
        self.0.path().join(format!("{NAME}.wasm")).to_str().unwrap().to_owned()
    }
}

/// The component of the built-in tool `datetime`, with the weekdays of this edition.
fn component(edition: usize) -> Vec<u8> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/tool-datetime.wasm");
    let mut bytes = std::fs::read(built).unwrap();
    if edition == 1 {
        let place = bytes.windows(WEEKDAYS.len()).position(|window| window == WEEKDAYS.as_bytes());
        let place = place.expect("the component has no such text");
        bytes[place..place + WEEKDAYS.len()].make_ascii_uppercase();
    }
    bytes
}

pub fn setup() -> Setup {
    Setup::new().config("[limits]\nstreams = 50\n")
}

/// Commands on a data directory, with or without a host.
pub trait Commands {
    fn output(&self, arguments: &[&str]) -> Output;
    fn data_folder(&self) -> PathBuf;

    /// The document of a command that has to succeed.
    fn done(&self, arguments: &[&str]) -> Value {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What a command that has to fail says.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    /// The plugin in `plugin list`.
    fn listed(&self) -> Option<Value> {
        let listed = self.done(&["plugin", "list"]);
        listed.as_array().unwrap().iter().find(|plugin| plugin["name"] == NAME).cloned()
    }

    /// The version that is loaded.
    fn version(&self) -> Option<String> {
        self.listed().map(|plugin| plugin["version"].as_str().unwrap().to_owned())
    }

    /// The names of the files of installed plugins.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.data_folder().join("plugins")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Commands for Setup {
    fn output(&self, arguments: &[&str]) -> Output {
        self.command_output(arguments)
    }

    fn data_folder(&self) -> PathBuf {
        self.data()
    }
}

impl Commands for crate::kit::host::Host {
    fn output(&self, arguments: &[&str]) -> Output {
        self.command_output(arguments)
    }

    fn data_folder(&self) -> PathBuf {
        self.data()
    }
}
