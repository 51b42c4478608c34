//! Embeds the manifests and components of `plugins/` and the templates of `plugin new` in the
//! program, so that a copied binary needs no other files. Nothing is compiled here; the components
//! are in git. Their digests are computed here, so that a start does not read 20 MB of components
//! that are in the compile cache.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use sha2::{Digest, Sha256};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let plugins = root.join("../../plugins");
    println!("cargo::rerun-if-changed={}", plugins.display());
    let mut list = String::from("&[\n");
    for manifest in manifests(&plugins)? {
        let component = manifest.with_extension("wasm");
        let name = manifest.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // A plugin without its component is left out with a warning: the build of the host must not
        // depend on the components.
        if !component.exists() {
            println!("cargo::warning=plugins/{name}.toml has no component beside it");
            continue;
        }
        let (manifest, component) = (manifest.canonicalize()?, component.canonicalize()?);
        let digest = hex(&Sha256::digest(fs::read(&component)?));
        list.push_str(&format!(
            "    ({name:?}, include_str!({manifest:?}), include_bytes!({component:?}), {digest:?}),\n"
        ));
    }
    list.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("plugins.rs"), list)?;
    let templates = root.join("plugin-templates");
    println!("cargo::rerun-if-changed={}", templates.display());
    let mut list = String::from("&[\n");
    embed_texts(&templates, &templates, &mut list)?;
    list.push_str("]\n");
    fs::write(out.join("plugin_templates.rs"), list)
}

/// Lists all files below a folder, each by its path in `root` and its text, in order.
fn embed_texts(root: &Path, folder: &Path, list: &mut String) -> io::Result<()> {
    let entries: io::Result<Vec<PathBuf>> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut entries = entries?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            embed_texts(root, &path, list)?;
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        list.push_str(&format!("    ({name:?}, include_str!({:?})),\n", path.canonicalize()?));
    }
    Ok(())
}

fn manifests(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut manifests = Vec::new();
    if folder.exists() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                manifests.push(path);
            }
        }
    }
    manifests.sort();
    Ok(manifests)
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}
