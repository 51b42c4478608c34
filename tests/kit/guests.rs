//! The test guests of `rogue/`, built, in folders for `--plugins`.

use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A file of the built test guests.
pub fn built(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rogue/built").join(file)
}

/// A folder outside the sources with these test guests in it. A manifest is
/// named after the plugin it describes, its component stays what it was.
pub fn folder(guests: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for guest in guests {
        let manifest = std::fs::read_to_string(built(&format!("{guest}.toml"))).unwrap();
        let name =
            manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).unwrap();
        std::fs::write(folder.path().join(format!("{name}.toml")), &manifest).unwrap();
        let component = format!("{guest}.wasm");
        std::fs::copy(built(&component), folder.path().join(component)).unwrap();
    }
    folder
}
