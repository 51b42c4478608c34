//! The built test guests of `rogue/`, in folders for `--plugins`.

use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub fn built(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rogue/built").join(file)
}

/// A temporary folder with these plugins, each with its component.
pub fn folder(plugins: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for plugin in plugins {
        let manifest = std::fs::read_to_string(built(&format!("{plugin}.toml"))).unwrap();
        let named = manifest.lines().find_map(|line| line.strip_prefix("component = \"")?.strip_suffix('"'));
        let component = named.map_or_else(|| format!("{plugin}.wasm"), str::to_owned);
        std::fs::copy(built(&component), folder.path().join(format!("{plugin}.wasm"))).unwrap();
        let manifest = manifest.replace(&format!("component = \"{component}\"\n"), "");
        std::fs::write(folder.path().join(format!("{plugin}.toml")), manifest).unwrap();
    }
    folder
}
