//! `[vault]`: the root key, and whether vault routes answer at all.

use std::path::Path;

use cofferdam_store::{PassphraseSource, RootKeySource};

use super::document::Table;

/// The root key of the store.
#[derive(Debug, Clone)]
pub struct Vault {
    /// False: every vault route answers 503.
    pub enabled: bool,
    /// Where the root key comes from.
    pub root_key: RootKeySource,
    /// Where the one before it comes from, during a rotation.
    pub root_key_previous: Option<RootKeySource>,
}

pub(super) fn read(table: &Table<'_>, data: &Path) -> Vault {
    let root_key = source(table, "root_key").unwrap_or_else(|| RootKeySource::File(data.join("root.key")));
    let root_key_previous = source(table, "root_key_previous");
    Vault { enabled: table.flag("enabled"), root_key, root_key_previous }
}

fn source(table: &Table<'_>, key: &'static str) -> Option<RootKeySource> {
    let written = table.text(key)?;
    match written.value.parse() {
        Ok(source) => Some(relative_to(table.directory(), source)),
        Err(_) => {
            written.reject("expected file:PATH, env:NAME, fd:N or passphrase:SOURCE");
            None
        }
    }
}

fn relative_to(directory: &Path, source: RootKeySource) -> RootKeySource {
    match source {
        RootKeySource::File(path) => RootKeySource::File(directory.join(path)),
        RootKeySource::Passphrase { from: PassphraseSource::File(path) } => {
            RootKeySource::Passphrase { from: PassphraseSource::File(directory.join(path)) }
        }
        source => source,
    }
}
