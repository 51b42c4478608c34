//! Embeds the manifests and components of `plugins/` in the program, so that a copied binary needs
//! no other files. Nothing is compiled here; the components are in git. Their digests are computed
//! here, so that a start does not read 20 MB of components that are in the compile cache.

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
    let target = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("plugins.rs");
    fs::write(target, list)
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
